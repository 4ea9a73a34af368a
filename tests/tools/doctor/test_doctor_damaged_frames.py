"""EXIF pages with damaged bytes: judged with the pixels that training gets, or without any."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from doctor_data import BOXES, SmallDataset, kinds, raw_points, text_page

from ocr.tools.doctor import examine, write_fixed, write_html

SQUARE = (400, 400)


def cut_end_marker(data: bytes) -> bytes:
    return data[:-2]


def stray_marker(data: bytes) -> bytes:
    """Late in the scan, a marker that does not belong there: decoders complain and go on."""
    at = len(data) * 9 // 10
    return data[:at] + b"\xff\xd5" + data[at + 2 :]


def add_damaged(dataset: SmallDataset, orientation: int, damage: Callable[[bytes], bytes], name: str = "a.jpg") -> None:
    """A square page without a size in its annotation, so that only its pixels tell the frame, which is raw."""
    words = {str(at): {"points": raw_points(each, orientation, SQUARE)} for at, each in enumerate(BOXES)}
    path = dataset.add(name, words=words, image=text_page(SQUARE), orientation=orientation)
    path.write_bytes(damage(path.read_bytes()))


@pytest.mark.parametrize("damage", [cut_end_marker, stray_marker])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_damaged_page_that_training_reads_still_tells_its_frame(
    dataset: SmallDataset, tmp_path: Path, orientation: int, damage: Callable[[bytes], bytes]
) -> None:
    add_damaged(dataset, orientation, damage)
    report = dataset.examine()
    assert kinds(report) == ["corrupt-but-readable", "other-frame"]
    assert kinds(dataset.examine(deep=True)) == kinds(report)
    write_html(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("data:image/jpeg") == 2
    assert write_fixed(report, tmp_path / "fixed").counts() == {"turned": 1}
    assert kinds(examine(tmp_path / "fixed", show_progress=False)) == ["corrupt-but-readable"]


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_page_that_training_cannot_read_has_no_frame_and_is_dropped(
    dataset: SmallDataset, tmp_path: Path, orientation: int
) -> None:
    add_damaged(dataset, orientation, lambda data: data[: len(data) // 2])
    report = dataset.examine()
    assert kinds(report) == ["truncated-image"]
    write_html(report, tmp_path / "report.html")
    assert write_fixed(report, tmp_path / "fixed").counts() == {"page-dropped": 1}


def test_a_page_that_turns_out_unreadable_while_its_frame_is_judged_is_dropped(
    dataset: SmallDataset, tmp_path: Path
) -> None:
    # The header of a TIFF does not show that half of its pixels are missing.
    add_damaged(dataset, 1, lambda data: data[: len(data) // 2], "a.tif")
    assert dataset.examine().findings == ()
    add_damaged(dataset, 3, lambda data: data[: len(data) // 2], "a.tif")
    report = dataset.examine()
    assert kinds(report) == ["truncated-image"]
    assert report.splits[0].frames == {}
    assert write_fixed(report, tmp_path / "fixed").counts() == {"page-dropped": 1}


@pytest.mark.parametrize("orientation", [3, 6])
def test_no_random_bytes_in_a_page_break_the_doctor(dataset: SmallDataset, tmp_path: Path, orientation: int) -> None:
    random = np.random.default_rng(orientation)

    def damage(data: bytes) -> bytes:
        at = int(random.integers(len(data) // 4, len(data) - 16))
        return data[:at] + random.bytes(16) + data[at + 16 :]

    expected = {"corrupt-but-readable", "truncated-image", "unreadable-image", "other-frame", "ambiguous-frame"}
    for attempt in range(12):
        add_damaged(dataset, orientation, damage)
        report = dataset.examine()
        assert set(kinds(report)) <= expected
        write_html(report, tmp_path / "report.html")
        write_fixed(report, tmp_path / str(attempt))
