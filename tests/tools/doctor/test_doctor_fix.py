"""`ocr doctor --fix`: a repaired copy, the original untouched."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from doctor_data import BOXES, SIZE, SmallDataset, box, kinds, raw_points, text_page
from rejection import rejects

from ocr.errors import ConfigError
from ocr.tools.doctor import examine, write_fixed

FIXED_KINDS = {
    "missing-image", "empty-file", "unreadable-image", "truncated-image", "other-frame", "bad-points", "bad-text",
    "degenerate-polygon", "self-intersecting", "out-of-page",
}  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def sick(dataset: SmallDataset) -> SmallDataset:
    """One of everything that can be repaired, beside a word that needs nothing."""
    dataset.add(
        "words.jpg",
        words={
            "good": {"points": box(20, 30), "transcription": "é", "language": "fr", "orientation": "Horizontal"},
            "two": {"points": [[0, 0], [5, 5]]},
            "flat": {"points": [[20, 30], [80, 30], [50, 30]]},
            "bow": {"points": [[20, 55], [80, 55], [20, 75], [80, 75]], "illegibility": True},
            "out": {"points": box(150, 30), "transcription": "x"},
            "far": {"points": box(900, 900)},
            "number": {"points": box(20, 80), "transcription": 12},
        },
        img_w=200,
        img_h=120,
    )
    dataset.add("gone.jpg").unlink()
    dataset.add("empty.jpg").write_bytes(b"")
    dataset.add("html.jpg").write_bytes(b"<html>")
    short = dataset.add("short.jpg")
    short.write_bytes(short.read_bytes()[:-100])
    raw = {str(at): {"points": raw_points(each, 6, SIZE)} for at, each in enumerate(BOXES)}
    dataset.add("turned.jpg", words=raw, image=text_page(), orientation=6, img_w=SIZE[1], img_h=SIZE[0])
    dataset.add("good.jpg", split="val")
    return dataset


def test_the_repaired_copy_is_clean_and_the_original_untouched(sick: SmallDataset, tmp_path: Path) -> None:
    report = sick.examine()
    assert set(kinds(report)) == FIXED_KINDS
    before = digests(sick.root)
    write_fixed(report, tmp_path / "fixed")
    assert digests(sick.root) == before
    again = examine(tmp_path / "fixed", show_progress=False)
    assert set(kinds(again)) == {"unreferenced-file"}
    assert again.ok


def test_each_word_is_repaired_in_its_own_way_and_good_ones_are_carried_over(
    sick: SmallDataset, tmp_path: Path
) -> None:
    write_fixed(sick.examine(), tmp_path / "fixed")
    pages = json.loads((tmp_path / "fixed" / "jsons" / "train.json").read_text())["images"]
    assert list(pages) == ["words.jpg", "turned.jpg"]
    assert pages["words.jpg"]["words"] == {
        "good": {"points": box(20, 30), "transcription": "é", "language": "fr", "orientation": "Horizontal"},
        "bow": {"points": box(20, 55), "illegibility": True},
        "out": {"points": box(150, 30, 50), "transcription": "x"},
        "number": {"points": box(20, 80), "transcription": "12"},
    }
    turned = pages["turned.jpg"]
    assert [word["points"] for word in turned["words"].values()] == BOXES
    assert (turned["img_w"], turned["img_h"]) == SIZE


def test_leaked_pages_leave_the_training_split_of_the_copy(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add("only.jpg")
    for name in ("a.jpg", "twin of a.jpg"):
        dataset.add(name)
    leaked = dataset.add("z.jpg", split="val")
    for name in ("a.jpg", "twin of a.jpg"):
        shutil.copyfile(leaked, dataset.image_path(name))
    summary = write_fixed(dataset.examine(), tmp_path / "fixed")
    assert [(change.image, change.action, change.reason) for change in summary.changes] == [
        ("a.jpg", "page-dropped", "leaked-image"),
        ("twin of a.jpg", "page-dropped", "leaked-image"),
    ]
    again = examine(tmp_path / "fixed", show_progress=False)
    assert again.ok
    assert {split.name: list(split.annotations.pages) for split in again.splits if split.annotations} == {
        "train": ["only.jpg"],
        "val": ["z.jpg"],
    }


def test_of_two_labels_in_one_place_the_copy_keeps_one_with_the_text(dataset: SmallDataset, tmp_path: Path) -> None:
    twice = {"points": box(20, 30), "transcription": "total"}
    turned = {"points": [*box(20, 30)[2:], *box(20, 30)[:2]]}
    dataset.add(words={"1": {"points": box(20, 30)}, "2": twice, "3": turned, "4": {"points": box(20, 52)}})
    write_fixed(dataset.examine(), tmp_path / "fixed")
    (page,) = json.loads((tmp_path / "fixed" / "jsons" / "train.json").read_text())["images"].values()
    assert page["words"] == {"1": twice, "4": {"points": box(20, 52)}}
    assert examine(tmp_path / "fixed", show_progress=False).ok


def test_the_summary_lists_every_change(sick: SmallDataset, tmp_path: Path) -> None:
    summary = write_fixed(sick.examine(), tmp_path / "fixed")
    assert summary.counts() == {
        "word-dropped": 3,
        "repaired": 1,
        "clipped": 1,
        "text-quoted": 1,
        "page-dropped": 4,
        "turned": 1,
    }
    document = json.loads(summary.to_json())
    assert set(document) == {"written", "skipped", "counts", "changes"}
    assert {"split": "train", "image": "words.jpg", "word": "out", "action": "clipped", "reason": "out-of-page"} in (
        document["changes"]
    )
    dropped = {change["word"]: change["reason"] for change in document["changes"] if change["action"] == "word-dropped"}
    assert dropped == {
        "two": "bad-points: has 2 points, expected at least 3",
        "flat": "degenerate-polygon",
        "far": "out-of-page",
    }


def test_the_copy_links_the_images_and_keeps_maps_apart(sick: SmallDataset, tmp_path: Path) -> None:
    for _ in range(2):
        write_fixed(sick.examine(), tmp_path / "fixed")
    link = tmp_path / "fixed" / "images" / "train"
    assert link.resolve() == sick.image_path("words.jpg").parent.resolve()
    (link.parent / "train_maps").mkdir()
    assert not (sick.root / "images" / "train_maps").exists()


def test_a_target_that_is_the_source_is_refused_before_anything_is_written(sick: SmallDataset, tmp_path: Path) -> None:
    report = sick.examine()
    before = digests(sick.root)
    alias = tmp_path / "alias"
    alias.symlink_to(sick.root)
    for target in (sick.root, sick.root / "images" / "..", alias):
        with rejects(ConfigError, setting="--fix", value=target):
            write_fixed(report, target)
    assert digests(sick.root) == before


def test_a_hard_link_to_the_source_is_refused_too(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add()
    report = dataset.examine()
    target = tmp_path / "fixed" / "jsons" / "train.json"
    target.parent.mkdir(parents=True)
    target.hardlink_to(dataset.json_path())
    with rejects(ConfigError, setting="--fix", path=target):
        write_fixed(report, tmp_path / "fixed")


def test_annotations_that_the_doctor_did_not_write_are_never_replaced(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add()
    other = SmallDataset(tmp_path / "other")
    other.add("b.jpg")
    other.write()
    report = dataset.examine()
    before = digests(tmp_path)
    with rejects(ConfigError, setting="--fix", path=other.root / "jsons" / "train.json"):
        write_fixed(report, other.root)
    assert digests(tmp_path) == before


def test_only_what_the_record_names_is_replaced(sick: SmallDataset, tmp_path: Path) -> None:
    target = tmp_path / "fixed"
    first = write_fixed(sick.examine(splits=["train"]), target)
    assert json.loads((target / "doctor.json").read_text()) == json.loads(first.to_json())
    assert write_fixed(sick.examine(splits=["train"]), target).written == first.written
    (target / "jsons" / "val.json").write_text("precious")
    with rejects(ConfigError, setting="--fix", path=target / "jsons" / "val.json"):
        write_fixed(sick.examine(), target)
    assert (target / "jsons" / "val.json").read_text() == "precious"


@pytest.mark.parametrize("content", ["[]", "{}", "not JSON", '{"written": 3}'])
def test_another_file_of_the_name_of_the_record_is_kept(dataset: SmallDataset, tmp_path: Path, content: str) -> None:
    dataset.add()
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "doctor.json").write_text(content)
    with rejects(ConfigError, setting="--fix", path=tmp_path / "fixed" / "doctor.json"):
        write_fixed(dataset.examine(), tmp_path / "fixed")
    assert (tmp_path / "fixed" / "doctor.json").read_text() == content


def test_annotations_are_not_put_beside_the_images_of_another_dataset(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add()
    other = SmallDataset(tmp_path / "other")
    other.add("b.jpg")
    write_fixed(other.examine(), tmp_path / "fixed")
    before = digests(tmp_path)
    with rejects(ConfigError, setting="--fix", path=tmp_path / "fixed" / "images" / "train"):
        write_fixed(dataset.examine(), tmp_path / "fixed")
    assert digests(tmp_path) == before | digests(dataset.root)


def test_a_split_that_could_not_be_read_is_skipped_and_named(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add()
    dataset.pages["test"] = {}
    summary = write_fixed(dataset.examine(), tmp_path / "fixed")
    assert summary.skipped == ("test",)
    assert [path.name for path in summary.written] == ["train.json"]


def test_under_annotation_frame_raw_pages_are_turned_to_raw(dataset: SmallDataset, tmp_path: Path) -> None:
    words = {str(at): {"points": each} for at, each in enumerate(BOXES)}
    dataset.add("a.jpg", words=words, image=text_page(), orientation=8)
    write_fixed(dataset.examine(annotation_frame="raw"), tmp_path / "fixed")
    page = json.loads((tmp_path / "fixed" / "jsons" / "train.json").read_text())["images"]["a.jpg"]
    assert [word["points"] for word in page["words"].values()] == [raw_points(each, 8, SIZE) for each in BOXES]
    assert examine(tmp_path / "fixed", annotation_frame="raw", show_progress=False).ok


def test_a_misleading_page_size_is_corrected_and_the_words_left_alone(dataset: SmallDataset, tmp_path: Path) -> None:
    words = {str(at): {"points": each} for at, each in enumerate(BOXES)}
    dataset.add("a.jpg", words=words, image=text_page(), orientation=6, img_w=SIZE[1], img_h=SIZE[0])
    summary = write_fixed(dataset.examine(), tmp_path / "fixed")
    assert summary.counts() == {"page-size-set": 1}
    page = json.loads(summary.written[0].read_text())["images"]["a.jpg"]
    assert (page["img_w"], page["img_h"], page["words"]) == (*SIZE, words)
    assert examine(tmp_path / "fixed", show_progress=False).ok
