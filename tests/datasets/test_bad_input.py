"""Bad input to OCRDataset: each kind has an error that names what is wrong, and can be skipped; odd words are kept."""

import io
import json
import logging

import numpy as np
import pytest
import torch
from PIL import Image
from rejection import rejects

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.errors import AnnotationError, ConfigError, DataError, GlyphFeedError, ImageError, ImageSizeError
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import RandomFlip
from ocr.training.callbacks.data_report import describe

SQUARE = [[5, 5], [45, 5], [45, 25], [5, 25]]
NAN = float("nan")


def jpeg(width=60, height=40):
    stream = io.BytesIO()
    page = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(page).save(stream, "JPEG")
    return stream.getvalue()


class Folder:
    """A split on disk that a test can spoil before it opens it."""

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
        transform = DBTransforms([Letterbox(64)], normalize="device")
        arguments = {"image_path": self.images, "annotation_path": self.annotation, "transform": transform} | settings
        return OCRDataset(**arguments)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_path_that_is_no_folder_is_named(folder, tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "nowhere", tmp_path / "file"):
        with rejects(ConfigError, setting="image_path", value=None, path=place):
            folder.open(image_path=place)


def test_an_empty_folder_says_which_files_it_wants(folder):
    with rejects(ConfigError, setting="image_path", value=IMAGE_EXTENSIONS, path=folder.images):
        folder.open()


def test_a_null_split_is_refused_by_the_setting(folder):
    with rejects(ConfigError, setting="image_path", value=None, path=None):
        folder.open(image_path=None)


def test_a_missing_json_is_named(folder, tmp_path):
    with rejects(AnnotationError, setting="annotation_path", path=tmp_path / "gone.json"):
        folder.add("a.jpg").open(annotation_path=tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("content", "setting", "value"),
    [
        ('{"images": {"a.jpg": ', None, "Expecting value: line 1 column 22 (char 21)"),
        ("", None, ""),
        ("[]", None, "a list"),
        ("{}", None, "[]"),
        ('{"images": null}', "images", None),
        ('{"images": {"a.jpg": 7}}', None, 7),
        ('{"images": {"a.jpg": {"words": 7}}}', "words", 7),
        ('{"images": {"a.jpg": {"words": {"0001": null}}}}', None, None),
    ],
)
@pytest.mark.parametrize("on_bad_sample", ["raise", "skip"])
def test_an_invalid_json_is_named_and_cannot_be_skipped(folder, content, setting, value, on_bad_sample):
    folder.add("a.jpg").annotation.write_text(content)
    with rejects(AnnotationError, setting=setting, value=value, path=folder.annotation):
        folder.open(on_bad_sample=on_bad_sample)


def test_an_annotation_without_pages_is_named(folder):
    folder.add("a.jpg").annotation.write_text('{"images": {}}')
    with rejects(AnnotationError, value=[], path=folder.annotation):
        folder.open()


BAD_POINTS = {
    "strings": [["5", "5"], ["45", "5"], ["45", "25"]],
    "NaN": [[5, 5], [NAN, 5], [45, 25]],
    "two points": [[5, 5], [45, 5]],
    "no points": [],
    "null": None,
    "flat": [5, 5, 45, 5, 45, 25],
}


@pytest.mark.parametrize("points", BAD_POINTS.values(), ids=BAD_POINTS)
def test_bad_points_name_file_page_and_word_and_are_skipped_on_demand(folder, points, caplog):
    folder.add("good.jpg").add("bad.jpg", points=points)
    with rejects(AnnotationError, setting="points", path=folder.annotation) as caught:
        folder.open()
    assert repr(caught.value.value) == repr(points)  # NaN is not equal to itself.
    assert str(caught.value).startswith(f"{folder.annotation}: bad.jpg: word 0001: ")
    with caplog.at_level(logging.WARNING):
        dataset = folder.open(on_bad_sample="skip")
    assert len(dataset) == 1
    assert list(dataset.source.skipped) == ["bad.jpg"]
    assert "bad.jpg: word 0001: " in caplog.text


