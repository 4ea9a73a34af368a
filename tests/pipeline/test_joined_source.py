"""Labelled and unlabelled pages as one source."""

import numpy as np
import pytest
import torch
from rejection import rejects
from test_source import write_annotation, write_images

from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.data_fingerprint import fingerprint_data
from ocr.errors import ConfigError
from ocr.loader.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.joined_source import JoinedSource
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.source import FolderSource
from ocr.pipeline.suffix import RandomFlip

STAGES = [Letterbox(64), RandomFlip(p=0.5), Normalize()]


@pytest.fixture
def folders(tmp_path):
    images = write_images(tmp_path / "images", "b.png", "a.png", "c.png")
    more = write_images(tmp_path / "more", "a.png", "deep/z.png")
    return images, write_annotation(tmp_path / "a.json", "b.png", "a.png"), more


def test_pages_without_labels_follow_and_their_maps_are_masked(folders):
    images, annotation, more = folders
    dataset = OCRDataset(images, annotation, DBTransforms(STAGES), unlabelled_path=more)
    assert isinstance(dataset.source, JoinedSource)
    assert list(dataset.source.names) == ["b.png", "a.png", "a.png", "deep/z.png"]
    assert dataset.source.names[-1] == "deep/z.png"
    assert dataset.source.names[1:3] == ["a.png", "a.png"]
    assert [dataset.sample(index).annotated for index in range(4)] == [True, True, False, False]
    assert [dataset.sample(index).index for index in range(4)] == [0, 1, 2, 3]
    assert dataset[2]["image_path"] == str(more / "a.png")
    # The second time from the cache.
    for _ in range(2):
        items = [dataset[index] for index in range(4)]
        assert [bool(item["prob_mask"].any()) for item in items] == [True, True, False, False]
        assert not items[3]["thresh_mask"].any()
    about = fingerprint_data(dataset)
    assert (about["pages"], about["unlabelled"]) == (4, 2)


def test_labelled_pages_are_augmented_as_without_the_others(folders):
    images, annotation, more = folders
    alone = OCRDataset(images, annotation, DBTransforms(STAGES))
    joined = OCRDataset(images, annotation, DBTransforms(STAGES), unlabelled_path=more)
    for epoch in range(4):
        assert torch.equal(alone.item(1, epoch)["prob_map"], joined.item(1, epoch)["prob_map"])


def test_batches_mix_both_in_the_order_of_the_seed_with_any_number_of_workers(folders):
    images, annotation, more = folders

    def names(workers: int) -> list[list[str]]:
        dataset = OCRDataset(images, annotation, DBTransforms(STAGES), unlabelled_path=more, seed=1)
        loader = Loader(dataset, 2, workers, shuffle=True, seed=1)
        return [batch["image_path"] for _ in range(3) for batch in loader]

    assert names(0) == names(2)
    assert sorted(path for batch in names(0)[:2] for path in batch) == sorted(
        [*(str(images / name) for name in ("a.png", "b.png")), str(more / "a.png"), str(more / "deep/z.png")]
    )


def test_the_folder_of_the_labelled_pages_gives_those_that_have_no_labels_yet(folders):
    images, annotation, _ = folders
    dataset = OCRDataset(images, annotation, DBTransforms(STAGES), unlabelled_path=images)
    assert list(dataset.source.names) == ["b.png", "a.png", "c.png"]
    assert np.flatnonzero([not dataset.sample(index).annotated for index in range(3)]).tolist() == [2]


def test_folders_that_add_nothing_are_refused(folders, tmp_path):
    images, annotation, more = folders
    full = write_annotation(tmp_path / "full.json", "b.png", "a.png", "c.png")
    with rejects(ConfigError, setting="unlabelled_path", path=images):
        OCRDataset(images, full, DBTransforms(STAGES), unlabelled_path=images)
    with rejects(ConfigError, setting="unlabelled_path", path=tmp_path / "nowhere"):
        OCRDataset(images, annotation, DBTransforms(STAGES), unlabelled_path=tmp_path / "nowhere")
    joined = OCRDataset(images, annotation, DBTransforms(STAGES), unlabelled_path=more)
    with rejects(ConfigError, setting="unlabelled_path", path=more):
        _ = joined.folder_source
    alone = OCRDataset(images, annotation, DBTransforms(STAGES))
    assert isinstance(alone.folder_source, FolderSource)
