"""What `ocr doctor` finds in image files and folders."""

import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doctor_data import SmallDataset, kinds
from PIL import Image
from rejection import rejects

from ocr.errors import ConfigError, DataError
from ocr.tools.doctor import KINDS, examine, write_html

NAN = float("nan")


def test_sound_data_is_ok_and_exits_with_0(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", img_w=200, img_h=120)
    dataset.add("b.png", split="val")
    report = dataset.examine()
    assert report.findings == ()
    assert report.ok
    assert report.exit_status == 0


def test_a_page_without_its_image_is_missing(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    dataset.add("b.jpg").unlink()
    report = dataset.examine()
    assert kinds(report) == ["missing-image"]
    assert report.exit_status == 1
    assert report.findings[0].message.startswith("train/b.jpg: named in ")


def test_a_missing_image_names_the_file_that_differs_in_case_only(dataset: SmallDataset) -> None:
    path = dataset.add("b.JPG")
    path.rename(path.with_name("b.jpg"))
    missing = next(finding for finding in dataset.examine().findings if finding.kind == "missing-image")
    assert "b.jpg exists" in missing.message


def test_a_name_that_leads_out_of_the_folder_is_missing_even_where_such_a_file_exists(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    shutil.copyfile(dataset.image_path("a.jpg"), dataset.root / "outside.jpg")
    dataset.pages["train"]["../../outside.jpg"] = {"words": {}}
    assert "missing-image" in kinds(dataset.examine())


@pytest.mark.parametrize(
    ("content", "kind", "detail"),
    [
        (b"", "empty-file", "0 bytes"),
        (b"<html>not found</html>", "unreadable-image", "22 bytes starting b'<html>no'"),
    ],
)
def test_a_file_that_is_no_image_is_found(dataset: SmallDataset, content: bytes, kind: str, detail: str) -> None:
    dataset.add("a.jpg").write_bytes(content)
    report = dataset.examine()
    assert kinds(report) == [kind]
    assert detail in report.findings[0].detail


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp"])
def test_a_truncated_image_is_found_without_decoding_it(dataset: SmallDataset, name: str) -> None:
    path = dataset.add(name)
    path.write_bytes(path.read_bytes()[:-200])
    report = dataset.examine()
    assert kinds(report)[0] in ("truncated-image", "unreadable-image")
    assert len(report.findings) == 1
    assert not report.ok


def test_the_end_marker_of_an_exif_thumbnail_does_not_hide_a_truncated_jpeg(dataset: SmallDataset) -> None:
    path = dataset.add("a.jpg")
    data = path.read_bytes()
    thumbnail = b"Exif\x00\x00" + b"\xff\xd8thumbnail\xff\xd9"
    segment = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    # Fill bytes between segments are legal.
    path.write_bytes(data[:2] + segment + b"\xff" + data[2:-300])
    assert kinds(dataset.examine()) == ["truncated-image"]


def test_bytes_behind_the_end_of_a_jpeg_are_fine(dataset: SmallDataset) -> None:
    path = dataset.add("a.jpg")
    path.write_bytes(path.read_bytes() + b"a phone's video" * 100)
    assert dataset.examine(deep=True).findings == ()


def test_a_damaged_png_is_found_by_its_check_sums(dataset: SmallDataset) -> None:
    path = dataset.add("a.png")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert kinds(dataset.examine()) == ["unreadable-image"]


def test_only_a_deep_look_finds_that_a_bmp_lacks_pixels(dataset: SmallDataset) -> None:
    path = dataset.add("a.bmp")
    path.write_bytes(path.read_bytes()[:-1000])
    assert dataset.examine().ok
    assert kinds(dataset.examine(deep=True)) == ["truncated-image"]


def test_a_jpeg_that_only_a_lenient_decoder_reads_is_a_note_of_the_deep_look(dataset: SmallDataset) -> None:
    path = dataset.add("a.jpg")
    data = path.read_bytes()
    path.write_bytes(data[:2000] + data[2100:])
    assert dataset.examine().findings == ()
    report = dataset.examine(deep=True)
    assert kinds(report) == ["corrupt-but-readable"]
    assert report.ok


def test_a_page_of_a_single_pixel_is_unreadable(dataset: SmallDataset) -> None:
    dataset.add("a.png", words={}, size=(1, 1))
    assert "unreadable-image" in kinds(dataset.examine())


@pytest.mark.parametrize(("width", "height"), [(15_000, 12_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_reported_and_not_opened(dataset: SmallDataset, width: int, height: int) -> None:
    path = dataset.add("a.png")
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = path.read_bytes()
    chunk = b"IHDR" + header
    path.write_bytes(data[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:])
    assert kinds(dataset.examine()) == ["too-many-pixels"]


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_a_large_page_is_let_through_by_raising_the_limit(dataset: SmallDataset, name: str) -> None:
    dataset.add(name, size=(200, 120))
    report = dataset.examine(deep=True, max_pixels=23_999)
    assert kinds(report) == ["too-many-pixels"]
    assert "200 x 120, the limit is 23999. Scale it down, or raise --max-pixels" in report.findings[0].message
    assert dataset.examine(deep=True, max_pixels=24_000).findings == ()


def test_no_word_of_a_page_over_the_limit_is_drawn_on_it(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add("a.jpg", words={"1": {"points": [[20, 30], [80, 30], [20, 50], [80, 50]]}})
    report = dataset.examine(max_pixels=1000)
    assert kinds(report) == ["too-many-pixels", "self-intersecting"]
    write_html(report, tmp_path / "report.html")
    assert "data:image" not in (tmp_path / "report.html").read_text()


def test_the_tag_of_a_png_is_read_before_and_behind_its_pixels(dataset: SmallDataset) -> None:
    path = dataset.add("a.png", orientation=6)
    assert dataset.examine().splits[0].images["a.png"].orientation == 6
    data = path.read_bytes()
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    path.write_bytes(data[:start] + data[end:-12] + data[start:end] + data[-12:])
    assert dataset.examine().splits[0].images["a.png"].orientation == 6


@pytest.mark.parametrize(
    ("option", "value"),
    [("workers", 0), ("workers", -1), ("size", 0), ("min_text_size", -0.5), ("min_text_size", NAN), ("max_pixels", 0)],
)
def test_numbers_that_make_no_sense_are_refused(dataset: SmallDataset, option: str, value: float) -> None:
    dataset.add()
    options: dict[str, Any] = {"show_progress": False, option: value}
    with rejects(ConfigError, value=value) as caught:
        examine(dataset.write(), **options)
    assert str(caught.value.setting).removeprefix("DoctorSettings.") == option


def test_an_executor_that_does_not_exist_is_refused(dataset: SmallDataset) -> None:
    dataset.add()
    with rejects(ConfigError, setting="executor", value="rya"):
        dataset.examine(executor="rya")


def test_the_same_image_twice_in_a_split_is_a_warning(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    shutil.copyfile(dataset.image_path("a.jpg"), dataset.add("b.jpg"))
    report = dataset.examine()
    assert kinds(report) == ["duplicate-image"]
    assert "the same bytes as train/a.jpg" in report.findings[0].message
    assert report.findings[0].severity == "warning"


def test_a_copy_that_no_annotation_names_is_a_note(dataset: SmallDataset) -> None:
    shutil.copyfile(dataset.add("b.jpg"), dataset.image_path("a.jpg"))
    (copy,) = dataset.examine().findings
    assert (copy.kind, copy.severity, copy.image) == ("unreferenced-copy", "note", "a.jpg")
    assert "train/b.jpg" in copy.message


def test_the_same_image_in_two_splits_is_an_error(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    shutil.copyfile(dataset.image_path("a.jpg"), dataset.add("z.jpg", split="val"))
    report = dataset.examine()
    assert [(finding.split, finding.kind, finding.severity) for finding in report.findings] == [
        ("train", "leaked-image", "error")
    ]


def test_a_leak_between_splits_that_are_not_trained_on_is_an_error_too(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", split="test")
    shutil.copyfile(dataset.image_path("a.jpg", "test"), dataset.add("z.jpg", split="val"))
    assert [(finding.split, finding.kind) for finding in dataset.examine().findings] == [("val", "leaked-image")]


def test_images_of_the_same_length_are_no_duplicates_unless_their_bytes_are_equal(dataset: SmallDataset) -> None:
    image = np.full((40, 40, 3), 250, dtype=np.uint8)
    first, second = dataset.add("a.bmp", words={}, image=image), dataset.add("b.bmp", words={}, image=image - 1)
    assert first.stat().st_size == second.stat().st_size
    assert set(kinds(dataset.examine())) == {"no-words"}


def test_a_good_image_without_annotation_is_a_warning_and_any_other_file_a_note(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    dataset.add("b.jpg")
    del dataset.pages["train"]["b.jpg"]
    dataset.image_path("readme.txt").write_text("?")
    dataset.image_path("broken.jpg").write_bytes(b"")
    dataset.image_path(".hidden").write_text("?")
    found = {finding.image: finding.severity for finding in dataset.examine().findings}
    assert found == {"b.jpg": "warning", "readme.txt": "note", "broken.jpg": "note"}


def test_a_folder_of_maps_is_no_split(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    (dataset.root / "images" / "train_maps").mkdir()
    assert [split.name for split in dataset.examine().splits] == ["train"]


def test_annotations_without_a_folder_are_one_finding_not_one_a_page(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    dataset.pages["test"] = {f"{at}.jpg": {"words": {}} for at in range(5)}
    assert kinds(dataset.examine()) == ["missing-folder"]


@pytest.mark.parametrize("text", ['{"images": ', '{"images": 3}', ""])
def test_an_annotation_file_that_cannot_be_used_is_a_finding_and_its_images_are_still_read(
    dataset: SmallDataset, text: str
) -> None:
    dataset.add("a.jpg").write_bytes(b"")
    dataset.write()
    dataset.json_path().write_text(text)
    report = examine(dataset.root, show_progress=False)
    assert kinds(report) == ["annotation-error", "empty-file"]
    assert str(dataset.json_path()) in report.findings[0].message


def test_a_split_without_an_annotation_file_is_found(dataset: SmallDataset) -> None:
    dataset.add("a.jpg")
    report = dataset.examine()
    dataset.json_path().unlink()
    assert report.ok
    report = examine(dataset.root, show_progress=False)
    assert kinds(report) == ["annotation-error"]
    assert "name another: --annotation-path" in report.findings[0].message


def test_one_split_is_examined_by_its_folder_and_annotation_path(dataset: SmallDataset, tmp_path: Path) -> None:
    image = dataset.add("img_1.jpg")
    label = tmp_path / "labels" / "gt_img_1.txt"
    label.parent.mkdir()
    label.write_text("20,30,80,30,80,50,20,50,total\n20,30,80,30,400,50,20,50,###\n")
    report = examine(image.parent, annotation_path=label.parent, show_progress=False)
    assert kinds(report) == ["out-of-page"]
    assert report.splits[0].counts.ignored == 1


def test_splits_can_be_chosen(dataset: SmallDataset) -> None:
    dataset.add("a.jpg").write_bytes(b"")
    dataset.add("b.jpg", split="val")
    assert dataset.examine(splits=["val"]).ok
    with rejects(ConfigError, setting="--split", value="vall"):
        dataset.examine(splits=["vall"])


def test_a_folder_that_is_no_dataset_is_refused_with_the_layout(tmp_path: Path) -> None:
    for _ in range(2):
        with rejects(DataError, path=tmp_path / "images"):
            examine(tmp_path)
        (tmp_path / "images").mkdir(exist_ok=True)


def test_pages_in_subfolders_are_found(dataset: SmallDataset) -> None:
    dataset.add("shop/a.jpg")
    assert dataset.examine().ok


def test_the_raw_size_of_a_tiff_is_not_the_one_that_pillow_turned(dataset: SmallDataset) -> None:
    dataset.add("a.tif", size=(200, 120), orientation=6)
    facts = dataset.examine().splits[0].images["a.tif"]
    assert (facts.raw_size, facts.orientation) == ((120, 200), 6)


def test_an_orientation_that_does_not_exist_counts_as_upright(dataset: SmallDataset) -> None:
    path = dataset.add("a.jpg")
    exif = Image.Exif()
    exif[0x0112] = 77
    Image.new("RGB", (200, 120), "white").save(path, exif=exif)
    assert dataset.examine().splits[0].images["a.jpg"].orientation == 1


def test_every_kind_has_a_severity_a_meaning_and_a_fix() -> None:
    assert all(kind.severity in ("error", "warning", "note") and kind.meaning and kind.fix for kind in KINDS.values())


def test_label_files_in_use_are_not_stray(dataset: SmallDataset) -> None:
    folder = dataset.add("a.jpg").parent
    (folder / "gt_a.txt").write_text("20,30,80,30,80,50,20,50,total\n115,32,###\n")
    (folder / "notes.md").write_text("a stray file")
    report = examine(folder, annotation_path=folder, annotation_format="icdar2015", show_progress=False)
    assert [(finding.image, finding.kind) for finding in report.findings] == [
        ("notes.md", "unreferenced-file"),
        ("", "annotation-note"),
    ]
    assert "gt_a.txt, line 2: skipped, it has one point" in report.findings[1].message
    assert report.ok


def test_every_line_that_cannot_be_read_is_a_finding(dataset: SmallDataset) -> None:
    folder = dataset.add("a.jpg").parent
    (folder / "a.txt").write_text("hello\n20,30,80,30,80,50,20,50,total\n1,2,3\n")
    report = examine(folder, annotation_path=folder, annotation_format="icdar2015", show_progress=False)
    assert kinds(report) == ["annotation-error", "annotation-error"]
    assert ["line 1" in report.findings[0].message, "line 3" in report.findings[1].message] == [True, True]
