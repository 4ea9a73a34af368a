"""cache: a hit is what the stages would make now; an edited page is another one, and a moved page is the same."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cached_pages import (
    ALL,
    NONE,
    PAGES,
    fixed,
    in_child,
    items,
    open_pages,
    outcomes,
    read_annotation,
    read_right,
    repaint,
    write_annotation,
    write_pages,
)
from PIL import Image
from rejection import rejects
from sameness import assert_same

from ocr.cache.cache import RECHECKED, Cache
from ocr.cache.store import close_store
from ocr.datasets import DBTransforms
from ocr.errors import ConfigError, ImageError
from ocr.pipeline import page_index
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.page_index import UNKNOWN, Signature, file_signature
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.targets import Targets

HIDDEN = "HIDDEN_GAIN_OF_A_STAGE"
ONE_EDITED = (PAGES - 1, 1, 0)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "pages")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache"
    close_store(tmp_path / "cache")


@pytest.fixture
def full(pages: Path, root: Path) -> Path:
    assert read_right(pages, root) == NONE
    assert read_right(pages, root) == ALL
    return root


_watched: list[tuple[str, list[str]]] = []


@contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """Names of the files of a folder that are opened."""
    if not hasattr(opened, "hook"):
        opened.hook = _note  # type: ignore[attr-defined]
        sys.addaudithook(_note)  # It cannot be removed.
    _watched.append((str(folder), names := []))
    yield names
    _watched.pop()


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and str(arguments[0]).startswith(_watched[-1][0]):
        _watched[-1][1].append(os.path.basename(arguments[0]))


# -- what makes another page, and what does not


def encode_again(pages: Path) -> None:
    with Image.open(pages / "images" / "00.jpg") as page:
        page.save(pages / "images" / "00.jpg", quality=30)


def paint_over(pages: Path) -> None:
    repaint(pages / "images" / "01.bmp")


def rename_a_page(pages: Path) -> None:
    annotation = read_annotation(pages)
    annotation["another.png"] = annotation.pop("02.png")
    write_annotation(pages, annotation)
    (pages / "images" / "02.png").rename(pages / "images" / "another.png")


def change_a_word(**change: Any) -> Callable[[Path], None]:
    def edit(pages: Path) -> None:
        annotation = read_annotation(pages)
        annotation["03.jpg"]["words"]["0001"] |= change
        write_annotation(pages, annotation)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        encode_again,
        paint_over,
        rename_a_page,
        change_a_word(points=[[2, 2], [30, 2], [30, 30.25], [2, 30]]),
        change_a_word(transcription="another"),
        change_a_word(transcription=None),
        change_a_word(illegibility=True),
    ],
    ids=["encoded again", "as large and old as it was", "renamed", "polygon", "text", "no text", "ignored"],
)
def test_an_edit_of_one_page_costs_that_page_only(pages, full, edit):
    edit(pages)
    assert read_right(pages, full) == ONE_EDITED
    assert read_right(pages, full) == ALL


def touch(pages: Path) -> Path:
    for path in pages.rglob("*.*"):
        os.utime(path, (1, 1))
    return pages


def move(pages: Path) -> Path:
    return pages.rename(pages.with_name("moved"))


def copy(pages: Path) -> Path:
    return Path(shutil.copytree(pages, pages.with_name("copy"), copy_function=shutil.copyfile))


def indent(pages: Path) -> Path:
    text = json.dumps(json.loads((pages / "pages.json").read_text()), indent=4)
    (pages / "pages.json").write_text(text)
    return pages


@pytest.mark.parametrize("change", [touch, move, copy, indent])
def test_what_changes_no_page_costs_none(pages, full, change):
    assert read_right(change(pages), full) == ALL


def test_datasets_share_the_pages_that_both_have(pages, full, tmp_path):
    part = copy(pages)
    write_annotation(part, {name: words for name, words in read_annotation(part).items() if name > "02"})
    assert read_right(part, full) == (PAGES - 2, 0, 0)
    shutil.copy(pages / "images" / "02.png", pages / "images" / "added.png")
    write_annotation(pages, read_annotation(pages) | {"added.png": {"words": {}}})
    assert read_right(pages, full) == (PAGES, 1, 0)
    assert read_right(write_pages(tmp_path / "other", seed=1), full) == NONE


def test_a_page_that_is_edited_back_and_forth_is_kept_twice(pages, full):
    for expected in (ONE_EDITED, ALL, ALL):
        paint_over(pages)
        assert read_right(pages, full) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"transform": fixed(normalize="device")}, ALL),
        ({"transform": DBTransforms([Letterbox(64), Normalize(mean=(0.5, 0.5, 0.5))])}, ALL),
        ({"targets": Targets(shrink_ratio=0.5)}, ALL),
        ({"transform": fixed(size=72)}, NONE),
        ({"transform": DBTransforms([Letterbox(64, interpolation="area"), Normalize()])}, NONE),
        ({"image_loading_config": {"scaled": "off"}}, NONE),
    ],
    ids=str,
)
def test_pages_are_of_the_stages_before_the_cut_and_nothing_after_it(pages, full, settings, expected):
    assert read_right(pages, full, **settings) == expected
    assert read_right(pages, full) == ALL


STAGE = """
from dataclasses import dataclass, replace
from ocr.pipeline.stage import FixedStage
from edited.amount import AMOUNT

