"""cache: what a sample depends on invalidates it, nothing else does, and whatever the budget, samples are the same."""

import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cache_worker import (
    fixed,
    open_pages,
    read_annotation,
    read_right,
    rename_a_page,
    repaint,
    write_annotation,
    write_pages,
)
from PIL import Image
from sameness import assert_same

from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

pytestmark = pytest.mark.usefixtures("each_form")
ALL, NONE = (8, 0, 0), (0, 8, 0)
HIDDEN = "HIDDEN_GAIN_OF_A_STAGE"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "pages")


@pytest.fixture
def cache(pages: Path, tmp_path: Path) -> Path:
    assert read_right(pages, tmp_path / "cache") == NONE
    return tmp_path / "cache"


def encode_anew(pages: Path) -> None:
    with Image.open(pages / "images" / "00.jpg") as page:
        page.save(pages / "images" / "00.jpg", quality=30)


def paint_over(pages: Path) -> None:
    repaint(pages / "images" / "01.bmp")


def change_a_word(**change: Any) -> Any:
    def edit(pages: Path) -> None:
        annotation = read_annotation(pages)
        annotation["03.jpg"]["words"]["0001"] |= change
        write_annotation(pages, annotation)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        encode_anew,
        paint_over,
        change_a_word(points=[[2, 2], [30, 2], [30, 30.25], [2, 30]]),
        change_a_word(transcription="another"),
        change_a_word(transcription=None),
        change_a_word(illegibility=True),
    ],
    ids=["encoded anew", "as large and old as before", "polygon", "text", "no text", "ignored"],
)
def test_an_edit_of_one_page_invalidates_that_page_only(pages, cache, edit):
    edit(pages)
    assert read_right(pages, cache) == (7, 0, 1)
    assert read_right(pages, cache) == ALL


def touch(pages: Path) -> Path:
    for path in pages.rglob("*.*"):
        os.utime(path, (1, 1))
    return pages


def move(pages: Path) -> Path:
    return pages.rename(pages.with_name("moved"))


def copy(pages: Path) -> Path:
    return Path(shutil.copytree(pages, pages.with_name("copy"), copy_function=shutil.copyfile))


def print_prettily(pages: Path) -> Path:
    text = json.dumps(json.loads((pages / "pages.json").read_text()), indent=4)
    (pages / "pages.json").write_text(text)
    return pages


@pytest.mark.parametrize("change", [touch, move, copy, print_prettily])
def test_what_changes_no_sample_invalidates_nothing(pages, cache, change):
    changed = change(pages)
    assert read_right(changed, cache) == ALL
    assert read_right(changed, cache) == ALL


def test_a_page_that_is_added_costs_that_page_only(pages, cache):
    shutil.copy(pages / "images" / "02.png", pages / "images" / "added.png")
    write_annotation(pages, read_annotation(pages) | {"added.png": {"words": {}}})
    assert read_right(pages, cache) == (8, 1, 0)


def test_two_datasets_with_the_same_names_have_caches_of_their_own(pages, cache, tmp_path):
    other = write_pages(tmp_path / "other", seed=1)
    assert read_right(other, cache) == NONE
    sizes = {path: path.stat().st_size for path in cache.glob("*/data")}
    for _ in range(2):
        assert read_right(pages, cache) == ALL
        assert read_right(other, cache) == ALL
    assert sizes == {path: path.stat().st_size for path in cache.glob("*/data")}


def test_a_page_edited_back_and_forth_is_never_stale(pages, cache):
    versions = []
    for _ in range(2):
        versions.append(open_pages(pages)[1])
        paint_over(pages)
    for turn in range(3):
        running = open_pages(pages, cache)
        assert_same(running[1], versions[turn % 2])
        paint_over(pages)
        assert read_right(pages, cache) == (7, 0, 1)
        # Opened before the edit, it has one of the two pages, and replaces nothing that was made after.
        assert any(running[1]["image"].equal(version["image"]) for version in versions)
        assert read_right(pages, cache) == ALL


@pytest.mark.parametrize("seconds", [-3600, 10**9])
def test_a_clock_that_jumps_makes_no_page_stale(pages, cache, monkeypatch, seconds):
    now, now_ns = time.time, time.time_ns
    for attempt in range(2):
        jump = seconds * (attempt % 2)
        monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: now_ns() + jump * 10**9)
        paint_over(pages)
        os.utime(pages / "images" / "02.png", (now() + seconds, now() + seconds))
        assert read_right(pages, cache) == (7, 0, 1)
        assert read_right(pages, cache) == ALL


@dataclass(frozen=True)
class Brighten(FixedStage):
    """Depends on something that its key cannot know."""

    def __call__(self, sample: Sample) -> Sample:
        return replace(sample, image=sample.image + int(os.environ.get(HIDDEN, "0")))


@pytest.mark.parametrize("siblings", [False, True], ids=["alone", "with another cache of the same stages"])
def test_a_stage_with_a_hidden_dependence_is_caught_and_the_cache_made_anew(
    pages, tmp_path, monkeypatch, caplog, siblings
):
    cache, transform = tmp_path / "cache", fixed(Brighten())
    read_right(pages, cache, transform=transform)
    if siblings:
        rename_a_page(copy(pages))
        read_right(pages.with_name("copy"), cache, transform=transform)
    monkeypatch.setenv(HIDDEN, "1")
    assert not caplog.records
    assert read_right(pages, cache, transform=transform) == NONE
    (record,) = caplog.records
    assert str(cache) in record.getMessage()
    caplog.clear()
    assert read_right(pages, cache, transform=transform) == ALL
    assert not caplog.records


def test_a_new_list_of_pages_takes_nothing_stale_from_another_cache(pages, tmp_path, monkeypatch):
    transform = fixed(Brighten())
    read_right(pages, tmp_path / "cache", transform=transform)
    monkeypatch.setenv(HIDDEN, "1")
    read_right(rename_a_page(pages), tmp_path / "cache", transform=transform)


def test_a_stage_that_cannot_be_hashed_can_be_cached(pages, tmp_path):
    @dataclass
    class Same(FixedStage):
        def __call__(self, sample: Sample) -> Sample:
            return sample

    assert read_right(pages, tmp_path / "cache", transform=fixed(Same())) == NONE
