"""loader: the same batches from any engine, cache, number of workers and ranks, and after any resume."""

import gc
import logging
import multiprocessing
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sameness import assert_same
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.errors import ConfigError, ImageError, StageError
from ocr.loader import Loader, loader, worker_pool
from ocr.loader.batch_maker import choose_maker
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.suffix import ColourJitter, JpegNoise, RandomFlip, RandomRotate, TextAwareCrop

SIZE = 96


def transforms(random: bool, normalize: str = "host") -> DBTransforms:
    steps = [TextAwareCrop(), RandomFlip(), RandomRotate(), ColourJitter(), JpegNoise()] if random else []
    return DBTransforms([Letterbox(SIZE), *steps, Normalize()], normalize=normalize)


def open_split(data: Path, split: str, transform: DBTransforms | None = None, **settings: Any) -> OCRDataset:
    chosen = transform or transforms(split == "train")
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", chosen, **settings)


def plain(dataset: OCRDataset, batch_size: int = 3) -> list[Any]:
    """What torch's own loader gives, in the main process."""
    return list(DataLoader(dataset, batch_size, collate_fn=DBCollateFN()))


def own_threads() -> int:
    """Worker pools whose threads have not ended; the system may take a moment to bury a thread."""
    return sum(pool.is_running() for pool in worker_pool._pools)


def system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize("normalize", ["host", "device"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_every_engine_cache_and_number_of_workers_gives_the_same_batches(synthetic, tmp_path, split, normalize):
    transform = transforms(split == "train", normalize)
    expected = plain(open_split(synthetic, split, transform, seed=4))
    for cache in ("off", "auto", "prefix"):
        dataset = open_split(synthetic, split, transform, seed=4, cache=cache, cache_folder=tmp_path)
        for _ in ("cold", "warm"):
            for workers in (0, 1, 3):
                assert_same(list(Loader(dataset, 3, workers)), expected)
        assert_same(list(Loader(dataset, 3, 2, "processes", multiprocessing_context="fork")), expected)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_worker_processes_of_any_kind_share_the_cache(synthetic, tmp_path, method):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    expected = plain(open_split(synthetic, "val"))
    for hits in (0, len(dataset)):
        assert_same(list(Loader(dataset, 3, 2, "processes", multiprocessing_context=method)), expected)
        assert dataset.ledger.totals()["cache_hits"] == hits


@pytest.mark.parametrize("cache", ["off", "auto"])
def test_two_ranks_share_all_samples_without_loss_or_repetition(synthetic, tmp_path, cache):
    for split, count in (("val", 6), ("train", 8)):
        alone = dict(named_images(open_split(synthetic, split)))
        for batch_size in (1, 2, 4, 5):
            seen: dict[str, Any] = {}
            for rank in range(2):
                dataset = open_split(synthetic, split, cache=cache, cache_folder=tmp_path)
                for batch in Loader(dataset, batch_size, 2, shuffle=True, seed=1, rank=rank, world_size=2):
                    for name, image in zip(batch["image_filename"], batch["images"], strict=True):
                        assert name not in seen
                        seen[name] = image.clone()
            assert len(seen) == count
            assert_same(seen, {name: alone[name] for name in seen})


def named_images(dataset: OCRDataset) -> list[tuple[str, torch.Tensor]]:
    items = [dataset[index] for index in range(len(dataset))]
    return [(item["image_filename"], item["image"]) for item in items if item is not None]


@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (3, 1)], ids=str)
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_resumed_loader_goes_on_exactly_also_with_another_number_of_workers(synthetic, workers, engine):
    before, after = workers
    expected = list(Loader(open_split(synthetic, "train", seed=2), 3, 0, shuffle=True, seed=7))
    loader = Loader(open_split(synthetic, "train", seed=2), 3, before, shuffle=True, seed=7)
    first = next(iter(loader))
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 1)
    resumed = Loader(open_split(synthetic, "train", seed=2), 3, after, engine, shuffle=True, seed=7)
    resumed.load_state_dict(state)
    assert_same([first, *resumed], expected)
    assert resumed.state_dict() == state | {"epoch": 1, "batches": 0}


