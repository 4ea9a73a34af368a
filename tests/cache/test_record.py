"""record: a sample comes back as it went in, whatever the page and the option, as an item, a copy or a view."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rich
import torch
from cache_worker import (
    SIDE,
    fixed,
    items,
    open_pages,
    outcomes,
    read_annotation,
    read_right,
    repaint,
    worker,
    write_annotation,
    write_pages,
)
from PIL import Image
from rejection import rejects
from sameness import assert_same

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.errors import ConfigError, ImageError
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip

SETTINGS: dict[str, dict[str, Any]] = {
    "maps": {"preload_maps": True},
    "images": {"preload_images": True},
    "maps and images": {"preload_images": True, "preload_maps": True},
    "floats": {"prenormalize_images": True},
    "tensors": {"cache_transformed_tensors": True},
    **{str(way): {"cache": way} for way in ("prefix", "batch", "auto", "off", False)},
}
TRANSFORMS = {
    "fixed": fixed(),
    "device": fixed(normalize="device"),
    "no letterbox": DBTransforms([Normalize()]),
    "colour": DBTransforms([Letterbox(SIDE), ColourJitter(), Normalize()]),
    "colour first": DBTransforms([ColourJitter(), Letterbox(SIDE), Normalize()]),
    "random": DBTransforms([Letterbox(SIDE), RandomFlip(), ColourJitter(), Normalize()]),
}
FREEZING = ("floats", "tensors", "batch")
REFUSED = {
    "colour": FREEZING,
    "colour first": FREEZING,
    "random": (*FREEZING, "maps", "maps and images"),
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "pages")


@pytest.mark.parametrize(
    ("transform", "option"),
    [
        ("fixed", "maps and images"),
        ("fixed", "floats"),
        ("fixed", "batch"),
        ("fixed", "auto"),
        ("device", "maps"),
        ("device", "images"),
        ("device", "tensors"),
        ("device", "auto"),
        ("no letterbox", "maps and images"),
        ("no letterbox", "tensors"),
        ("no letterbox", "prefix"),
        ("no letterbox", "off"),
        ("colour", "maps"),
        ("colour", "prefix"),
        ("colour", "auto"),
        ("colour", "False"),
        ("colour first", "maps and images"),
        ("colour first", "auto"),
        ("random", "images"),
        ("random", "prefix"),
        ("random", "auto"),
        ("random", "off"),
    ],
)
def test_every_option_gives_the_samples_of_none(pages, tmp_path, transform, option):
    chosen = {"transform": TRANSFORMS[transform], "seed": 3}
    plain = open_pages(pages, **chosen)
    for _ in ("cold", "warm"):
        dataset = open_pages(pages, cache_folder=tmp_path / "cache", **chosen, **SETTINGS[option])
        assert (dataset.cache is None) == (option in ("off", "False"))
        ahead = option in ("maps", "images", "maps and images", "floats")
        assert not ahead or (dataset.cache is not None and dataset.cache.covered == 1)
        for epoch in range(2):
            for each in (plain, dataset):
                each.set_epoch(epoch)
            expected, found = items(plain), items(dataset)
            assert_same(found, expected)
            assert all(a["image"].stride() == b["image"].stride() for a, b in zip(found, expected, strict=True))
            loader = Loader(dataset, 1)
            loader.set_epoch(epoch)
            assert_same(list(loader), [DBCollateFN()([item]) for item in expected])


def test_where_only_colours_are_random_maps_are_cached_too(pages, tmp_path):
    dataset = open_pages(pages, tmp_path, TRANSFORMS["colour"])
    items(dataset)
    assert dataset.ledger.totals()["maps_drawn"] == 8
    items(dataset)
    assert dataset.ledger.totals()["maps_drawn"] == 0


@pytest.mark.parametrize(("transform", "option"), [(name, option) for name in REFUSED for option in REFUSED[name]])
def test_what_would_freeze_or_contradict_is_refused(pages, tmp_path, transform, option):
    setting, value = {
        "floats": ("prenormalize_images", True),
        "tensors": ("cache_transformed_tensors", True),
        "batch": ("data.cache", "batch"),
    }.get(option, ("preload_maps", True))
    with rejects(ConfigError, setting=setting, value=value):
        open_pages(pages, transform=TRANSFORMS[transform], cache_folder=tmp_path, **SETTINGS[option])


def test_pages_as_floats_are_normalised_on_the_host_whatever_the_transforms_say(pages, tmp_path, caplog):
    dataset = open_pages(pages, tmp_path, TRANSFORMS["device"], prenormalize_images=True)
    assert caplog.text.count("prenormalize_images=true") == 2
    assert_same(items(dataset), items(open_pages(pages, transform=TRANSFORMS["fixed"])))


def test_pages_as_floats_come_with_a_warning_of_their_size(pages, tmp_path, caplog):
    open_pages(pages, cache_folder=tmp_path / "cache", prenormalize_images=True)
    assert "prenormalize_images=true" in caplog.text


def preload_at_a_terminal(folder: str, kept_in: str) -> str:
    screen, terminal = os.openpty()
    os.dup2(terminal, 1)
    os.environ["TERM"] = "xterm"
    rich.reconfigure()  # Its console of this process has found no terminal before.
    dataset = open_pages(folder, cache_folder=kept_in, preload_images=True)
    assert dataset.cache is not None
    assert dataset.cache.covered == 1
    # Closed, the terminal ends with an error instead of more text.
    sys.stdout.close()
    os.close(terminal)
    os.close(1)
    shown = b""
    with suppress(OSError):
        while more := os.read(screen, 10_000):
            shown += more
    return shown.decode()


def test_preloading_shows_how_far_it_is(pages, tmp_path):
    shown = worker().call(preload_at_a_terminal, folder=pages, kept_in=tmp_path / "cache")["result"]
    assert "%" in shown


def mapping_of(tensor: torch.Tensor) -> tuple[str, str]:
    """File and rights of the memory that a tensor lies in, from its first byte to its last."""
    first = tensor.data_ptr()
    last = first + tensor.numel() * tensor.element_size() - 1
    found: list[tuple[str, str]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= first < end:
            fields = line.split(maxsplit=5)
            found.append((fields[5] if len(fields) > 5 else "", fields[1]))
            if last < end:
                break
            first = end  # The system may keep neighbouring memory in two pieces; nothing may be between them.
    else:
        raise AssertionError("not all of it is anywhere")
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the maps of a process are files of Linux")
@pytest.mark.parametrize("transform", ["fixed", "device"])
def test_a_batch_of_neighbours_is_a_private_view_of_the_file(pages, tmp_path, transform):
    dataset = open_pages(pages, tmp_path / "cache", TRANSFORMS[transform])
    items(dataset)
    view = str(next((tmp_path / "cache").glob("*/data"))), "rw-p"
    assert mapping_of(dataset[0]["image"]) == view
    for loader in (Loader(dataset, 2, 0), Loader(dataset, 2, 2), Loader(dataset, 2, 2, shuffle=True)):
        for batch in loader:
            tensors = [value for value in batch.values() if isinstance(value, torch.Tensor)]
            assert len(tensors) == 5
            first, second = batch["image_filename"]
            # The last page has long metadata, and so is elsewhere.
            is_view = int(first[:2]) + 1 == int(second[:2]) < 7
            for tensor in tensors:
                assert (tensor.permute(0, 2, 3, 1) if tensor.dtype == torch.uint8 else tensor).is_contiguous()
                assert (mapping_of(tensor) == view) == is_view


def spoil(batch: Any) -> None:
    for value in batch.values() if isinstance(batch, dict) else batch:
        if isinstance(value, torch.Tensor):
            value.zero_()
        elif isinstance(value, np.ndarray):
            value[...] = 1
        elif isinstance(value, dict | list):
            spoil(value)


@pytest.mark.parametrize("transform", ["fixed", "device", "no letterbox"])
@pytest.mark.parametrize("cache", ["auto", "prefix"])
def test_what_is_written_into_a_batch_reaches_neither_the_cache_nor_the_next_batch(pages, tmp_path, transform, cache):
    chosen = TRANSFORMS[transform]
    size = 1 if transform == "no letterbox" else 2
    expected = list(Loader(open_pages(pages, transform=chosen), size))
    dataset = open_pages(pages, tmp_path / "cache", chosen, cache=cache)
    items(dataset)
    file = next((tmp_path / "cache").glob("*/data"))
    before = file.read_bytes()
    for workers in (0, 2, 2):
        for batch, right in zip(Loader(dataset, size, workers), expected, strict=True):
            assert_same(batch, right)
            spoil(batch)
    for item in items(dataset):
        spoil(item)
    assert file.read_bytes() == before
    assert_same(list(Loader(dataset, size)), expected)
    assert read_right(pages, tmp_path / "cache", transform=chosen, cache=cache) == (8, 0, 0)


@pytest.mark.parametrize("transform", ["fixed", "device"])
def test_a_batch_with_a_replaced_sample_is_right_and_the_others_stay_views(pages, tmp_path, transform):
    chosen = {"transform": TRANSFORMS[transform]}
    read_right(pages, tmp_path / "cache", **chosen)
    repaint(pages / "images" / "01.bmp")
    for outcome in ((7, 0, 1), (8, 0, 0)):
        dataset = open_pages(pages, tmp_path / "cache", **chosen)
        batches = list(Loader(dataset, 2))
        assert outcomes(dataset) == outcome
        assert_same(batches, list(Loader(open_pages(pages, **chosen), 2)))
        assert [mapping_of(batch["images"])[0].endswith("/data") for batch in batches] == [False, True, True, False]


def write_strange_pages(folder: Path) -> Path:
    """No words, half a surrogate pair, a turned page, words beyond the page, too many words, a file cut short."""
    annotation = read_annotation(write_pages(folder, 6))
    annotation["00.jpg"]["words"] = {}
    annotation["01.bmp"]["words"]["0001"]["transcription"] = "half \ud83d of \x00 it ё"
    annotation["02.png"]["words"]["0001"]["points"] = [[500, 500], [520, 500], [520, 520], [500, 520]]
    annotation["04.bmp"]["words"] |= {
        f"many {number}": {"points": [[1, 1], [20 + number / 100, 1], [20, 20]]} for number in range(3000)
    }
    write_annotation(folder, annotation)
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(folder / "images" / "03.jpg") as page:
        page.save(folder / "images" / "03.jpg", exif=exif)
    whole = (folder / "images" / "00.jpg").read_bytes()
    (folder / "images" / "00.jpg").write_bytes(whole[:-2])
    return folder


@pytest.mark.parametrize("transform", ["fixed", "device", "no letterbox", "random"])
def test_strange_pages_come_back_as_they_are(tmp_path, transform):
    folder, chosen = write_strange_pages(tmp_path / "pages"), {"transform": TRANSFORMS[transform]}
    totals = []
    for settings in ({}, {"kept_in": tmp_path / "cache"}, {"kept_in": tmp_path / "cache"}):
        dataset = open_pages(folder, **settings, **chosen)
        assert_same(items(dataset), items(open_pages(folder, **chosen)))
        totals.append({name: dataset.ledger.totals()[name] for name in ("seen", "recovered", "dropped_polygons")})
    assert totals[0] == totals[1] == totals[2] == {"seen": 6, "recovered": 1, "dropped_polygons": 1}


def test_unannotated_pages_and_names_that_are_no_text_come_back_as_they_are(pages, tmp_path):
    os.rename(os.fsencode(pages / "images" / "02.png"), os.fsencode(pages / "images") + b"/caf\xe9.png")
    plain = OCRDataset(pages / "images", None, fixed())
    for outcome in ((0, 8, 0), (8, 0, 0)):
        dataset = OCRDataset(pages / "images", None, fixed(), cache="auto", cache_folder=tmp_path / "cache")
        assert_same(items(dataset), items(plain))
        assert outcomes(dataset) == outcome


def test_a_broken_page_is_skipped_with_a_cache_as_without_and_cached_when_it_is_whole(pages, tmp_path):
    whole = (pages / "images" / "02.png").read_bytes()
    (pages / "images" / "02.png").write_bytes(whole[:100])
    expected = items(open_pages(pages, on_bad_sample="skip"))
    assert expected[2] is None
    for outcome in ((0, 7, 0), (7, 0, 0)):
        assert read_right(pages, tmp_path / "cache", expected, on_bad_sample="skip") == outcome
    dataset = open_pages(pages, tmp_path / "cache", on_bad_sample="skip")
    dataset.fill_cache()
    assert_same(list(Loader(dataset, 3)), [DBCollateFN()(expected[first : first + 3]) for first in (0, 3, 6)])
    assert dataset.ledger.files("skipped") == ["02.png"]
    with rejects(ImageError, path=pages / "images" / "02.png"):
        open_pages(pages, tmp_path / "cache").fill_cache()
    (pages / "images" / "02.png").write_bytes(whole)
    assert read_right(pages, tmp_path / "cache") == (7, 1, 0)


@pytest.mark.parametrize("damage", [b"", b"no image", None], ids=["emptied", "garbled", "gone"])
def test_a_page_that_breaks_after_it_was_cached_fails_as_without_a_cache(pages, tmp_path, damage):
    read_right(pages, tmp_path / "cache")
    broken = pages / "images" / "02.png"
    if damage is None:
        broken.unlink()
    else:
        broken.write_bytes(damage)
    errors = []
    for kept_in in (None, tmp_path / "cache"):
        with pytest.raises(ImageError) as raised:
            items(open_pages(pages, kept_in))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    assert read_right(pages, tmp_path / "cache", on_bad_sample="skip") == (7, 0, 0)


def read_without_rights(folder: str) -> list[str]:
    os.chdir(folder)
    if os.geteuid() == 0:
        os.seteuid(65534)
    assert read_right("pages", "cache", on_bad_sample="skip") == (7, 0, 0)
    errors = []
    for kept_in in (None, "cache"):
        dataset = open_pages("pages", kept_in)
        assert dataset[0] is not None
        try:
            dataset[2]
        except ImageError as error:
            errors.append(str(error))
    return errors


def test_a_page_that_may_not_be_read_fails_when_it_is_asked_for_as_without_a_cache(pages, tmp_path):
    read_right(pages, tmp_path / "cache")
    # Caches are closed to others; this one was opened to them by its owner.
    for path in (tmp_path, tmp_path / "cache", *(tmp_path / "cache").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (pages / "images" / "02.png").chmod(0)
    first, second = worker().call(read_without_rights, folder=tmp_path)["result"]
    assert "02.png" in first
    assert first == second
