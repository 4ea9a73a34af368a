"""Labels that say lines or words, from the annotation to the maps of a batch."""

import json
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch
from rejection import rejects

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.errors import AnnotationError, ConfigError, DataError
from ocr.formats import Annotations, Page, Word, read_annotations, write_native
from ocr.formats.maps import map_file, write_maps
from ocr.geometry.polygons import Polygons
from ocr.loader import Loader
from ocr.pipeline import dense
from ocr.pipeline.copy_paste import Copies, CopyPasteLines
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import annotation_digest
from ocr.pipeline.targets import MAPS, ON_DISK, StoredTargets, Targets, maps_fingerprint

SIDE = 64
LINE = [[4, 10], [60, 10], [60, 22], [4, 22]]
LEFT, RIGHT = [[4, 10], [28, 10], [28, 22], [4, 22]], [[34, 10], [60, 10], [60, 22], [34, 22]]
TENSORS = ("images", *(spec.batch_name for spec in MAPS.values()))
BOTH = Targets(units=("words", "lines"))


def polygons(lines: int = 1, words: int = 2) -> Polygons:
    outlines = [LINE][:lines] + [LEFT, RIGHT][:words]
    return Polygons.pack(outlines, units=np.array([1] * lines + [2] * words, np.uint8))


def sample(labels: Polygons) -> Sample:
    return Sample(0, "a.jpg", "a.jpg", labels, image=np.zeros((SIDE, SIDE, 3), np.uint8), shape=(SIDE, SIDE))


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A page in both units, one in lines, one in words, one without text."""
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    line, words = Word("1", LINE, unit="lines"), (Word("2", LEFT, unit="words"), Word("3", RIGHT, unit="words"))
    labels = {"both": (line, *words), "lines": (line,), "words": words, "blank": ()}
    for name in labels:
        image = rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8)
        (tmp_path / "images" / f"{name}.jpg").write_bytes(simplejpeg.encode_jpeg(image))
    made = {f"{name}.jpg": Page(label, (SIDE, SIDE)) for name, label in labels.items()}
    write_native(Annotations("", "native", made), tmp_path / "labels.json")
    return tmp_path


def dataset(pages: Path, targets: Targets, **settings: object) -> OCRDataset:
    transform = DBTransforms([Letterbox(SIDE)])
    return OCRDataset(pages / "images", pages / "labels.json", transform, targets=targets, **settings)  # type: ignore[arg-type]


def test_units_of_words_are_read_back_as_they_were_written(pages):
    found = read_annotations(pages / "labels.json").pages
    assert [word.unit for word in found["both.jpg"].words] == ["lines", "words", "words"]
    assert [word.unit for word in found["words.jpg"].words] == ["words", "words"]
    assert json.loads((pages / "labels.json").read_text())["images"]["lines.jpg"]["unit"] == "lines"


def test_the_unit_of_a_page_holds_for_words_that_say_none(tmp_path):
    words = {"1": {"points": LINE}, "2": {"points": LEFT, "unit": "words"}}
    (tmp_path / "a.json").write_text(json.dumps({"images": {"a.jpg": {"unit": "lines", "words": words}}}))
    page = read_annotations(tmp_path / "a.json").pages["a.jpg"]
    assert [word.unit for word in page.words] == ["lines", "words"]


@pytest.mark.parametrize("unit", ["letters", 3, ["lines"]])
def test_an_unknown_unit_is_an_error(tmp_path, unit):
    words = {"1": {"points": LINE, "unit": unit}}
    (tmp_path / "a.json").write_text(json.dumps({"images": {"a.jpg": {"words": words}}}))
    with rejects(AnnotationError, setting="unit", value=unit):
        read_annotations(tmp_path / "a.json")


def test_units_follow_polygons_that_are_moved_selected_joined_and_stored():
    labels = polygons()
    moved = labels.moved(np.diag([2.0, 2.0, 1.0])).select(np.array([True, False, True])).followed_by(polygons(0, 1))
    assert moved.units.tolist() == [1, 2, 2]
    kept = sample(labels)
    assert dense.from_bytes(dense.to_bytes(kept))["polygons"].units.tolist() == [1, 2, 2]
    assert dense.from_json(dense.to_json(kept))["polygons"].units.tolist() == [1, 2, 2]


def test_another_unit_is_another_annotation():
    lines, words = (Polygons.pack([LINE], units=np.array([unit], np.uint8)) for unit in (1, 2))
    digests = {annotation_digest("a.jpg", labels, None, True) for labels in (lines, words, Polygons.pack([LINE]))}
    assert len(digests) == 3


def test_each_unit_has_the_maps_of_its_labels_alone():
    labels = polygons()
    maps = BOTH.draw(labels, SIDE, SIDE)
    for number, unit in enumerate(("lines", "words")):
        alone = Targets().draw(labels.of_unit(unit), SIDE, SIDE)
        assert all(np.array_equal(maps[name][number], alone[name]) for name in MAPS)
    assert maps["prob_map"][0, 16, 31] == 1
    assert maps["prob_map"][1, 16, 31] == 0


def test_the_unit_that_a_page_is_not_labelled_in_is_masked():
    maps = BOTH.draw(polygons(words=0), SIDE, SIDE)
    assert maps["prob_mask"][0].all()
    assert not maps["prob_mask"][1].any()
    assert not maps["thresh_mask"][1].any()


def test_a_page_without_text_has_none_in_either_unit():
    assert BOTH.draw(polygons(0, 0), SIDE, SIDE)["prob_mask"].all()


def test_one_unit_takes_labels_that_say_none_and_leaves_out_the_other():
    targets, unsaid = Targets(units=("words",)), Polygons.pack([LEFT, RIGHT])
    for labels in (polygons(), unsaid):
        assert np.array_equal(
            targets.draw(labels, SIDE, SIDE)["prob_map"], Targets().draw(unsaid, SIDE, SIDE)["prob_map"]
        )
    assert not targets.draw(polygons(words=0), SIDE, SIDE)["prob_mask"].any()


def test_labels_that_do_not_fit_the_units_are_an_error(pages):
    page = sample(Polygons.pack([LINE]))
    with rejects(DataError, setting="units", path="a.jpg"):
        BOTH(page)
    with rejects(DataError, setting="units"):
        dataset(pages, Targets())[0]
    assert Targets()(sample(polygons(words=0))).maps is not None


@pytest.mark.parametrize("units", ["lines", ("letters",), ("lines", "lines")])
def test_unknown_units_are_an_error(units):
    with rejects(ConfigError, setting="Targets.units", value=units):
        Targets(units=units)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cache", ["off", "auto"])
def test_batches_of_two_units_are_the_same_however_they_are_made(pages, tmp_path, cache, workers):
    made = dataset(pages, BOTH, cache=cache, cache_folder=tmp_path / "cache")
    expected = DBCollateFN()([made[index] for index in range(4)])
    assert expected is not None
    assert expected["prob_maps"].shape == (4, 2, SIDE, SIDE)
    masks = expected["prob_masks"].flatten(2).all(dim=2)
    assert masks.tolist() == [[True, True], [True, False], [False, True], [True, True]]
    for _ in range(2):
        (batch,) = Loader(made, 4, num_workers=workers)
        assert [units.tolist() for units in batch["units"][:3]] == [[1, 2, 2], [1], [2, 2]]
        assert all(
            torch.equal(batch[name], expected[name]) for name in ("images", *(m.batch_name for m in MAPS.values()))
        )


def test_stored_maps_of_two_units_are_used(tmp_path):
    page = sample(polygons())
    drawn = BOTH(page).maps
    assert drawn is not None
    on_disk = {name: array.astype(ON_DISK[name]) for name, array in drawn.items()}
    write_maps(map_file(tmp_path, "a.jpg"), on_disk, maps_fingerprint(page, BOTH))
    read = StoredTargets(BOTH, tmp_path)(page)
    assert read.map_source == "stored"
    assert read.maps is not None
    assert all(np.array_equal(read.maps[name], drawn[name]) for name in MAPS)
    assert StoredTargets(Targets(units=("lines",)), tmp_path)(page).map_source == "stale"


def test_a_copied_line_takes_its_words_along():
    copied = CopyPasteLines().apply(sample(polygons()), Copies(np.array([0]), np.array([[0, 30]])))
    assert copied.polygons.units.tolist() == [1, 2, 2, 1, 2, 2]
    assert copied.polygons.bounds[3:, 1].tolist() == [40, 40, 40]
