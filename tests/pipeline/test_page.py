"""The fixed part as one call: with and without pixels, and what its output depends on."""

import pickle
from pathlib import Path

import cv2
import numpy as np

from ocr.geometry.polygons import Polygons
from ocr.pipeline.decode import Decode
from ocr.pipeline.device import Normalize
from ocr.pipeline.page import FixedPart
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import StoredTargets, Targets

WORD = [[20, 30], [120, 30], [120, 60], [20, 60]]


def stored_page() -> Sample:
    image = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    encoded = cv2.imencode(".png", image)[1].tobytes()
    return Sample(0, "a.png", "a.png", Polygons.pack([WORD]), encoded=encoded)


def test_a_page_goes_through_decode_and_stages_then_maps_then_normalisation() -> None:
    decode, box, targets, normalize = Decode(needed_side=64), Letterbox(64), Targets(), Normalize()

    page = FixedPart(decode, (box,), targets, normalize)(stored_page())

    expected = box(decode(stored_page()))
    assert np.array_equal(page.image.transpose(2, 0, 1), normalize.on_host(expected.image))
    assert page.maps is not None
    assert np.array_equal(page.maps.thresh_map, targets.draw(expected.polygons, 64, 64).thresh_map)
    assert FixedPart(decode, (box,))(stored_page()).maps is None


def test_a_measured_page_has_the_geometry_of_the_decoded_one() -> None:
    for needed_side in (64, None):
        part = FixedPart(Decode(needed_side=needed_side), (Letterbox(64),))
        measured, decoded = part.measure(stored_page()), part(stored_page())
        assert np.array_equal(measured.polygons.vertices, decoded.polygons.vertices)
        assert np.array_equal(measured.inverse_matrix, decoded.inverse_matrix)
        assert measured.size == decoded.size == (64, 64)
        # Without a letterbox in front, a stage may look at the pixels.
        assert np.array_equal(measured.image, decoded.image) == (needed_side is None)


def test_stored_maps_do_not_change_what_the_output_depends_on() -> None:
    decode, box, targets = Decode(), Letterbox(64), Targets()

    assert FixedPart(decode, (box,)).parts == (decode, box)
    assert FixedPart(decode, (box,), targets, Normalize()).parts == (decode, box, targets, Normalize())
    assert FixedPart(decode, (box,), StoredTargets(targets, Path("maps"))).parts == (decode, box, targets)


def test_the_fixed_part_goes_to_another_process() -> None:
    part = FixedPart(Decode(needed_side=64), (Letterbox(64),), Targets())

    assert pickle.loads(pickle.dumps(part)) == part