@dataclass(frozen=True)
class Darken(FixedStage):
    def __call__(self, sample):
        return replace(sample, image=sample.image // AMOUNT)
"""


def read_with_edited_stage(folder: str, root: str, packages: str) -> tuple[int, int, int]:
    sys.path.insert(0, packages)
    sys.dont_write_bytecode = True  # Within a second, Python does not notice an edit that keeps the length.
    return read_right(folder, root, transform=fixed(import_module("edited.stage").Darken()))


def test_one_edited_line_of_a_stage_or_of_what_it_imports_costs_all_pages(pages, root, tmp_path):
    package = tmp_path / "packages" / "edited"
    package.mkdir(parents=True)
    for stage, amount, expected in (
        (STAGE, 2, NONE),
        (STAGE, 2, ALL),
        (STAGE + "# A remark.\n", 2, ALL),
        (STAGE.replace("// AMOUNT", "// AMOUNT + 1"), 2, NONE),
        (STAGE, 3, NONE),
        (STAGE, 2, ALL),
    ):
        (package / "stage.py").write_text(stage)
        (package / "amount.py").write_text(f"AMOUNT = {amount}\n")
        answer = in_child(read_with_edited_stage, str(pages), str(root), str(package.parent))
        assert tuple(answer["result"]) == expected


@dataclass(frozen=True)
class Brighten(FixedStage):
    """Depends on something that its key cannot know."""

    def __call__(self, sample: Sample) -> Sample:
        return replace(sample, image=sample.image + int(os.environ.get(HIDDEN, "0")))


def test_a_stage_that_depends_on_something_else_is_found_and_its_pages_are_made_again(pages, root, monkeypatch, caplog):
    transform = fixed(Brighten())
    read_right(pages, root)
    read_right(pages, root, transform=transform)
    monkeypatch.setenv(HIDDEN, "1")
    assert not caplog.records
    assert read_right(pages, root, transform=transform) == (0, PAGES - 1, 1)
    assert len(caplog.records) == 1
    assert read_right(pages, root, transform=transform) == ALL
    assert read_right(pages, root) == ALL
    assert len(caplog.records) == 1


# -- the content of files


def test_a_file_is_read_once_and_known_by_its_signature(pages, root, monkeypatch):
    monkeypatch.setattr(page_index, "JUST_NOW_NS", -(10**12))  # The pages were written just now.
    read_right(pages, root)
    close_store(root)
    with opened(pages / "images") as names:
        dataset = open_pages(pages, root)
        items(dataset)
    assert outcomes(dataset) == ALL
    assert len(names) == RECHECKED
    touch(pages)
    with opened(pages / "images") as names:
        assert outcomes_of_another_epoch(dataset) == ALL
    assert len(names) == PAGES


def outcomes_of_another_epoch(dataset: Any) -> tuple[int, int, int]:
    dataset.set_epoch(1)
    items(dataset)
    return outcomes(dataset)


def test_a_file_that_changed_just_now_is_not_known_by_its_signature(pages, root):
    read_right(pages, root)
    close_store(root)
    with opened(pages / "images") as names:
        items(open_pages(pages, root))
    assert len(names) >= PAGES


def test_a_signature_tells_the_content_as_long_as_nothing_changed(pages, root):
    cache, path = Cache((), root), pages / "images" / "01.bmp"
    found = file_signature(path)
    assert found is not None
    assert found.settled() == UNKNOWN
    assert Signature(1, 10, 10, 1).settled() == Signature(1, 10, 10, 1)
    assert Signature(1, 0, 0, 1).settled() == UNKNOWN  # A file system without times.
    cache.remember(str(path), UNKNOWN, b"content")
    cache.flush()
    assert cache.content_of(str(path), UNKNOWN) is None
    cache.remember(str(path), found, b"content")
    cache.flush()
    assert cache.content_of(str(path), found) == b"content"
    assert cache.content_of(os.path.relpath(path), found) == b"content"
    assert cache.content_of(str(path), found._replace(mtime_ns=1)) is None
    assert cache.content_of(str(path.with_name("00.jpg")), found) is None


# -- outcomes


def test_what_became_of_each_page_is_in_the_ledger(pages, root):
    dataset = open_pages(pages, root)
    expected = items(open_pages(pages))
    assert_same(items(dataset)[:4], expected[:4])
    assert outcomes(dataset) == NONE
    dataset.set_epoch(1)
    assert_same([dataset[index] for index in (3, 1)], [expected[index] for index in (3, 1)])
    assert outcomes(dataset) == (2, 0, 0)
    assert sorted(dataset.ledger.files("cache_hits")) == ["01.bmp", "03.jpg"]


def test_a_page_of_which_a_byte_is_damaged_is_counted_and_made_again(pages, full):
    (file,) = full.glob("store/data.mdb")
    store = open_pages(pages, full).cache.store
    value = next(bytes(value) for _, value in store.items("pages"))
    close_store(full)
    data = file.read_bytes()
    at = data.index(value) + len(value) - 10
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert read_right(pages, full) == (PAGES - 1, 0, 1)
    assert read_right(pages, full) == ALL


def test_an_edit_is_followed_in_the_next_epoch(pages, root):
    dataset = open_pages(pages, root)
    items(dataset)
    paint_over(pages)
    change_a_word(transcription="another")(pages)
    assert outcomes_of_another_epoch(dataset) == (PAGES - 2, 2, 0)
    assert_same(items(dataset), items(open_pages(pages)))


def test_a_page_that_is_gone_is_an_error_even_if_it_is_kept(pages, full):
    dataset = open_pages(pages, full)
    (pages / "images" / "01.bmp").unlink()
    with pytest.raises(ImageError) as caught:
        dataset[1]
    assert caught.value.path == str(pages / "images" / "01.bmp")


# -- filling it ahead


def test_a_cache_is_filled_with_what_is_missing(pages, root):
    dataset = open_pages(pages, root)
    for index in range(3):
        dataset[index]
    dataset.flush()
    assert open_pages(pages, root, cache="off").fill_cache() == {}
    paint_over(pages)
    assert open_pages(pages, root).fill_cache(threads=2) == {"hit": 2, "miss": PAGES - 2}
    assert open_pages(pages, root).fill_cache() == {"hit": PAGES}


def test_a_page_that_cannot_be_read_is_skipped_where_others_are(pages, root):
    (pages / "images" / "01.bmp").write_bytes(b"none")
    dataset = open_pages(pages, root, on_bad_sample="skip")
    assert dataset.fill_cache() == {"miss": PAGES - 1, "skipped": 1}
    with pytest.raises(ImageError):
        open_pages(pages, root).fill_cache()


FLAGS = ("preload_images", "preload_everything", "prenormalize_images", "cache_transformed_tensors")


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_that_preloads_fills_the_one_cache_and_samples_stay_the_same(pages, root, flag):
    settings = {"cache_folder": root, "cache": "off", flag: True}
    dataset = open_pages(pages, **settings)
    assert_same(items(dataset), items(open_pages(pages)))
    assert outcomes(dataset) == ALL
    close_store(root)
    assert read_right(pages, root) == ALL


@pytest.mark.parametrize(("setting", "value"), [("cache.max_bytes", "lots"), ("data.cache", "prefix")])
def test_a_setting_that_cannot_work_is_rejected_before_anything_is_made(pages, root, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        open_pages(pages, root, **{setting.partition(".")[2].replace("max", "cache_max"): value})
    assert not root.exists()


def test_a_folder_is_one_store_whatever_its_path(pages, root, tmp_path, monkeypatch, caplog):
    read_right(pages, root)
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    datasets = [open_pages(pages, folder) for folder in (root, "cache", tmp_path / "link")]
    monkeypatch.chdir(pages)
    for dataset in datasets:
        items(dataset)
        assert outcomes(dataset) == ALL
    assert not caplog.records


def test_pages_are_kept_only_where_they_are_asked_for(pages, root):
    for cache in ("off", False):
        dataset = open_pages(pages, root, cache=cache)
        items(dataset)
        assert dataset.cache is None
        assert outcomes(dataset) == (0, 0, 0)
    assert not root.exists()
