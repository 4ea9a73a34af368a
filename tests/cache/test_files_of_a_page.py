"""How a page becomes a batch stands in few files: those whose code runs for one page, without workers."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from cached_pages import fixed, open_pages, write_pages

import ocr
from ocr.loader import Loader
from ocr.pipeline import page_index

PACKAGE = f"{Path(ocr.__file__).parent}/"
BYTES = fixed(normalize="device")
UNCACHED, WARM = 19, 17
"""Geometry and its kernels among them (five and three), and the loader (three)."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page_index, "JUST_NOW_NS", -(10**12))  # The pages were written just now.
    return write_pages(tmp_path / "set")


def files_of_the_next(batches: Iterator[object]) -> set[str]:
    passed = set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    sys.setprofile(note)
    try:
        next(batches)
    finally:
        sys.setprofile(None)
    return passed


def test_an_uncached_page_passes_few_files(folder: Path) -> None:
    batches = iter(Loader(open_pages(folder, transform=BYTES), 1, 0))
    next(batches)  # What is done once is not what is counted.
    passed = files_of_the_next(batches)
    assert {"pipeline/path.py", "pipeline/decode.py", "loader/loader.py"} < passed
    assert len(passed) <= UNCACHED, sorted(passed)


def test_a_warm_page_passes_few_files_and_is_not_made(folder: Path, tmp_path: Path) -> None:
    dataset = open_pages(folder, tmp_path / "cache", BYTES)
    for _ in range(3):  # Made; made again and compared; read.
        assert len(list(Loader(dataset, 1, 0))) == len(dataset)
    batches = iter(Loader(dataset, 1, 0))
    next(batches)
    passed = files_of_the_next(batches)
    assert {"pipeline/path.py", "cache/cache.py", "cache/store.py"} < passed
    assert "pipeline/decode.py" not in passed
    assert len(passed) <= WARM, sorted(passed)
