"""Bad input to OCRDataset: each kind has a message that names the culprit and the cure, and can be skipped."""

import io
import json
import logging

import numpy as np
import pytest
import torch
from PIL import Image

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.errors import AnnotationError, ConfigError, DataError, ImageError
from ocr.pipeline.prefix import Letterbox

SQUARE = [[5, 5], [45, 5], [45, 25], [5, 25]]
NAN = float("nan")


def jpeg(width=60, height=40):
    stream = io.BytesIO()
    page = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(page).save(stream, "JPEG")
    return stream.getvalue()


class Folder:
    """A split on disk that a test may spoil before it opens it."""

    def __init__(self, root):
        self.images, self.annotation = root / "images", root / "val.json"
        self.pages = {}
        self.images.mkdir()

    def add(self, name, data=None, points=SQUARE, **page):
        (self.images / name).parent.mkdir(exist_ok=True)
        (self.images / name).write_bytes(jpeg() if data is None else data)
        self.pages[name] = {"words": {"0001": {"points": points}}, **page}
        return self

    def open(self, **settings):
        if not self.annotation.exists():
            self.annotation.write_text(json.dumps({"images": self.pages}))
        arguments = {"image_path": self.images, "annotation_path": self.annotation} | settings
        return OCRDataset(transform=DBTransforms([Letterbox(64)], normalize="device"), **arguments)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def complaint(error, action):
    with pytest.raises(error) as caught:
        action()
    return str(caught.value)


def test_a_missing_folder_is_named_with_the_layout_it_should_have(folder, tmp_path):
    message = complaint(ConfigError, lambda: folder.open(image_path=tmp_path / "nowhere"))
    assert f"image_path={tmp_path / 'nowhere'} is not a folder" in message
    assert "DIR/images/<split>/" in message
    assert "dataset_base_path" in message


def test_a_file_in_place_of_the_folder_is_named(folder, tmp_path):
    (tmp_path / "file").touch()
    assert "is not a folder" in complaint(ConfigError, lambda: folder.open(image_path=tmp_path / "file"))


def test_an_empty_folder_says_which_files_it_wants(folder):
    message = complaint(ConfigError, folder.open)
    assert f"image_path={folder.images} holds no image (.jpg, .jpeg, .png" in message
    assert "ocr synth" in message


def test_a_null_split_is_refused_by_the_setting(folder):
    message = complaint(ConfigError, lambda: folder.open(image_path=None))
    assert message.startswith("image_path is null")
    assert "leave the split out" in message


def test_a_missing_json_is_named(folder, tmp_path):
    message = complaint(AnnotationError, lambda: folder.add("a.jpg").open(annotation_path=tmp_path / "gone.json"))
    assert f"{tmp_path / 'gone.json'}: no such file" in message
    assert "annotation_path" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"images": {"a.jpg": ', "not valid JSON (Expecting value"),
        ("", "the file is empty"),
        ("[]", 'it holds a list; native is {"images": {...}}'),
        ("{}", 'it holds []; native is {"images": {...}}'),
        ('{"images": null}', '"images" is None'),
        ('{"images": {"a.jpg": 7}}', "a.jpg: the page is 7"),
        ('{"images": {"a.jpg": {"words": 7}}}', 'a.jpg: "words" is 7'),
        ('{"images": {"a.jpg": {"words": {"0001": null}}}}', "a.jpg: word 0001 is None"),
    ],
)
@pytest.mark.parametrize("on_bad_sample", ["raise", "skip"])
def test_an_invalid_json_is_named_with_what_is_wrong_and_cannot_be_skipped(folder, content, words, on_bad_sample):
    folder.add("a.jpg").annotation.write_text(content)
    message = complaint(AnnotationError, lambda: folder.open(on_bad_sample=on_bad_sample))
    assert message.startswith(str(folder.annotation))
    assert words in message


def test_an_annotation_without_pages_is_named(folder):
    folder.add("a.jpg").annotation.write_text('{"images": {}}')
    message = complaint(AnnotationError, folder.open)
    assert f"{folder.annotation} names no usable image of {folder.images}" in message


BAD_POINTS = {
    "strings": ([["5", "5"], ["45", "5"], ["45", "25"]], "has '5' for a coordinate, which is not a number"),
    "NaN": ([[5, 5], [NAN, 5], [45, 25]], "has nan for a coordinate, which is not finite"),
    "two points": ([[5, 5], [45, 5]], "has 2 points, and a polygon needs 3"),
    "no points": ([], "has 0 points"),
    "null": (None, "is not a list of points"),
    "flat": ([5, 5, 45, 5, 45, 25], "has 5 for a point, which is not [x, y]"),
}


@pytest.mark.parametrize(("points", "words"), BAD_POINTS.values(), ids=BAD_POINTS)
def test_bad_points_name_file_page_and_word_and_are_skipped_on_demand(folder, points, words, caplog):
    folder.add("good.jpg").add("bad.jpg", points=points)
    message = complaint(AnnotationError, folder.open)
    assert message.startswith(f"{folder.annotation}: bad.jpg: word 0001: points")
    assert words in message
    assert "ocr doctor" in message
    with caplog.at_level(logging.WARNING):
        dataset = folder.open(on_bad_sample="skip")
    assert len(dataset) == 1
    assert list(dataset.source.skipped) == ["bad.jpg"]
    assert words in caplog.text


def test_a_missing_image_is_named_and_skipped_on_demand(folder):
    folder.add("good.jpg").add("gone.jpg")
    (folder.images / "gone.jpg").unlink()
    message = complaint(ImageError, folder.open)
    assert f"{folder.images / 'gone.jpg'} is in {folder.annotation} but not on disk" in message
    assert "ocr doctor" in message
    dataset = folder.open(on_bad_sample="skip")
    assert (len(dataset), list(dataset.source.skipped)) == (1, ["gone.jpg"])


