"""Pages that DALI, or nobody, can decode: rescued and counted, left out, or named."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image
from rejection import rejects
from test_dali_loader import ROUNDING, compare, load, needs_dali, open_split

from ocr.errors import ImageError, StageError
from ocr.loader import Loader
from ocr.pipeline.sample import PageView, Sample
from ocr.pipeline.stage import RandomStage

pytestmark = needs_dali


def spoil(data: Path, number: int, kind: str) -> str:
    """Damage a page of the validation split; its name."""
    name = list(json.loads((data / "jsons" / "val.json").read_text())["images"])[number]
    file = data / "images" / "val" / name
    stream = io.BytesIO()
    Image.open(file).convert("RGB").save(stream, "JPEG", quality=90)
    whole = stream.getvalue()
    file.write_bytes({"cut": whole[: len(whole) // 2], "no end": whole[:-2], "text": b"no image"}[kind])
    return name


def test_a_page_that_dali_refuses_is_decoded_by_ours_and_counted(dataset_folder):
    name = spoil(dataset_folder, 1, "no end")
    settings = {"image_loading_config": {"scaled": "off"}}
    expected = list(Loader(open_split(dataset_folder, **settings), 4))
    dataset = open_split(dataset_folder, **settings)
    loader = load(dataset, 4)
    for _ in range(2):
        assert compare(expected, list(loader)).max() < ROUNDING
        assert dataset.ledger.files("recovered") == [name]
    assert loader.pipeline.reader.refused == {1}


def test_a_broken_page_stops_the_loader_or_is_left_out_of_its_batch(dataset_folder):
    names = [spoil(dataset_folder, 1, "cut"), spoil(dataset_folder, 2, "text")]
    with rejects(ImageError, path=dataset_folder / "images" / "val" / names[0]):
        list(load(open_split(dataset_folder), 2))
    dataset = open_split(dataset_folder, on_bad_sample="skip")
    found, expected = (list(make(dataset, 2)) for make in (load, Loader))
    assert [batch["image_filename"] for batch in found] == [batch["image_filename"] for batch in expected]
    assert [len(batch["images"]) for batch in found] == [1, 1, 2]
    assert sorted(dataset.ledger.files("skipped")) == sorted(names)


def test_a_batch_of_broken_pages_only_is_none(dataset_folder):
    for number in range(2):
        spoil(dataset_folder, number, "cut")
    first, *others = load(open_split(dataset_folder, on_bad_sample="skip"), 2)
    assert first is None
    assert all(len(batch["images"]) == 2 for batch in others)


class Fails(RandomStage):
    """Fails on every page."""

    def draw(self, rng: np.random.Generator, page: PageView) -> int:
        return 0

    def apply(self, sample: Sample, parameters: int) -> Sample:
        raise RuntimeError("no luck")


def test_a_stage_after_dali_that_fails_names_its_page(synthetic):
    dataset = open_split(synthetic, "train", Fails())
    with rejects(StageError, path=dataset.source.names[0]) as caught:
        next(iter(load(dataset)))
    assert str(caught.value.__cause__) == "no luck"
