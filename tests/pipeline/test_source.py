"""source: which files are pages, by which names, and what is checked before the first is read."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError, ImageError
from ocr.pipeline.image_listing import ImageListing
from ocr.pipeline.source import open_folder

SQUARE = [[2, 2], [20, 2], [20, 12], [2, 12]]


def write_images(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(folder / name)
    return folder


def write_annotation(path, *names, **page):
    words = {"0001": {"points": SQUARE, "transcription": "a"}}
    path.write_text(json.dumps({"images": {name: {"words": words, **page} for name in names}}))
    return path


def test_pages_come_in_the_order_of_the_annotation(tmp_path):
    folder = write_images(tmp_path / "images", "b.jpg", "a.png", "c.jpg")
    source = open_folder(folder, write_annotation(tmp_path / "a.json", "c.jpg", "a.png", img_w=40, img_h=30))
    assert [entry.filename for entry in source.entries] == ["c.jpg", "a.png"]
    assert len(source) == 2
    sample = source.read(1)
    assert (sample.index, sample.filename, sample.path) == (1, "a.png", str(folder / "a.png"))
    assert sample.encoded == (folder / "a.png").read_bytes()
    assert sample.claimed_size == (40, 30)
    assert sample.annotated
    assert sample.polygons.vertices.tolist() == SQUARE


def test_without_an_annotation_pages_come_by_name_and_count_as_not_annotated(tmp_path):
    folder = write_images(tmp_path / "images", "b.jpg", "sub/c.jpg", "a.PNG")
    (folder / "notes.txt").write_text("no image")
    source = open_folder(folder, None)
    assert [entry.filename for entry in source.entries] == ["a.PNG", "b.jpg", "sub/c.jpg"]
    assert not source.read(0).annotated
    assert len(source.read(0).polygons) == 0


@pytest.mark.parametrize("written", ["sub/a.jpg", "./sub/a.jpg", "sub\\a.jpg", "sub//a.jpg"])
def test_an_image_in_a_subfolder_is_found_however_its_path_is_written(tmp_path, written):
    folder = write_images(tmp_path / "images", "sub/a.jpg")
    source = open_folder(folder, write_annotation(tmp_path / "a.json", written))
    assert source.read(0).filename == "sub/a.jpg"
    assert source.read(0).encoded


def test_images_behind_a_linked_folder_are_found(tmp_path):
    elsewhere = write_images(tmp_path / "elsewhere", "a.jpg")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "part").symlink_to(elsewhere)
    source = open_folder(tmp_path / "images", write_annotation(tmp_path / "a.json", "part/a.jpg"))
    assert source.read(0).encoded


def test_a_link_back_to_a_folder_above_it_is_skipped_and_told(tmp_path, caplog):
    folder = write_images(tmp_path / "images", "sub/a.jpg", "other/b.jpg")
    for link, target in (("sub/up", folder), ("sub/here", folder / "sub"), ("sub/cross", folder / "other")):
        (folder / link).symlink_to(target)
    (folder / "other" / "cross").symlink_to(folder / "sub")
    (folder / "itself.jpg").symlink_to(folder / "itself.jpg")
    found = sorted(ImageListing(folder, (".jpg",)))
    assert found == ["itself.jpg", "other/b.jpg", "other/cross/a.jpg", "sub/a.jpg", "sub/cross/b.jpg"]
    assert f"{folder}/sub/up" in caplog.text
    assert f"{folder}/other/cross/cross" in caplog.text


@pytest.mark.parametrize("written", ["../secret.jpg", "sub/../../secret.jpg", "..\\secret.jpg", "/etc/secret.jpg"])
def test_a_name_that_leaves_the_folder_is_refused_even_if_the_file_exists(tmp_path, written):
    folder = write_images(tmp_path / "images", "a.jpg", "../secret.jpg")
    annotation = write_annotation(tmp_path / "a.json", "a.jpg", written)
    with rejects(AnnotationError, value=written, path=annotation):
        open_folder(folder, annotation)
    source = open_folder(folder, annotation, on_bad_sample="skip")
    assert len(source) == 1
    assert written in source.skipped


def test_extensions_are_taken_with_or_without_a_dot_and_in_any_case(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg", "b.png", "c.bmp")
    for extensions in (["jpg", ".PNG"], (".JPG", "png")):
        source = open_folder(folder, None, image_extensions=extensions)
        assert [entry.filename for entry in source.entries] == ["a.jpg", "b.png"]


def test_an_annotated_image_of_another_extension_is_left_out_with_its_reason(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg", "b.png")
    annotation = write_annotation(tmp_path / "a.json", "a.jpg", "b.png")
    source = open_folder(folder, annotation, image_extensions=["jpg"])
    assert [entry.filename for entry in source.entries] == ["a.jpg"]
    assert source.skipped == {"b.png": "its extension is not one of image_extensions=.jpg"}


def test_a_file_that_vanished_since_is_named_with_the_reason(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg")
    source = open_folder(folder, write_annotation(tmp_path / "a.json", "a.jpg"))
    (folder / "a.jpg").unlink()
    with rejects(ImageError, path=folder / "a.jpg"):
        source.read(0)


def test_when_every_page_is_bad_the_first_reason_is_told(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg")
    annotation = write_annotation(tmp_path / "a.json", "gone.jpg", "lost.jpg")
    with rejects(AnnotationError, value=["gone.jpg", "lost.jpg"], path=annotation):
        open_folder(folder, annotation, on_bad_sample="skip")


def test_the_folder_may_be_given_as_text_or_as_a_path(tmp_path, monkeypatch):
    write_images(tmp_path / "images", "a.jpg")
    annotation = write_annotation(tmp_path / "a.json", "a.jpg")
    monkeypatch.chdir(tmp_path)
    assert len(open_folder("images", "a.json")) == len(open_folder(Path("images"), annotation)) == 1


def test_all_pages_that_cannot_be_used_are_listed_at_once(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg", "b.jpg")
    pages = {
        "a.jpg": {"words": {"1": {"points": [[1, 2]]}, "2": {"points": SQUARE}, "3": {"points": "x"}}},
        "b.jpg": {"words": {"1": {"points": SQUARE}}},
        "gone.jpg": {"words": {}},
    }
    (tmp_path / "a.json").write_text(json.dumps({"images": pages}))
    with pytest.raises(AnnotationError) as caught:
        open_folder(folder, tmp_path / "a.json")
    lines = str(caught.value).split("\n")
    named = ("a.jpg: word 1", "a.jpg: word 3", "gone.jpg")
    assert all(name in line for name, line in zip(named, lines, strict=True))
    assert list(open_folder(folder, tmp_path / "a.json", on_bad_sample="skip").skipped) == ["a.jpg", "gone.jpg"]


def test_what_was_skipped_or_assumed_in_the_annotation_is_logged(tmp_path, caplog):
    folder = write_images(tmp_path / "images", "a.jpg")
    (folder / "a.txt").write_text("2,2,20,2,20,12,2,12,a\n115,322,###\n")
    assert len(open_folder(folder, folder).entries[0].polygons) == 1
    assert "a.txt, line 2" in caplog.text


def test_categories_reach_the_annotation(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg")
    root = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "text"}, {"id": 2, "name": "figure"}],
        "annotations": [{"id": at, "image_id": 1, "category_id": at, "bbox": [0, 0, 9, 5]} for at in (1, 2)],
    }
    (tmp_path / "a.json").write_text(json.dumps(root))
    counts = [
        len(open_folder(folder, tmp_path / "a.json", annotation_categories=categories).entries[0].polygons)
        for categories in ("auto", ["figure", "text"])
    ]
    assert counts == [1, 2]


def test_an_unknown_annotation_format_is_refused_with_the_known_ones(tmp_path):
    folder = write_images(tmp_path / "images", "a.jpg")
    annotation = write_annotation(tmp_path / "a.json", "a.jpg")
    with rejects(ConfigError, setting="annotation_format", value="icdar2016"):
        open_folder(folder, annotation, annotation_format="icdar2016")