def test_a_missing_image_is_named_and_skipped_on_demand(folder):
    folder.add("good.jpg").add("gone.jpg")
    (folder.images / "gone.jpg").unlink()
    with rejects(ImageError, value=None, path=folder.images / "gone.jpg"):
        folder.open()
    dataset = folder.open(on_bad_sample="skip")
    assert (len(dataset), list(dataset.source.skipped)) == (1, ["gone.jpg"])


def test_a_name_that_leaves_the_folder_is_refused(folder):
    folder.add("good.jpg").add("../outside.jpg")
    with rejects(AnnotationError, value="../outside.jpg", path=folder.annotation):
        folder.open()
    assert list(folder.open(on_bad_sample="skip").source.skipped) == ["../outside.jpg"]


BAD_IMAGES = {
    "not an image": (b"This is a receipt.", b"This is "),
    "zero bytes": (b"", b""),
    "truncated": (jpeg()[:900], None),
    "1x1": (jpeg(1, 1), (1, 1)),
}


@pytest.mark.parametrize(("data", "value"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_a_bad_image_raises_by_default_and_names_the_file(folder, data, value):
    dataset = folder.add("good.jpg").add("bad.jpg", data).open()
    assert dataset[0] is not None
    with rejects(ImageError, value=value, path=folder.images / "bad.jpg"):
        dataset[1]
    with rejects(DataError, value=value, path=folder.images / "bad.jpg"):
        folder.open(preload_images=True)


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize(("data", "value"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_a_skipped_image_is_none_counted_and_left_out_of_its_batch(folder, data, value, preload, caplog):
    folder.add("a.jpg").add("bad.jpg", data).add("c.jpg").add("worse.jpg", data)
    dataset = folder.open(on_bad_sample="skip", preload_images=preload)
    with caplog.at_level(logging.WARNING):
        items = [dataset[index] for index in range(4)]
    assert [item is None for item in items] == [False, True, False, True]
    assert str(folder.images / "bad.jpg") in caplog.text
    assert dataset.ledger.totals()["skipped"] == 2
    assert dataset.ledger.files("skipped") == ["bad.jpg", "worse.jpg"]
    batch = DBCollateFN()(items)
    assert batch["image_filename"] == ["a.jpg", "c.jpg"]
    assert batch["images"].shape == (2, 3, 64, 64)
    assert DBCollateFN()([items[1], items[3]]) is None


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


def test_a_page_without_annotation_teaches_nothing(folder):
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
    ("settings", "setting", "value"),
    [
        ({"image_loading_config": {"scald": "off"}}, "image_loading_config", "scald"),
        ({"image_loading_config": {"scaled": "on"}}, "decode.scaled", "on"),
        ({"image_loading_config": {"annotation_frame": "up"}}, "decode.annotation_frame", "up"),
        ({"image_loading_config": {"needed_side": 9}}, "image_loading_config", "needed_side"),
        ({"on_bad_sample": "ignore"}, "on_bad_sample", "ignore"),
        ({"image_extensions": ".jpg"}, "image_extensions", ".jpg"),
        ({"image_extensions": [".tiff"]}, "image_path", (".tiff",)),
        ({"annotation_format": "natif"}, "annotation_format", "natif"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_the_first_image_is_read(folder, settings, setting, value):
    folder.add("a.jpg", b"never read")
    with rejects(ConfigError, setting=setting, value=value):
        folder.open(**settings)


def test_image_loading_settings_reach_the_decoder(folder):
    dataset = folder.add("a.jpg").open(image_loading_config={"scaled": False, "max_pixels": 2399})
    assert (dataset.decode.scaled, dataset.decode.needed_side) == ("off", 64)
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(60, 40), path=folder.images / "a.jpg"):
        dataset[0]


def test_an_index_out_of_range_ends_a_loop_over_the_dataset(folder):
    dataset = folder.add("a.jpg").add("b.jpg").open()
    assert [item["image_filename"] for item in dataset] == ["a.jpg", "b.jpg"]
    assert dataset[-1]["image_filename"] == "b.jpg"
    with pytest.raises(IndexError):
        dataset[2]


BOX = [[10, 60], [110, 60], [110, 90], [10, 90]]
BOW_TIE = [[10, 10], [110, 40], [110, 10], [10, 40]]
UNEVEN = [[10, 10], [110, 25], [110, 10], [10, 40]]
SCRIBBLE = (np.random.default_rng(0).uniform(0, 1, (3000, 2)) * (100, 30) + 10).tolist()
CONTOUR = (np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 6.28, 3000)]) * 15 + (60, 25)).tolist()


def open_page(folder, *words, **settings):
    """One page of 128x128 whose words are these points and flags."""
    (folder / "images").mkdir(exist_ok=True)
    Image.fromarray(np.full((128, 128, 3), 200, np.uint8)).save(folder / "images" / "a.png")
    entries = {str(at): {"points": points, "illegibility": ignore} for at, (points, ignore) in enumerate(words)}
    (folder / "a.json").write_text(json.dumps({"images": {"a.png": {"words": entries}}}))
    transform = DBTransforms([Letterbox(128)], normalize="device")
    return OCRDataset(folder / "images", folder / "a.json", transform, **settings)


@pytest.mark.parametrize("points", [BOW_TIE, UNEVEN, SCRIBBLE], ids=["bow-tie", "uneven", "scribble"])
@pytest.mark.parametrize("ignore", [False, True], ids=["word", "ignore region"])
def test_a_crossed_word_is_masked_out_of_the_loss_and_counted(tmp_path, points, ignore):
    cached = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    # Made without a cache, for a cache, and read from it.
    for settings in ({}, cached, cached):
        dataset = open_page(tmp_path, (points, ignore), (BOX, False), **settings)
        (batch,) = list(Loader(dataset, 1, 0))
        assert not batch["prob_masks"][0, 0, 15:24, 15:50].any(), "all of its left half"
        assert not batch["prob_maps"][0, 0, :45].any()
        assert not batch["thresh_masks"][0, 0, 15:24, 15:50].any()
        assert batch["prob_masks"][0, 0, 50:].all()
        assert batch["prob_maps"][0, 0, 75, 60] == 1
        assert batch["ignore"][0].tolist() == [True, False]
        totals = dataset.ledger.totals()
        assert (totals["crossed_polygons"], totals["dropped_polygons"]) == (1, 0)
        assert dataset.ledger.files("crossed_polygons") == ["a.png"]
        assert "1 polygons crossed" in describe(dataset, totals)


def test_an_outline_of_thousands_of_vertices_is_learnt_and_counted(tmp_path):
    dataset = open_page(tmp_path, (CONTOUR, False), (BOX, False))
    item = dataset[0]
    assert item["prob_map"][0, 25, 60] == 1
    assert item["prob_mask"].all()
    assert [polygon.shape for polygon in item["polygons"]] == [(1, 1000, 2), (1, 4, 2)]
    assert dataset.ledger.totals()["simplified_polygons"] == 1
    assert "1 polygons of more than 1000 vertices" in describe(dataset, dataset.ledger.totals())


def test_wording_of_errors_about_datasets(folder, tmp_path, snapshot):
    shown = []

    def show(action):
        with pytest.raises(GlyphFeedError) as caught:
            action()
        shown.append(str(caught.value))

    show(lambda: folder.open(image_path=tmp_path / "nowhere"))
    show(folder.open)
    show(lambda: folder.open(image_path=None))
    folder.annotation.unlink()
    folder.add("bad.jpg", b"This is a receipt.").add("empty.jpg", b"").add("dot.jpg", jpeg(1, 1))
    show(lambda: folder.open(image_loading_config={"scald": "off"}))
    show(lambda: folder.open(on_bad_sample="ignore"))
    show(lambda: folder.open(cache="prefix"))
    show(lambda: folder.open(preload_maps=True, transform=[Letterbox(64), RandomFlip()]))
    dataset = folder.open()
    for index in range(3):
        show(lambda index=index: dataset[index])
    for number, content in enumerate(
        (
            '{"images": {"bad.jpg": {"words": {"0001": {"points": [[5, 5], [45, 5]]}}}}}',
            '{"images": {"gone.jpg": {"words": {}}}}',
            '{"images": {}}',
        )
    ):
        (tmp_path / f"{number}.json").write_text(content)
        show(lambda number=number: folder.open(annotation_path=tmp_path / f"{number}.json"))
    show(lambda: DBTransforms([Normalize(), Letterbox(64)]))
    show(lambda: DBTransforms([Letterbox(64), 42]))
    snapshot("dataset_errors", "\n".join(shown))
