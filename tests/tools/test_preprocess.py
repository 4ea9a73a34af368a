"""Offline maps: written once, used while they fit, refused when they do not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import ROOT, run_script
from rejection import rejects

from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import ConfigError, DataError, MapError
from ocr.formats.maps import maps_folder, read_fingerprint, read_maps, write_maps
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip
from ocr.pipeline.targets import ON_DISK, Targets
from ocr.tools.preprocess import preprocess_maps, print_summaries


def open_val(data: Path, *stages, size: int = 160, **settings) -> OCRDataset:
    transform = DBTransforms([Letterbox(size), *stages])
    return OCRDataset(data / "images" / "val", data / "jsons" / "val.json", transform, **settings)


def write(dataset: OCRDataset):
    return preprocess_maps(dataset, "val", show_progress=False)


def map_files(data: Path) -> list[Path]:
    return sorted((data / "images" / "val_maps").glob("*.npz"))


def sources(dataset: OCRDataset) -> dict[str, int]:
    dataset.set_epoch(0)
    for index in range(len(dataset)):
        dataset[index]
    totals = dataset.ledger.totals()
    return {name.removeprefix("maps_"): totals[name] for name in ("maps_drawn", "maps_stored", "maps_stale")}


def test_maps_lie_beside_the_images_under_the_stem_of_each(dataset_folder):
    summary = write(open_val(dataset_folder))
    assert (summary.written, summary.valid, summary.failed) == (6, 0, {})
    images = sorted(path.stem for path in (dataset_folder / "images" / "val").iterdir())
    assert [path.stem for path in map_files(dataset_folder)] == images
    with np.load(map_files(dataset_folder)[0], allow_pickle=False) as stored:
        assert stored["prob_map"].shape == stored["thresh_map"].shape == (1, 160, 160)
        assert str(stored["fingerprint"])


def test_stored_maps_are_bit_identical_to_drawn_ones_and_counted(dataset_folder):
    drawn = [open_val(dataset_folder)[index] for index in range(6)]
    write(open_val(dataset_folder))
    dataset = open_val(dataset_folder)
    for index in range(6):
        for name in ("prob_map", "thresh_map", "prob_mask", "thresh_mask"):
            stored = dataset[index][name]
            assert stored.dtype == drawn[index][name].dtype
            assert torch.equal(stored, drawn[index][name])
    assert sources(dataset) == {"drawn": 0, "stored": 6, "stale": 0}


def test_preloading_maps_counts_those_that_fit_and_changes_no_sample(dataset_folder, caplog):
    write(open_val(dataset_folder))
    map_files(dataset_folder)[0].write_bytes(b"not a zip")
    map_files(dataset_folder)[1].unlink()
    with caplog.at_level("INFO", "ocr"):
        dataset = open_val(dataset_folder, preload_maps=True)
    assert "of 6 pages, 4 have stored maps that fit, 1 stale ones and 1 none" in caplog.text
    assert sources(dataset) == {"drawn": 1, "stored": 4, "stale": 1}


def test_compressed_maps_are_a_fraction_of_the_size_and_the_same(dataset_folder):
    write(open_val(dataset_folder))
    plain = {path.name: (path.stat().st_size, read_maps(path, ON_DISK)) for path in map_files(dataset_folder)}
    for path in map_files(dataset_folder):
        path.unlink()
    preprocess_maps(open_val(dataset_folder), show_progress=False, compress=True)
    for path in map_files(dataset_folder):
        size, (fingerprint, maps) = plain[path.name]
        assert path.stat().st_size < size / 5
        again = read_maps(path, ON_DISK)
        assert again[0] == fingerprint
        assert all(np.array_equal(again[1][name], maps[name]) for name in maps)


def test_stored_maps_are_left_alone_where_drawing_is_asked_for(dataset_folder):
    write(open_val(dataset_folder))
    assert sources(open_val(dataset_folder, use_stored_maps=False)) == {"drawn": 6, "stored": 0, "stale": 0}


def test_a_second_run_writes_nothing_and_a_lost_or_broken_file_is_written_again(dataset_folder):
    write(open_val(dataset_folder))
    before = {path: path.stat().st_mtime_ns for path in map_files(dataset_folder)}
    assert write(open_val(dataset_folder)).valid == 6
    assert before == {path: path.stat().st_mtime_ns for path in map_files(dataset_folder)}
    lost, broken, *_ = map_files(dataset_folder)
    lost.unlink()
    broken.write_bytes(broken.read_bytes()[:200])
    summary = write(open_val(dataset_folder))
    assert (summary.written, summary.valid) == (2, 4)


def move_first_word(data: Path) -> None:
    file = data / "jsons" / "val.json"
    annotation = json.loads(file.read_text())
    page = next(iter(annotation["images"].values()))
    next(iter(page["words"].values()))["points"][0][0] += 3
    file.write_text(json.dumps(annotation))


def test_maps_of_a_changed_polygon_are_refused_loudly_and_drawn_instead(dataset_folder, caplog):
    write(open_val(dataset_folder))
    move_first_word(dataset_folder)
    dataset = open_val(dataset_folder)
    assert sources(dataset) == {"drawn": 0, "stored": 5, "stale": 1}
    assert dataset.ledger.files("maps_stale") == [dataset.source.entries[0].filename]
    assert "preprocess_maps.py" in caplog.text
    fresh = Targets().draw(dataset.sample(0).polygons, 160, 160)
    assert np.array_equal(dataset[0]["thresh_map"][0], fresh["thresh_map"])
    assert write(dataset).written == 1
    assert sources(open_val(dataset_folder)) == {"drawn": 0, "stored": 6, "stale": 0}


@pytest.mark.parametrize("change", [{"size": 128}, {"targets": Targets(shrink_ratio=0.5)}], ids=["size", "targets"])
def test_maps_of_another_size_or_other_parameters_are_refused(dataset_folder, change):
    write(open_val(dataset_folder))
    assert sources(open_val(dataset_folder, **change)) == {"drawn": 0, "stored": 0, "stale": 6}


def test_a_file_that_is_no_map_is_refused_and_drawn(dataset_folder):
    write(open_val(dataset_folder))
    map_files(dataset_folder)[0].write_bytes(b"not a zip")
    np.savez(map_files(dataset_folder)[1], prob_map=np.zeros(3))
    assert sources(open_val(dataset_folder)) == {"drawn": 0, "stored": 4, "stale": 2}


def test_pickled_objects_in_a_map_file_are_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", fingerprint=np.array([{"an": "object"}], dtype=object))
    with rejects(MapError, value="dtype object, shape (1,)", path=tmp_path / "a.npz"):
        read_fingerprint(tmp_path / "a.npz")


def test_an_augmented_page_is_never_paired_with_unaugmented_maps(dataset_folder):
    write(open_val(dataset_folder))
    dataset = open_val(dataset_folder, RandomFlip(p=1.0))
    assert sources(dataset) == {"drawn": 6, "stored": 0, "stale": 0}
    flipped, plain = dataset[0]["prob_map"], open_val(dataset_folder)[0]["prob_map"]
    assert not torch.equal(flipped, plain)


def test_colour_changes_alone_still_use_stored_maps(dataset_folder):
    write(open_val(dataset_folder))
    assert sources(open_val(dataset_folder, ColourJitter(p=1.0)))["stored"] == 6


def test_preloading_maps_that_would_not_be_used_is_refused_with_the_fix(dataset_folder):
    write(open_val(dataset_folder))
    with rejects(ConfigError, setting="preload_maps", value=True):
        open_val(dataset_folder, RandomFlip(), preload_maps=True)


def test_without_a_letterbox_in_front_the_pixels_are_read_and_the_maps_still_fit(dataset_folder):
    albumentations = pytest.importorskip("albumentations")

    def open_resized() -> OCRDataset:
        transform = DBTransforms([albumentations.Resize(96, 160)])
        return OCRDataset(dataset_folder / "images/val", dataset_folder / "jsons/val.json", transform)

    assert write(open_resized()).written == 6
    assert sources(open_resized())["stored"] == 6


def test_two_images_with_one_stem_cannot_share_a_map_file(dataset_folder):
    images, file = dataset_folder / "images" / "val", dataset_folder / "jsons" / "val.json"
    annotation = json.loads(file.read_text())
    name = next(iter(annotation["images"]))
    twin = Path(name).with_suffix(".png").name
    annotation["images"][twin] = annotation["images"][name]
    (images / twin).write_bytes((images / name).read_bytes())
    file.write_text(json.dumps(annotation))
    with rejects(DataError, value=(name, twin)):
        write(open_val(dataset_folder))


def test_a_page_that_cannot_be_read_stops_the_run_or_is_listed(dataset_folder, capsys):
    victim = sorted((dataset_folder / "images" / "val").iterdir())[2]
    victim.write_bytes(b"")
    with rejects(DataError, value=b"", path=victim):
        write(open_val(dataset_folder))
    summary = write(open_val(dataset_folder, on_bad_sample="skip"))
    assert list(summary.failed) == [victim.name]
    assert summary.written + summary.valid == 5
    from rich.console import Console

    print_summaries([summary], Console(width=200))
    assert victim.name in capsys.readouterr().out


def test_a_failed_write_leaves_neither_file_nor_trace(tmp_path):
    class Unwritable:
        def __reduce__(self):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        write_maps(tmp_path / "a.npz", {"prob_map": np.full((2, 2), Unwritable())}, "f")
    assert list(tmp_path.iterdir()) == []


def run(data: Path, *overrides: str):
    return run_script("scripts/preprocess_maps.py", data, f"dataset_base_path={data}", *overrides)


def test_the_script_writes_both_splits_and_leaves_nothing_else_behind(dataset_folder):
    before = {path.name for path in dataset_folder.iterdir()}
    done = run(dataset_folder, "transforms.size=96")
    assert done.status == 0, done.err
    assert len(list((dataset_folder / "images" / "train_maps").glob("*.npz"))) == 8
    assert len(map_files(dataset_folder)) == 6
    assert {path.name for path in dataset_folder.iterdir()} == before
    assert "move polygons" in " ".join(done.out.split())


@pytest.mark.slow
def test_a_killed_run_leaves_whole_files_and_the_next_one_goes_on(dataset_folder):
    command = [sys.executable, str(ROOT / "scripts/preprocess_maps.py"), f"dataset_base_path={dataset_folder}"]
    command += ["splits=[val]", "transforms.size=1600", "transforms.letterbox.shape=square", "workers=1"]
    process = subprocess.Popen(command, cwd=dataset_folder)
    deadline = time.monotonic() + 600
    while not map_files(dataset_folder) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for path in map_files(dataset_folder):
        read_maps(path, ON_DISK)
    summary = write(open_val(dataset_folder, size=1600))
    assert summary.valid + summary.written == 6
    assert summary.valid >= 1
    assert sources(open_val(dataset_folder, size=1600))["stored"] == 6


def test_what_a_killed_run_left_half_written_is_removed_by_the_next(dataset_folder):
    write(open_val(dataset_folder))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = dataset_folder / "images" / "val_maps" / f".0001.npz.{dead.pid}-1.partial"
    mine = left.with_name(f".0002.npz.{os.getpid()}-1.partial")
    left.touch()
    mine.touch()
    write(open_val(dataset_folder))
    assert not left.exists()
    assert mine.exists()


def test_words_of_a_message_that_look_like_markup_are_shown_as_they_are(dataset_folder):
    file = dataset_folder / "jsons" / "train.json"
    annotation = json.loads(file.read_text())
    next(iter(next(iter(annotation["images"].values()))["words"].values()))["points"] = [
        ["[/red]", 2],
        [30, 2],
        [30, 9],
    ]
    file.write_text(json.dumps(annotation))
    assert "[/red]" in run(dataset_folder, "splits=[train]").err
    skipped = run(dataset_folder, "splits=[train]", "on_bad_sample=skip", "transforms.size=96")
    assert "[/red]" in skipped.out
    assert skipped.status == 1


@pytest.mark.parametrize("override", ["splits=val", "splits=[]", "workers=-1", "executor=rya", "dataset_base_path=DIR"])
def test_a_setting_that_cannot_work_is_named_in_one_line(synthetic, tmp_path, override):
    done = run_script("scripts/preprocess_maps.py", tmp_path, f"dataset_base_path={synthetic}", override)
    assert done.status == 2
    assert override.partition("=")[2] in done.err
    assert done.err.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_named_in_one_line(dataset_folder):
    (dataset_folder / "images" / "val_maps").write_text("a file where the folder should be")
    done = run(dataset_folder, "splits=[val]", "transforms.size=96")
    assert done.status == 2
    *_, told = done.err.splitlines()  # After the bar.
    assert told.startswith("error: ")
    assert "val_maps" in told


def test_the_folder_of_maps_is_named_after_that_of_the_images():
    assert maps_folder("a/images/train") == Path("a/images/train_maps")
