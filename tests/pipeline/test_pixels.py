"""A shadow over the page: darker on one side of a soft edge, and never lighter."""

import numpy as np
from pages import run
from rejection import rejects

from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.pixels import RandomShadow, Shadow
from ocr.pipeline.sample import Sample

PAGE = Sample(0, "", "", Polygons.pack([]), image=np.full((40, 60, 3), 200, np.uint8), shape=(60, 40))


def test_a_shadow_falls_from_its_edge_on():
    shaded = RandomShadow().apply(PAGE, Shadow((0.1, 0.0), 2.0, 0.5)).image
    row = shaded[7, :, 1].astype(int)
    assert (row[:21] == 200).all()
    assert row[25] == 150
    assert (row[30:] == 100).all()
    assert (shaded == shaded[:1]).all()


def test_shadows_darken_by_up_to_their_share_and_leave_polygons_alone():
    darkest = []
    for seed in range(60):
        shaded = run([RandomShadow(0.6, p=1)], PAGE, np.random.default_rng(seed))
        assert shaded.polygons is PAGE.polygons
        assert shaded.image.dtype == np.uint8
        assert shaded.image.max() <= 200
        darkest.append(shaded.image.min())
    assert 80 <= min(darkest) < 110
    assert max(darkest) > 190
    assert not RandomShadow().moves_geometry


def test_a_share_above_one_is_rejected():
    with rejects(ConfigError, setting="RandomShadow.darkest", value=2):
        RandomShadow(darkest=2)
