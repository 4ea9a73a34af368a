"""The folder of synthetic pages: what its files hold, what they depend on, and what is refused."""

import hashlib
import io
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image, ImageOps
from rejection import rejects

from ocr.errors import ConfigError
from ocr.formats.read import read_annotations
from ocr.tools.synth import encode_page, render_page, synthesize
from ocr.tools.synth.page import choose_orientation

SMALL = (0.12, 0.2)


def fingerprint(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    alone = synthesize(tmp_path / "a", 4, 2, 3, megapixels=SMALL, workers=0, kind="mixed", show_progress=False)
    synthesize(tmp_path / "b", 4, 2, 3, megapixels=SMALL, workers=2, kind="mixed", show_progress=False)
    synthesize(tmp_path / "c", 4, 2, 4, megapixels=SMALL, workers=0, show_progress=False)
    first = fingerprint(tmp_path / "a")
    assert first == fingerprint(tmp_path / "b")
    assert not set(first.values()) & set(fingerprint(tmp_path / "c").values())
    assert len(set(first.values())) == len(first) == alone.pages + 3


def test_a_page_depends_on_nothing_but_its_number(tmp_path: Path) -> None:
    synthesize(tmp_path / "few", 1, 1, megapixels=SMALL, show_progress=False)
    synthesize(tmp_path / "more", 3, 2, megapixels=SMALL, show_progress=False, workers=1)
    few, more = fingerprint(tmp_path / "few"), fingerprint(tmp_path / "more")
    images = [name for name in few if name.endswith(".jpg")]
    assert len(images) == 2
    assert all(few[name] == more[name] for name in images)


def test_applying_the_exif_orientation_gives_the_upright_page() -> None:
    seen = set()
    for index in range(8):
        page = render_page(0, index, megapixels=SMALL, exif_share=7 / 8)
        stored = Image.open(io.BytesIO(encode_page(page)))
        assert stored.getexif().get(0x0112, 1) == page.orientation
        height, width = page.image_hwc.shape[:2]
        assert stored.size == ((height, width) if page.orientation >= 5 else (width, height))
        upright = np.asarray(ImageOps.exif_transpose(stored), dtype=np.int16)
        assert np.abs(upright - page.image_hwc).mean() < 9
        seen.add(page.orientation)
    assert seen == set(range(1, 9))


def test_the_share_of_turned_pages_is_as_asked() -> None:
    def orientations(share: float) -> list[int]:
        return [choose_orientation(1, "val", index, share) for index in range(12)]

    assert orientations(0.0) == [1] * 12
    assert 1 not in orientations(1.0)
    assert sum(turned != 1 for turned in orientations(0.25)) == 3


def test_pages_keep_to_their_megapixels_and_polygons_to_their_pages() -> None:
    ignored = words = 0
    taken = set()
    for index in range(24):
        page = render_page(2, index, megapixels=(0.1, 0.3))
        height, width = page.image_hwc.shape[:2]
        assert 0.098e6 <= width * height <= 0.3e6
        assert 40 <= page.jpeg_quality <= 95
        assert 15 <= len(page.words) <= 150
        for word in page.words:
            points = np.array(word.points)
            assert len(points) == 4 or 8 <= len(points) <= 14
            assert (points >= 0).all()
            assert (points <= (width - 1, height - 1)).all()
            assert shapely.Polygon(points).is_valid
            assert word.ignore or word.text
        words += len(page.words)
        ignored += sum(word.ignore for word in page.words)
        taken.add(page.taken)
    assert 0.005 < ignored / words < 0.04
    assert taken == {"crop", "scan", "photo"}


def test_lines_on_a_page_do_not_overlap() -> None:
    for index in range(6):
        polygons = [shapely.Polygon(word.points) for word in render_page(4, index, megapixels=(0.5, 0.5)).words]
        for first, second in pairwise(polygons):
            assert first.intersection(second).area < 0.2 * min(first.area, second.area)


def test_the_folder_reads_back_as_a_dataset(tmp_path: Path) -> None:
    summary = synthesize(tmp_path / "out", 3, 0, 0, megapixels=SMALL, show_progress=False)
    annotations = read_annotations(tmp_path / "out" / "jsons" / "train.json")
    images = sorted(path.name for path in (tmp_path / "out" / "images" / "train").iterdir())
    assert list(annotations.pages) == images == ["0001.jpg", "0002.jpg", "0003.jpg"]
    assert summary.pages == 3
    assert summary.words == sum(len(page.words) for page in annotations.pages.values())
    assert not (tmp_path / "out" / "images" / "val").exists()
    assert not (tmp_path / "out" / "jsons" / "val.json").exists()
    for name, page in annotations.pages.items():
        with Image.open(tmp_path / "out" / "images" / "train" / name) as stored:
            upright = ImageOps.exif_transpose(stored)
            assert upright is not None
            assert page.size == upright.size
    raw = json.loads((tmp_path / "out" / "jsons" / "train.json").read_text())
    word = raw["images"]["0001.jpg"]["words"]["0001"]
    assert set(word) >= {"points", "transcription", "orientation", "language"}


def test_only_its_own_result_is_overwritten_and_only_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    synthesize(out, 3, 1, megapixels=SMALL, show_progress=False)
    before = fingerprint(out)
    with rejects(ConfigError, setting="--overwrite", path=out):
        synthesize(out, 2, 0, megapixels=SMALL, show_progress=False)
    assert fingerprint(out) == before
    synthesize(out, 2, 0, megapixels=SMALL, show_progress=False, overwrite=True)
    assert sorted(path.name for path in out.rglob("*.jpg")) == ["0001.jpg", "0002.jpg"]
    assert not (out / "jsons" / "val.json").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "jsons").mkdir()
    (tmp_path / "jsons" / "train.json").write_text("{}")
    with rejects(ConfigError, path=tmp_path):
        synthesize(tmp_path, 1, 0, megapixels=SMALL, show_progress=False, overwrite=True)
    assert (tmp_path / "jsons" / "train.json").read_text() == "{}"
    (tmp_path / "file").write_text("")
    with rejects(ConfigError, path=tmp_path / "file"):
        synthesize(tmp_path / "file", 1, 0, megapixels=SMALL, show_progress=False)


@pytest.mark.parametrize(
    ("setting", "value", "more"),
    [
        ("train", -1, {}),
        ("val", -2, {}),
        ("train", 0, {"val": 0}),
        ("seed", -1, {}),
        ("megapixels", (2.0, 1.0), {}),
        ("megapixels", (0.0, 1.0), {}),
        ("workers", -1, {}),
        ("exif_share", 1.5, {}),
        ("kind", "forms", {}),
        ("units", "word", {}),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_anything_is_written(
    tmp_path: Path, setting: str, value: object, more: dict[str, object]
) -> None:
    arguments = {"train": 1, "val": 1, "show_progress": False, setting: value, **more}
    with rejects(ConfigError, value=value) as caught:
        synthesize(tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert str(caught.value.setting).lstrip("-") == setting
    assert not (tmp_path / "out").exists()
