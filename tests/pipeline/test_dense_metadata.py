"""metadata: one schema of a stored sample, the same fields back from the bytes of a cache and the JSON of a shard."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ocr.geometry.polygons import Polygons
from ocr.pipeline import dense
from ocr.pipeline.sample import Sample

TRIANGLE = np.array([[0.1, 2], [30, 4], [5, 1e-3]], np.float32)
SQUARE = np.array([[0, 0], [9, 0], [9, 9], [0, 9]], np.float32)
POLYGONS = {
    "none": Polygons.pack([]),
    "two": Polygons.pack([TRIANGLE, SQUARE], [False, True]),
    "with texts": Polygons.pack([TRIANGLE, SQUARE], [True, False], ["half a pair: \ud800", None]),
}


def sample_with(polygons: Polygons) -> Sample:
    return Sample(
        3,
        "a/ü.jpg",
        "/data/a/ü.jpg",
        polygons,
        annotated=False,
        claimed_size=(40, 30),
        inverse_matrix=np.array([[1 / 3, 0, 2], [0, 0.1, -4], [0, 0, 1]]),
        shape=(30, 40),
        raw_size=(40, 30),
        orientation=6,
        polygon_frame="raw",
        recovered="damaged",
        dropped_polygons=2,
        unseen=polygons,
    )


@pytest.mark.parametrize("polygons", POLYGONS.values(), ids=POLYGONS)
@pytest.mark.parametrize("form", ["bytes", "json"])
def test_every_field_comes_back_as_it_was(polygons, form):
    sample = sample_with(polygons)
    if form == "bytes":
        fields = dense.from_bytes(dense.to_bytes(sample))
    else:
        fields = dense.from_json(json.loads(json.dumps(dense.to_json(sample))))
    assert fields.keys() == {*dense.FIELDS, "inverse_matrix", "polygons", "unseen"}
    for name in dense.FIELDS:
        assert fields[name] == getattr(sample, name)
        assert type(fields[name]) is type(getattr(sample, name))
    assert np.array_equal(fields["inverse_matrix"], sample.inverse_matrix)
    for found in (fields["polygons"], fields["unseen"]):
        for name in ("vertices", "offsets", "ignore"):
            expected = getattr(polygons, name)
            assert np.array_equal(getattr(found, name), expected)
            assert getattr(found, name).dtype == expected.dtype
        assert found.texts == polygons.texts


def test_a_raw_shard_stores_what_the_annotation_says():
    sample = sample_with(POLYGONS["two"])
    document = dense.source_to_json(sample)
    assert dense.read_claimed_size(document) == (40, 30)
    assert np.array_equal(dense.read_polygons(document).vertices, sample.polygons.vertices)
    assert dense.to_json(sample).keys() == document.keys() | {*dense.FIELDS, "inverse_matrix", "unseen"}
    assert dense.read_claimed_size({}) is None
    assert len(dense.read_polygons({})) == 0


@pytest.mark.parametrize("name", [*dense.FIELDS, "inverse_matrix"])
def test_a_missing_field_is_an_error(name):
    document = dense.to_json(sample_with(POLYGONS["two"]))
    del document[name]
    with pytest.raises(KeyError, match=name):
        dense.from_json(document)


def test_a_packed_page_comes_back_with_its_pixels():
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    page = replace(sample_with(POLYGONS["with texts"]), image=image)
    value = dense.pack_page(page)
    found = dense.unpack_page(value, index=7, filename="b.jpg", path="/elsewhere/b.jpg")
    assert (found.index, found.filename, found.path, found.size) == (7, "b.jpg", "/elsewhere/b.jpg", (30, 40))
    assert np.array_equal(found.unpacked().image, image)
    assert np.array_equal(found.inverse_matrix, page.inverse_matrix)
    assert dense.pack_page(replace(found, image=image, lazy=None)) == dense.pack_page(found) == value