def test_a_name_that_leaves_the_folder_is_refused(folder):
    folder.add("good.jpg").add("../outside.jpg")
    message = complaint(AnnotationError, folder.open)
    assert "'../outside.jpg' points outside" in message
    assert list(folder.open(on_bad_sample="skip").source.skipped) == ["../outside.jpg"]


BAD_IMAGES = {
    "not an image": (b"This is a receipt.", "not an image that can be read (18 bytes"),
    "zero bytes": (b"", "the file is empty (0 bytes)"),
    "truncated": (jpeg()[:900], "image file is truncated"),
    "1x1": (jpeg(1, 1), "1x1 pixels cannot hold text"),
}


@pytest.mark.parametrize(("data", "words"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_a_bad_image_raises_by_default_and_names_the_file_and_the_cure(folder, data, words):
    dataset = folder.add("good.jpg").add("bad.jpg", data).open()
    assert dataset[0] is not None
    message = complaint(ImageError, lambda: dataset[1])
    assert message.startswith(f"{folder.images / 'bad.jpg'}: ")
    assert words in message
    assert "on_bad_sample=skip" in message


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize(("data", "words"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_a_skipped_image_is_none_counted_and_left_out_of_its_batch(folder, data, words, preload, caplog):
    folder.add("a.jpg").add("bad.jpg", data).add("c.jpg").add("worse.jpg", data)
    dataset = folder.open(on_bad_sample="skip", preload_images=preload)
    with caplog.at_level(logging.WARNING):
        items = [dataset[index] for index in range(4)]
    assert [item is None for item in items] == [False, True, False, True]
    assert words in caplog.text
    assert dataset.ledger.totals()["skipped"] == 2
    assert dataset.ledger.files("skipped") == ["bad.jpg", "worse.jpg"]
    batch = DBCollateFN()(items)
    assert batch["image_filename"] == ["a.jpg", "c.jpg"]
    assert batch["images"].shape == (2, 3, 64, 64)
    assert DBCollateFN()([items[1], items[3]]) is None


def test_preloading_stops_at_a_bad_image_unless_it_may_skip(folder):
    folder.add("good.jpg").add("bad.jpg", b"")
    assert "bad.jpg" in complaint(ImageError, lambda: folder.open(preload_images=True))


def test_a_mildly_corrupt_image_is_used_and_counted(folder):
    dataset = folder.add("sound.jpg").add("no_end.jpg", jpeg()[:-2]).open()
    sound, recovered = dataset[0], dataset[1]
    assert torch.equal(sound["image"], recovered["image"])
    assert dataset.ledger.totals()["recovered"] == 1
    assert dataset.ledger.files("recovered") == ["no_end.jpg"]


@pytest.mark.parametrize("words", [{}, None, []])
def test_a_page_without_words_is_fine_and_teaches_that_there_is_no_text(folder, words):
    folder.add("a.jpg").pages["a.jpg"]["words"] = words
    item = folder.open()[0]
    assert item["polygons"] == []
    assert not item["prob_map"].any()
    assert item["prob_mask"].all()
    assert not item["thresh_mask"].any()


def test_a_page_that_nobody_annotated_teaches_nothing(folder):
    item = folder.add("a.jpg").open(annotation_path=None)[0]
    assert item["polygons"] == []
    assert not item["prob_mask"].any()
    assert not item["thresh_mask"].any()


def test_images_in_subfolders_are_read(folder):
    (folder.images / "day").mkdir()
    dataset = folder.add("day/a.jpg").open()
    assert dataset[0]["image_filename"] == "day/a.jpg"
    assert dataset[0]["image_path"] == str(folder.images / "day" / "a.jpg")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"image_loading_config": {"scald": "off"}},
            "image_loading_config has no setting 'scald': did you mean scaled",
        ),
        ({"image_loading_config": {"scaled": "on"}}, "decode.scaled='on': Known: auto, off"),
        ({"image_loading_config": {"annotation_frame": "up"}}, "annotation_frame='up'"),
        ({"image_loading_config": {"needed_side": 9}}, "no setting 'needed_side'"),
        ({"on_bad_sample": "ignore"}, "on_bad_sample='ignore' is not one of raise, skip"),
        ({"image_extensions": ".jpg"}, "image_extensions='.jpg' must be a list, such as ['.jpg', '.png']"),
        ({"image_extensions": [".tiff"]}, "holds no image (.tiff)"),
        ({"annotation_format": "natif"}, "annotation_format=natif: did you mean native"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_the_first_image_is_read(folder, settings, words):
    folder.add("a.jpg", b"never read")
    assert words in complaint(ConfigError, lambda: folder.open(**settings))


def test_image_loading_settings_reach_the_decoder(folder):
    dataset = folder.add("a.jpg").open(image_loading_config={"scaled": False, "max_pixels": 2399})
    assert (dataset.decode.scaled, dataset.decode.needed_side) == ("off", 64)
    assert "60x40" in complaint(ImageError, lambda: dataset[0])


def test_an_index_out_of_range_ends_a_loop_over_the_dataset(folder):
    dataset = folder.add("a.jpg").add("b.jpg").open()
    assert [item["image_filename"] for item in dataset] == ["a.jpg", "b.jpg"]
    assert dataset[-1]["image_filename"] == "b.jpg"
    assert "sample 2 of 2" in complaint(IndexError, lambda: dataset[2])


def test_all_of_these_are_caught_as_bad_data(folder):
    dataset = folder.add("bad.jpg", b"").open()
    with pytest.raises(DataError):
        dataset[0]
