"""Maps from files: used where they fit the page exactly, refused and drawn where they do not."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ocr.formats.maps import map_file, write_maps
from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import StoredTargets, Targets, maps_fingerprint

TARGETS = Targets()


@pytest.fixture
def page() -> Sample:
    word = [[5, 6], [40, 6], [40, 18], [5, 18]]
    return Sample(0, "a.jpg", "", Polygons.pack([word]), image=np.zeros((30, 50, 3), np.uint8))


@pytest.fixture
def stored(page: Sample, tmp_path: Path) -> StoredTargets:
    """Maps on disk that no drawing would give, so that it shows where they come from."""
    maps = TARGETS.draw(page.polygons, page.width, page.height)
    maps.prob_map[0, 0] = 1
    write_maps(map_file(tmp_path, "a.jpg"), maps, maps_fingerprint(page, TARGETS))
    return StoredTargets(TARGETS, tmp_path)


def test_maps_that_fit_are_taken_from_their_file(page: Sample, stored: StoredTargets) -> None:
    taken = stored(page)

    assert taken.maps is not None
    assert taken.map_source == "stored"
    assert taken.maps.prob_map[0, 0] == 1
    assert taken.maps.thresh_mask.dtype == np.bool_


def test_a_page_without_stored_maps_gets_them_drawn(page: Sample, stored: StoredTargets) -> None:
    assert stored(replace(page, filename="b.jpg")).map_source == "drawn"


@pytest.mark.parametrize("change", ["moved", "ignored", "unannotated", "resized", "other parameters"])
def test_maps_of_anything_else_are_refused_and_drawn(
    change: str, page: Sample, stored: StoredTargets, caplog: pytest.LogCaptureFixture
) -> None:
    polygons = page.polygons
    other = {
        "moved": replace(page, polygons=polygons.moved(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1.0]]))),
        "ignored": replace(page, polygons=replace(polygons, ignore=~polygons.ignore)),
        "unannotated": replace(page, annotated=False),
        "resized": replace(page, image=np.zeros((31, 50, 3), np.uint8)),
    }.get(change, page)
    stage = replace(stored, targets=Targets(0.5)) if change == "other parameters" else stored

    with caplog.at_level(logging.WARNING):
        drawn = stage(other)

    expected = stage.targets(other).maps
    assert drawn.map_source == "stale"
    assert drawn.maps is not None
    assert expected is not None
    assert all(np.array_equal(a, b) for a, b in zip(drawn.maps, expected, strict=True))
    assert "preprocess_maps.py" in caplog.text
    assert "a.npz" in caplog.text


def test_a_broken_map_file_is_named_and_the_maps_are_drawn(
    page: Sample, stored: StoredTargets, caplog: pytest.LogCaptureFixture
) -> None:
    map_file(stored.folder, "a.jpg").write_bytes(b"PK not really")

    with caplog.at_level(logging.WARNING):
        drawn = stored(page)

    assert drawn.map_source == "stale"
    assert "a.npz" in caplog.text


def test_the_stage_shows_its_parameters_and_no_path(stored: StoredTargets) -> None:
    assert repr(stored) == f"StoredTargets({TARGETS!r})"