def test_every_pass_is_another_epoch_and_set_epoch_goes_back(synthetic):
    loader = Loader(open_split(synthetic, "train"), 4, 2, shuffle=True)
    first, second = list(loader), list(loader)
    assert [batch["image_filename"] for batch in first] != [batch["image_filename"] for batch in second]
    loader.set_epoch(0)
    assert_same(list(loader), first)


def test_a_batch_that_is_still_held_never_changes_and_others_are_used_again(synthetic):
    loader = Loader(open_split(synthetic, "train"), 2, 2, shuffle=True)
    held = list(loader)
    copies = [{name: value.clone() for name, value in batch.items() if torch.is_tensor(value)} for batch in held]
    views = [batch["images"][0].numpy() for batch in held]
    for _ in range(3):
        for _ in loader:
            pass
    for batch, copy, view in zip(held, copies, views, strict=True):
        assert all(torch.equal(batch[name], value) for name, value in copy.items())
        assert np.array_equal(view, copy["images"][0].numpy())
    del held, batch, views, view
    addresses = {batch["images"].data_ptr() for _ in range(5) for batch in loader}
    assert len(addresses) <= loader.batches_ahead + 2


def test_writing_into_a_batch_in_place_does_not_reach_the_cache_or_the_next_epoch(synthetic, tmp_path):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    loader = Loader(dataset, 3, 2)
    for _ in range(3):
        for batch in loader:
            for value in batch.values():
                if torch.is_tensor(value):
                    value.zero_()
            batch["polygons"][0][0][:] = -1
    assert_same(list(loader), plain(open_split(synthetic, "val")))


@dataclass(frozen=True)
class Fails(FixedStage):
    """Raises at one page."""

    name: str

    def __call__(self, sample: Sample) -> Sample:
        if sample.filename == self.name:
            raise ZeroDivisionError("no way")
        return sample


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_an_error_in_a_worker_reaches_the_user_with_the_name_of_the_page(synthetic, engine):
    name = open_split(synthetic, "val").source.entries[4].filename
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Fails(name)]))
    passed = iter(Loader(dataset, 2, 2, engine))
    next(passed), next(passed)
    with pytest.raises(StageError, match=rf"{name} \(sample 4\).*ZeroDivisionError: no way"):
        next(passed)
    assert not own_threads()
    assert not multiprocessing.active_children()


def test_a_broken_page_stops_the_loader_or_is_left_out_of_its_batch(dataset_folder):
    broken = sorted((dataset_folder / "images" / "val").iterdir())[1]
    broken.write_bytes(b"nothing")
    for workers in (0, 2):
        with pytest.raises(ImageError, match=broken.name):
            list(Loader(open_split(dataset_folder, "val"), 3, workers))
        dataset = open_split(dataset_folder, "val", on_bad_sample="skip")
        batches = list(Loader(dataset, 3, workers))
        assert [len(batch["images"]) for batch in batches] == [2, 3]
        assert_same(batches, plain(dataset))
        assert list(Loader(dataset, 1, workers))[1] is None


def test_pages_of_two_sizes_in_a_batch_are_refused_with_the_cure(synthetic):
    with pytest.raises(ConfigError, match=r"\.jpg is \d+x\d+ in a batch of \d+x\d+.*Letterbox"):
        list(Loader(open_split(synthetic, "val", DBTransforms([])), 3, 2))
    single = list(Loader(open_split(synthetic, "val", DBTransforms([])), 1, 2))
    assert len({batch["images"].shape for batch in single}) > 1


