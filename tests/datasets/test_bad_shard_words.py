"""The words of a shard are judged as those of a folder: named, or skipped and counted, whichever way it is read."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from ocr.dali.graph import ocr_pipeline
from ocr.datasets import DALIDataLoader, DBTransforms, OCRWebDataset
from ocr.datasets.webstream import OCRWebStream
from ocr.errors import AnnotationError
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.shards.index import end_tar, write_member
from ocr.shards.storage import Storage

SQUARE = [[5, 5], [45, 5], [45, 25], [5, 25]]
TRANSFORM = DBTransforms([Letterbox(64), Normalize()], normalize="device")
NAMES = ["00000000.jpg", "00000001.jpg", "00000002.jpg"]


def sound(**changes):
    return {"filename": "", "polygons": [SQUARE], "ignore": [False], "texts": ["a"], "size": [60, 40]} | changes


BAD = {
    "a coordinate of 1e30": (sound(polygons=[[[5, 5], [1e30, 5], [45, 25]]]), "too large to be a pixel"),
    "NaN": (sound(polygons=[[[5, 5], [float("nan"), 5], [45, 25]]]), "which is not finite"),
    "infinity": (sound(polygons=[[[5, 5], [float("inf"), 5], [45, 25]]]), "which is not finite"),
    "two points": (sound(polygons=[[[5, 5], [45, 5]]]), "has 2 points, and a polygon needs 3"),
    "text for a coordinate": (sound(polygons=[[["5", 5], [45, 5], [45, 25]]]), "which is not a number"),
    "a point of three numbers": (sound(polygons=[[[5, 5, 5], [45, 5, 5], [45, 25, 5]]]), r"which is not \[x, y\]"),
    "an object for polygons": (sound(polygons={"0": SQUARE}), "must be lists of the same length"),
    "a number for polygons": (sound(polygons=7), "must be lists of the same length"),
    "null for a polygon": (sound(polygons=[None]), "is not a list of points"),
    "an object for a polygon": (sound(polygons=[{"0": 1}]), "is not a list of points"),
    "too few flags": (sound(polygons=[SQUARE, SQUARE], texts=[]), "must be lists of the same length"),
    "too many texts": (sound(texts=["a", "b"]), "must be lists of the same length"),
    "a flag that is text": (sound(ignore=["no"]), "ignore is 'no': write true or false"),
    "a text that is a number": (sound(texts=[7]), "transcription 7 is not text"),
    "a size of one number": (sound(size=[60]), "the page's size is"),
    "a size of text": (sound(size=["a", "b"]), "the page's size is"),
    "a list": ([], "not JSON"),
    "a number": (7, "holds no JSON object"),
    "text": ('"', "not JSON"),
    "deep nesting": ("[" * 200_000 + "]" * 200_000, "not JSON"),
    "deep nesting in a polygon": ('{"polygons": [' + "[" * 200_000 + "]" * 200_000 + "]}", "not JSON"),
}


def write_tar(path, document):
    """Three pages; the second has this JSON."""
    stream, page = io.BytesIO(), io.BytesIO()
    Image.fromarray(np.full((40, 60, 3), 200, np.uint8)).save(page, "JPEG")
    for number in range(3):
        content = document if number == 1 else sound()
        text = content if isinstance(content, str) else json.dumps(content)
        write_member(stream, f"{number:08d}.jpg", page.getvalue())
        write_member(stream, f"{number:08d}.json", text.encode())
    end_tar(stream)
    path.write_bytes(stream.getvalue())
    return str(path)


@pytest.mark.parametrize(("document", "fault"), BAD.values(), ids=BAD)
def test_a_bad_annotation_is_named_or_skipped_and_counted(tmp_path, document, fault):
    tar = write_tar(tmp_path / "a.tar", document)
    with pytest.raises(AnnotationError, match=fault) as caught:
        OCRWebDataset(tar, TRANSFORM)[1]
    assert "a.tar: 00000001" in str(caught.value)
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip")
    assert [item is None for item in map(dataset.__getitem__, range(3))] == [False, True, False]
    assert dataset.ledger.files("skipped") == [NAMES[1]]


@pytest.mark.parametrize("cache", ["prefix", "auto"])
def test_a_bad_annotation_is_skipped_with_a_cache_too(tmp_path, cache):
    tar = write_tar(tmp_path / "a.tar", BAD["NaN"][0])
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip", cache=cache, cache_folder=tmp_path / "cache")
    for _ in range(2):
        (batch,) = list(Loader(dataset, 3, 2))
        assert batch["image_filename"] == [NAMES[0], NAMES[2]]
        assert dataset.ledger.files("skipped") == [NAMES[1]]


@pytest.mark.parametrize("kind", ["a coordinate of 1e30", "two points", "deep nesting"])
def test_a_stream_skips_and_counts_it(tmp_path, kind):
    tar = write_tar(tmp_path / "a.tar", BAD[kind][0])
    stream = OCRWebStream([tar], Storage(tmp_path / "kept"), TRANSFORM, on_bad_sample="skip")
    (batch,) = list(Loader(stream, 3, 2))
    assert batch["image_filename"] == [NAMES[0], NAMES[2]]
    assert stream.ledger.files("skipped") == [NAMES[1]]


@pytest.mark.skipif(sys.platform != "linux", reason="DALI is for Linux")
def test_dali_skips_and_counts_it(tmp_path):
    tar = write_tar(tmp_path / "a.tar", BAD["a coordinate of 1e30"][0])
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip")
    (batch,) = list(DALIDataLoader(ocr_pipeline(dataset, 3, 2, device="cpu"), len(dataset), 3))
    assert batch["image_filename"] == [NAMES[0], NAMES[2]]
    assert dataset.ledger.files("skipped") == [NAMES[1]]
