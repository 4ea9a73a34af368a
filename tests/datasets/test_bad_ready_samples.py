"""Ready samples whose JSON or arrays are not those of a page: named, or skipped and counted."""

import io
import json

import numpy as np
import pytest

from ocr.datasets import DBTransforms, OCRWebDataset
from ocr.errors import DataError
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.shards.index import end_tar, write_member

SIDE = 64
SQUARE = [[5, 5], [45, 5], [45, 25], [5, 25]]
TRANSFORM = DBTransforms([Letterbox(SIDE), Normalize()])
DOCUMENT = {
    **{"filename": "a.jpg", "annotated": True, "polygons": [SQUARE], "ignore": [False], "texts": [None]},
    **{"shape": [SIDE, SIDE], "raw_size": [SIDE, SIDE], "orientation": 1, "polygon_frame": "upright", "recovered": ""},
    **{"dropped_polygons": 0, "crossed_polygons": 0, "simplified_polygons": 0},
    "inverse_matrix": [1, 0, 0, 0, 1, 0, 0, 0, 1],
}
ARRAYS = {
    "image": np.zeros((SIDE, SIDE, 3), np.uint8),
    **dict.fromkeys(("prob_map", "thresh_map"), np.zeros((SIDE, SIDE), np.float32)),
    **dict.fromkeys(("prob_mask", "thresh_mask"), np.zeros((SIDE, SIDE), np.bool_)),
}


def write_tar(path, document, arrays):
    """Two samples; the second is DOCUMENT and ARRAYS with these changes."""
    stream = io.BytesIO()
    for number, changes in enumerate(({}, arrays)):
        for name, array in (ARRAYS | changes).items():
            saved = io.BytesIO()
            np.save(saved, array)
            write_member(stream, f"{number:08d}.{name}.npy", saved.getvalue())
        content = json.dumps(DOCUMENT | (document if number else {}))
        write_member(stream, f"{number:08d}.json", content.encode())
    end_tar(stream)
    path.write_bytes(stream.getvalue())
    return str(path)


def test_a_sound_sample_is_read(tmp_path):
    (batch,) = Loader(OCRWebDataset(write_tar(tmp_path / "a.tar", {}, {}), TRANSFORM), 2)
    assert batch["images"].shape == (2, 3, SIDE, SIDE)


BAD = {
    "a page of five channels": ({}, {"image": np.zeros((SIDE, SIDE, 5), np.uint8)}),
    "a page without channels": ({}, {"image": np.zeros((SIDE, SIDE), np.uint8)}),
    "a page of doubles": ({}, {"image": np.zeros((3, SIDE, SIDE), np.float64)}),
    "an empty page": ({}, {"image": np.zeros((0, SIDE, 3), np.uint8)}),
    "a map of another size": ({}, {"prob_map": np.zeros((SIDE, 99), np.float32)}),
    "a map of another type": ({}, {"thresh_mask": np.zeros((SIDE, SIDE), np.uint8)}),
    "a map that is a number": ({}, {"prob_mask": np.zeros((), np.bool_)}),
    "a map of nothing": ({}, {"prob_mask": np.zeros((SIDE, SIDE), "V0")}),
    "a coordinate of 1e30": ({"polygons": [[[5, 5], [1e30, 5], [45, 25]]]}, {}),
    "20,000 vertices": ({"polygons": [[[at % 50, at % 49] for at in range(20_000)]]}, {}),
    "a matrix of NaN": ({"inverse_matrix": [float("nan")] * 9}, {}),
    "a matrix of 10^400": ({"inverse_matrix": [10**400] * 9}, {}),
    "a matrix of four": ({"inverse_matrix": [1, 0, 0, 1]}, {}),
    "a shape of text": ({"shape": "ab"}, {}),
    "a shape of one": ({"shape": [64]}, {}),
    "a size out of range": ({"raw_size": [64, 1 << 40]}, {}),
    "orientation 9": ({"orientation": 9}, {}),
    "a count that is a list": ({"dropped_polygons": [1]}, {}),
    "a frame that is null": ({"polygon_frame": None}, {}),
    "other words than were stored": ({"fields": "0123456789abcdef"}, {}),
}


@pytest.mark.parametrize(("document", "arrays"), BAD.values(), ids=BAD)
def test_a_bad_sample_is_named_or_skipped_and_counted(tmp_path, document, arrays):
    tar = write_tar(tmp_path / "a.tar", document, arrays)
    with pytest.raises(DataError, match=r"a\.tar: 00000001 .*Convert again"):
        OCRWebDataset(tar, TRANSFORM)[1]
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip")
    (batch,) = Loader(dataset, 2)
    assert len(batch["images"]) == 1
    assert len(dataset.ledger.files("skipped")) == 1
