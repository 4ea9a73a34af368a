"""path: a page from its source to its place in a batch, with every state of the cache, from any source."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from pages import SIZE, open_split, transforms, without_paths
from rejection import rejects
from sameness import assert_same

from ocr.datasets import DBTransforms
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError, ImageError, StageError
from ocr.geometry.polygons import Polygons
from ocr.loader import Loader
from ocr.pipeline.batch import Slot
from ocr.pipeline.device import Normalize
from ocr.pipeline.page_index import SourceState, content_digest
from ocr.pipeline.path import PagePath, path_of
from ocr.pipeline.prefix import FixedPart, Letterbox
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.source import Source, annotation_digest
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.suffix import QuarterTurn
from ocr.pipeline.targets import MAPS, MapSpec, Targets, empty_maps


def path_to(data: Any, split: str = "train", transform: DBTransforms | None = None, **settings: Any) -> PagePath:
    return open_split(data, split, transform, **settings).path


def assert_same_pages(left: Sample, right: Sample) -> None:
    left, right = left.unpacked(), right.unpacked()
    for name in ("index", "filename", "path", "image", "inverse_matrix", "shape", "raw_size", "dropped_polygons"):
        assert_same(getattr(left, name), getattr(right, name), name)
    for name in ("vertices", "offsets", "ignore", "texts"):
        assert_same(getattr(left.polygons, name), getattr(right.polygons, name), name)


# -- make, at_cut, augmented, write


def test_a_page_is_made_by_decode_and_the_fixed_stages(synthetic):
    path = path_to(synthetic)
    assert_same_pages(path.make(2), FixedPart(path.decode, path.fixed)(path.source.read(2)))
    assert path.make(2).size == (SIZE, SIZE)


def test_at_the_cut_a_page_is_the_same_made_kept_or_damaged(synthetic, tmp_path):
    expected = path_to(synthetic).at_cut(3)
    assert expected.cached == ""
    for outcome in ("miss", "hit"):
        path = path_to(synthetic, cache="auto", cache_folder=tmp_path)
        kept = path.at_cut(3)
        path.cache.flush()
        assert kept.cached == outcome
        assert_same_pages(kept, expected)
    store = path.cache.store
    (key, value), *_ = store.items("pages")
    damaged = bytearray(value)
    damaged[-1] ^= 1
    store.put("pages", key, bytes(damaged))
    store.flush()
    for outcome in ("invalid", "hit"):
        remade = path.at_cut(3)
        path.cache.flush()
        assert remade.cached == outcome
        assert_same_pages(remade, expected)


def test_an_augmented_page_is_a_function_of_seed_epoch_and_index_whatever_the_cache_has(synthetic, tmp_path):
    path = path_to(synthetic, seed=4)
    first, other = path.augmented(1, 0), path.augmented(1, 1)
    assert not np.array_equal(first.inverse_matrix, other.inverse_matrix)
    for _ in range(2):
        kept = path_to(synthetic, seed=4, cache="auto", cache_folder=tmp_path)
        assert_same_pages(kept.augmented(1, 0), first)
        kept.cache.flush()
    assert not np.array_equal(
        path_to(synthetic, seed=5).augmented(1, 0).unpacked().image, path.augmented(1, 0).unpacked().image
    )


def test_a_written_page_is_in_its_slot_and_in_the_ledger(synthetic):
    path = path_to(synthetic)
    slot = Slot(np.zeros((3, SIZE, SIZE), np.float32), empty_maps(SIZE, SIZE))

    written = path.write(2, 5, slot)

    alone = path.sample(2, 5)
    assert np.array_equal(slot.image, path.normalize.on_host(alone.image))
    assert_same(slot.maps, alone.maps)
    assert (written.map_source, written.index) == ("drawn", 2)
    assert path.ledger.totals(["seen", "maps_drawn"]) == {"seen": 1, "maps_drawn": 1}


# -- pages that fail


@dataclass(frozen=True)
class Raises(FixedStage):
    """Fails at the second page."""

    error: Exception

    def __call__(self, sample: Sample) -> Sample:
        if sample.index == 1:
            raise self.error
        return sample


def failing(data: Any, error: Exception, **settings: Any) -> tuple[PagePath, Slot]:
    path = path_to(data, "val", DBTransforms([Letterbox(SIZE), Raises(error)]), **settings)
    return path, Slot(np.zeros((SIZE, SIZE, 3), np.uint8), empty_maps(SIZE, SIZE))


def test_the_stage_error_of_a_page_names_it(synthetic):
    path, slot = failing(synthetic, ZeroDivisionError("no way"), on_bad_sample="skip")
    assert path.write(0, 0, slot) is not None
    with rejects(StageError, value=1, path=path.source.names[1]) as caught:
        path.write(1, 0, slot)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_page_that_cannot_be_used_is_skipped_and_counted_or_stops_the_run(synthetic, caplog):
    unusable = ImageError("a.jpg: cut short", path="a.jpg")
    path, slot = failing(synthetic, unusable, on_bad_sample="skip")
    with caplog.at_level(logging.WARNING):
        assert path.write(1, 0, slot) is None
    assert "a.jpg" in caplog.text
    assert path.ledger.files("skipped") == [path.source.names[1]]
    path, slot = failing(synthetic, unusable)
    with rejects(ImageError, path="a.jpg"):
        path.write(1, 0, slot)


@pytest.mark.parametrize("error", [ConfigError("no", setting="size"), MemoryError()], ids=repr)
def test_an_error_that_is_not_of_one_page_is_passed_on_as_it_is(synthetic, error):
    path, slot = failing(synthetic, error, on_bad_sample="skip")
    with pytest.raises(type(error)) as caught:
        path.write(1, 0, slot)
    assert caught.value is error


# -- sizes


def test_sizes_are_planned_from_the_headers_alone(synthetic):
    box = Letterbox(SIZE, shape="page")
    path = path_to(synthetic, transform=DBTransforms([box, Normalize()]))
    sizes = [path.make(index).size for index in range(len(path.source))]
    assert path.planned_sizes.tolist() == [list(size) for size in sizes]
    assert path.padding is not None
    assert path_to(synthetic).padding is None
    # A letterbox of one shape at the end makes all pages equal.
    boxed = DBTransforms([box, QuarterTurn(), Letterbox(64)])
    assert path_to(synthetic, transform=boxed).padding is None


# -- any source, any map


class InMemory(Source):
    """Pages that are in memory: a source of three methods."""

    def __init__(self, pages: Sequence[Sample]) -> None:
        self.pages = pages

    @property
    def names(self) -> list[str]:
        return [page.filename for page in self.pages]

    def read(self, index: int) -> Sample:
        return replace(self.pages[index], index=index)

    def state(self, index: int) -> SourceState:
        page = self.pages[index]
        annotation = annotation_digest(page.filename, page.polygons, page.claimed_size, page.annotated)
        return SourceState(page.filename, f"memory/{page.filename}", None, annotation, content_digest(page.encoded))


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("cache", ["off", "auto"])
def test_a_source_of_three_methods_is_loaded_like_a_folder(synthetic, tmp_path, split, cache):
    folder = open_split(synthetic, split, seed=2)
    expected = without_paths(Loader(folder, 3, 0, shuffle=True))
    pages = [folder.source.read(index) for index in range(len(folder))]
    settings = {"cache": cache, "cache_folder": tmp_path, "seed": 2}
    for engine, workers in (("threads", 2), ("processes", 1)):
        dataset = PageDataset(InMemory(pages), transforms(split == "train"), **settings)
        assert_same(without_paths(Loader(dataset, 3, workers, engine, shuffle=True)), expected)
    assert dataset.ledger.totals()["cache_hits"] == (len(pages) if cache == "auto" else 0)
    assert_same(dataset.source.size(0, 10**9), folder.source.size(0, 10**9))


def test_the_same_pages_from_another_source_are_found_in_the_cache(synthetic, tmp_path):
    folder = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    folder.fill_cache()
    pages = [folder.source.read(index) for index in range(len(folder))]
    dataset = PageDataset(InMemory(pages), transforms(False), cache="auto", cache_folder=tmp_path)
    assert dataset.fill_cache() == {"hit": len(pages)}


@dataclass(frozen=True, slots=True)
class WithCounts(Targets):
    """Draws one more map: how many words the page has."""

    def draw(
        self, polygons: Polygons, width: int, height: int, annotated: bool = True, out: Maps | None = None
    ) -> Maps:
        maps = Targets.draw(self, polygons, width, height, annotated, out)
        maps["count_map"][:] = len(polygons)
        return maps


def test_a_map_that_is_added_to_the_list_reaches_the_batch(synthetic, monkeypatch):
    monkeypatch.setitem(MAPS, "count_map", MapSpec(np.float32, -1.0, "count_maps", np.uint8))
    box = Letterbox(SIZE, shape="page")
    dataset = open_split(synthetic, "val", DBTransforms([box, Normalize()]), targets=WithCounts())
    for engine, workers in (("threads", 2), ("threads", 0), ("processes", 1)):
        for batch in Loader(dataset, 3, workers, engine):
            for number, (width, height) in enumerate(batch["shape"]):
                scale = SIZE / max(width, height)
                expected = torch.full_like(batch["prob_maps"][number], -1)
                expected[:, : round(height * scale), : round(width * scale)] = len(batch["polygons"][number])
                assert torch.equal(batch["count_maps"][number], expected)


def test_only_datasets_of_pages_have_a_path(synthetic):
    dataset = open_split(synthetic, "val")
    assert path_of(dataset) is dataset.path
    assert path_of([1, 2]) is None