def test_an_abandoned_or_interrupted_pass_leaves_no_thread_and_no_process(synthetic):
    dataset = open_split(synthetic, "train")
    list(Loader(dataset, 1, 3))
    before = system_threads()
    for _ in Loader(dataset, 1, 3):
        assert own_threads()
        break
    gc.collect()
    assert not own_threads()
    deadline = time.monotonic() + 600
    while system_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert system_threads() <= before

    def interrupted() -> None:
        for _ in Loader(dataset, 1, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not own_threads()
    for _ in Loader(dataset, 1, 2, "processes", multiprocessing_context="fork"):
        break
    gc.collect()
    assert not multiprocessing.active_children()


def test_a_program_ends_with_a_pass_unfinished(synthetic):
    code = f"""
import sys
from pathlib import Path
sys.path += {sys.path!r}
from test_loader import Loader, open_split
batches = iter(Loader(open_split(Path({str(synthetic)!r}), "train"), 1, 2, batches_ahead=4))
next(batches)
print("left")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


@dataclass(frozen=True)
class Waits(FixedStage):
    """Hangs until it is let go."""

    gate: Any

    def __call__(self, sample: Sample) -> Sample:
        self.gate.wait()
        return sample


def test_a_stuck_worker_is_reported_with_the_page_it_is_at(synthetic, monkeypatch, caplog):
    monkeypatch.setattr(loader, "REPORT_SECONDS", 0.1)
    gate = threading.Event()
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Waits(gate)]))
    threading.Timer(0.5, gate.set).start()
    with caplog.at_level(logging.WARNING):
        assert len(list(Loader(dataset, 6, 1))) == 1
    assert "waiting for a batch" in caplog.text
    assert f"at sample 0 {dataset.source.entries[0].filename}" in caplog.text


def test_a_worker_that_does_not_stop_is_named_and_not_waited_for(synthetic, monkeypatch, caplog):
    monkeypatch.setattr(worker_pool, "JOIN_SECONDS", 0.1)
    gate = threading.Event()
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Waits(gate)]))
    at_work = worker_pool.WorkerPool(iter([[0]]), choose_maker(dataset, None, None), 1, 1, 10.0)
    while not at_work._busy:
        pass
    at_work.close()
    assert f"does not stop: it is at sample 0 {dataset.source.entries[0].filename}" in caplog.text
    gate.set()


@pytest.mark.parametrize("split", ["train", "val"])
def test_batches_arrive_normalised_on_the_device(synthetic, tmp_path, split):
    on_host = list(Loader(open_split(synthetic, split), 3, 0))
    settings = {"cache": "auto", "cache_folder": tmp_path}
    for engine in ("threads", "processes"):
        dataset = open_split(synthetic, split, transforms(split == "train", "device"), **settings)
        assert_same(list(Loader(dataset, 3, 2, engine, device="cpu")), on_host)


def test_a_collate_function_with_other_maps_gets_them(synthetic):
    dataset = open_split(synthetic, "val")
    other = DBCollateFN(shrink_ratio=0.6)
    expected = list(DataLoader(dataset, 3, collate_fn=other))
    assert_same(list(Loader(dataset, 3, 2, collate_fn=other)), expected)
    assert not torch.equal(expected[0]["prob_maps"], plain(dataset)[0]["prob_maps"])


def test_any_dataset_of_items_can_be_loaded(synthetic):
    dataset = open_split(synthetic, "val")
    items = [dataset[index] for index in range(len(dataset))]
    for engine in ("threads", "processes"):
        assert_same(list(Loader(items, 3, 2, engine)), plain(dataset))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"engine": "fibres"}, "data.engine='fibres': .*processes, threads"),
        ({"num_workers": -1}, "data.num_workers=-1 must be an integer >= 0"),
        ({"batches_ahead": 0}, "data.batches_ahead=0 must be an integer >= 1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"pin_memory": True}, "pin_memory: .*data.engine=processes"),
        ({"prefetch_factor": 0}, "data.batches_ahead=0 must be an integer >= 1"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_settings_that_cannot_work_are_refused(synthetic, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Loader(open_split(synthetic, "val"), **settings)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_the_names_of_torch_work_with_every_engine(synthetic, engine, workers):
    dataset = open_split(synthetic, "val")
    settings = {"prefetch_factor": 4, "persistent_workers": True}
    made = Loader(dataset, 3, workers, engine, **settings)
    assert made.batches_ahead == 4
    assert_same([*made, *made], 2 * plain(dataset))


def test_printing_a_loader_shows_how_batches_are_made(synthetic):
    shown = repr(Loader(open_split(synthetic, "val"), 4, 1))
    assert shown.startswith("Loader(2 batches, batch_size=4, num_workers=1, engine='threads') of OCRDataset(6 pages")


def test_samples_of_a_read_only_page_can_be_augmented(synthetic, tmp_path):
    dataset = open_split(synthetic, "train", cache="prefix", cache_folder=tmp_path)
    dataset.fill_cache()
    page = dataset.cache.sample(0)
    assert not page.image.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        page.image[:] = 0
    assert replace(page, cached="").image is page.image
