"""Annotations for labelling tools are in the frame of the upright page, whatever frame they were in."""

import json

import numpy as np
import pytest
from PIL import Image
from rejection import rejects

from ocr.errors import ConfigError
from ocr.formats import read_annotations
from ocr.tools.convert_annotations import convert_annotations

RAW = [[10, 20], [30, 20], [30, 28], [10, 28]]
# Orientation 6 turns the stored page of 60 x 40 clockwise: x becomes 39 - y, y becomes x.
UPRIGHT = [[19, 10], [19, 30], [11, 30], [11, 10]]


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(folder / "a.jpg", exif=exif)
    return folder


def convert(tmp_path, images, points, size, **options):
    page = {"words": {"1": {"points": points}}, **({"img_w": size[0], "img_h": size[1]} if size else {})}
    (tmp_path / "a.json").write_text(json.dumps({"images": {"a.jpg": page}}))
    target = tmp_path / "tasks.json"
    done = convert_annotations(tmp_path / "a.json", target, image_path=images, overwrite=True, **options)
    return done, read_annotations(target).pages["a.jpg"]


@pytest.mark.parametrize(
    ("to", "points", "size", "frame", "turned"),
    [
        ("label_studio", RAW, (60, 40), "auto", 1),
        ("cvat", RAW, None, "raw", 1),
        ("coco", UPRIGHT, (40, 60), "auto", 0),
        ("label_studio", UPRIGHT, None, "upright", 0),
    ],
)
def test_words_are_moved_into_the_upright_frame(tmp_path, images, to, points, size, frame, turned):
    done, page = convert(tmp_path, images, points, size, to=to, annotation_frame=frame)
    assert (page.words[0].points, page.size, done.turned) == (UPRIGHT, (40, 60), turned)


def test_the_native_json_stays_in_the_frame_it_was_in(tmp_path, images):
    done, page = convert(tmp_path, images, RAW, (60, 40))
    assert (page.words[0].points, page.size, done.turned) == (RAW, (60, 40), 0)


def test_files_of_a_folder_are_not_replaced_unasked(tmp_path, images):
    (tmp_path / "a.json").write_text(json.dumps({"images": {"a.jpg": {"words": {}}}}))
    for overwrite in (False, True):
        convert_annotations(tmp_path / "a.json", images, image_path=images, to="labelme", overwrite=overwrite)
        assert json.loads((images / "a.json").read_text())["imagePath"] == "a.jpg"
    with rejects(ConfigError, setting="target", path=images / "a.json"):
        convert_annotations(tmp_path / "a.json", images, image_path=images, to="labelme")
    with rejects(ConfigError, setting="target", path=tmp_path / "a.json"):
        convert_annotations(tmp_path / "a.json", tmp_path / "a.json", to="labelme")
