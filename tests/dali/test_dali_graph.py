"""ocr_pipeline: what DALI decodes, what is decoded for it, what it refuses, and what it says."""

import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from PIL import Image
from rejection import rejects
from test_dali_loader import GEOMETRY, ROUNDING, SIZE, compare, load, needs_dali, open_split, to_shards

from ocr.dali import graph as dali_graph
from ocr.dali import requests as dali_requests
from ocr.dali.graph import RefusedError, ocr_pipeline
from ocr.datasets import DALIDataLoader, DBTransforms, OCRDataset, OCRWebDataset
from ocr.datasets.albumentations import RandomAlbumentations
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, MissingExtraError
from ocr.loader import Loader
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip, RandomWindow, TextAwareCrop, Warp

pytestmark = needs_dali
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def config(data: Path, *overrides: str) -> Any:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        small = [f"dataloaders.{split}_dataloader.batch_size=2" for split in ("train", "val")]
        small += [f"transforms.size={SIZE}", "transforms.letterbox.shape=square"]
        return compose("train", [f"dataset_base_path={data}", *small, *overrides])


def write_pages(folder: Path, files: dict[str, bytes], points: list[list[int]]) -> Path:
    """A validation split of these files, each with one word."""
    (folder / "images" / "val").mkdir(parents=True)
    (folder / "jsons").mkdir()
    for name, data in files.items():
        (folder / "images" / "val" / name).write_bytes(data)
    pages = {name: {"words": {"1": {"points": points}}} for name in files}
    (folder / "jsons" / "val.json").write_text(json.dumps({"images": pages}))
    return folder


def picture(mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (150, 230, 3), dtype=np.uint8)
    return Image.fromarray(cv2.GaussianBlur(noise, (0, 0), 2)).convert(mode)


def encode(form: str, mode: str = "RGB", **settings: Any) -> bytes:
    stream = io.BytesIO()
    picture(mode).save(stream, form, **settings)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("scaled", ["off", "auto"])
def test_every_orientation_is_turned_upright_as_by_our_decoder(tmp_path, form, scaled):
    files = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        files[f"{orientation}.{form.lower()}"] = encode(form, exif=exif)
    data = write_pages(tmp_path, files, [[20, 10], [120, 10], [120, 40], [20, 40]])
    settings = {"image_loading_config": {"scaled": scaled}}
    expected, found = (list(make(open_split(data, **settings), 8)) for make in (Loader, load))
    assert found[0]["orientation"] == list(range(1, 9))
    assert compare(expected, found).max() < (ROUNDING if scaled == "off" or form == "PNG" else 3)


def test_an_orientation_that_only_our_reader_knows_is_honoured(tmp_path):
    # Such pages are written by some scanners: the tag is in the XMP packet, not in EXIF.
    packet = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
    )
    data = write_pages(tmp_path, {"a.jpg": encode("JPEG", xmp=packet)}, [[5, 5], [90, 5], [90, 25], [5, 25]])
    settings = {"image_loading_config": {"scaled": "off"}}
    expected, found = (list(make(open_split(data, **settings), 1)) for make in (Loader, load))
    assert found[0]["orientation"] == [6]
    assert compare(expected, found).max() < ROUNDING


def test_formats_that_dali_is_not_given_have_our_own_pixels_and_are_counted(tmp_path):
    sixteen = cv2.imencode(".png", np.asarray(picture("L")).astype(np.uint16) * 200)[1].tobytes()
    files = {"a.webp": encode("WEBP"), "b.bmp": encode("BMP"), "c.tif": encode("TIFF"), "d.gif": encode("GIF", "P")}
    files |= {
        "e.jpg": encode("JPEG", "CMYK"),
        "f.png": encode("PNG", "P"),
        "g.png": encode("PNG", "RGBA"),
        "h.png": sixteen,
    }
    data = write_pages(tmp_path, files, [[20, 10], [120, 10], [120, 40], [20, 40]])
    settings = {
        "image_loading_config": {"scaled": "off"},
        "image_extensions": [".webp", ".bmp", ".tif", ".gif", ".jpg", ".png"],
    }
    dataset = open_split(data, **settings)
    differences = compare(list(Loader(open_split(data, **settings), 8)), list(load(dataset, 8)))
    assert differences[:4].max() == 0
    assert differences.max() < 0.5
    assert sorted(dataset.ledger.files("recovered")) == ["a.webp", "b.bmp", "c.tif", "d.gif"]


def test_pages_too_large_for_a_batch_are_decoded_by_ours_and_not_called_damaged(synthetic, monkeypatch):
    monkeypatch.setattr(dali_requests, "MAX_PIXELS", 1)
    dataset = open_split(synthetic, "train", *GEOMETRY)
    for suffix, most in (("host", 0), ("dali", ROUNDING)):
        found = list(load(dataset, 4, suffix=suffix))
        assert dataset.ledger.totals()["recovered"] == 0
        assert compare(list(Loader(open_split(synthetic, "train", *GEOMETRY), 4)), found).max() <= most


def test_stages_that_dali_has_not_run_after_it(synthetic, caplog):
    albumentations = pytest.importorskip("albumentations")
    steps = [RandomFlip(), ColourJitter(p=1), albumentations.CLAHE(p=1), RandomFlip()]
    settings = {"image_loading_config": {"scaled": "off"}}
    loader = load(open_split(synthetic, "train", *steps, **settings), 4, suffix="dali")
    assert [type(stage).__name__ for stage in loader.pipeline.plan.rest] == ["RandomAlbumentations", "Warp"]
    assert "the host runs these stages after DALI: CLAHE" in caplog.text
    expected = list(Loader(open_split(synthetic, "train", *steps, **settings), 4))
    assert compare(expected, list(loader)).max() < 2


def test_an_error_of_dali_that_no_page_causes_names_the_pages(synthetic):
    pipeline = ocr_pipeline(open_split(synthetic), 2, device="cpu")
    requests = [pipeline.reader.read(0, 0)]
    requests[0].inputs["shape"] = np.array([-1, -1], dtype=np.int32)
    with rejects(RefusedError, value=[requests[0].sample.filename]):
        pipeline.run(requests)
    assert pipeline.run([pipeline.reader.read(0, 0)]).shape == (1, 3, SIZE, SIZE)


def test_without_dali_the_error_names_the_extra_and_the_setting_and_all_else_works(synthetic, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with rejects(MissingExtraError, setting="dali", value="nvidia.dali"):
        OCRDataModule(config(synthetic, "use_dali=true")).loader("val")
    assert len(list(OCRDataModule(config(synthetic)).loader("val"))) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_runs_on_the_cpu_and_says_so_once(synthetic, caplog):
    dali_graph._warn_of_cpu.cache_clear()
    data = OCRDataModule(config(synthetic, "use_dali=true"))
    for split in ("train", "val"):
        assert data.loader(split).pipeline.device.type == "cpu"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    caplog.clear()
    OCRDataModule(config(synthetic, "use_dali=true", "dali.device=cpu")).loader("val")
    assert not caplog.records
    with rejects(ConfigError, setting="dali.device", value="gpu"):
        OCRDataModule(config(synthetic, "use_dali=true", "dali.device=gpu")).loader("val")


def test_a_gpu_refuses_a_stage_that_dali_has_not(synthetic, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    albumentations = pytest.importorskip("albumentations")
    for steps, refused in (
        ((RandomFlip(), albumentations.CLAHE()), RandomAlbumentations),
        ((TextAwareCrop(), TextAwareCrop()), Warp),
    ):
        with rejects(ConfigError, setting="transforms") as caught:
            ocr_pipeline(open_split(synthetic, "train", *steps))
        assert isinstance(caught.value.value, refused)
    pipeline = ocr_pipeline(open_split(synthetic, "train", *GEOMETRY, RandomWindow(64), ColourJitter()))
    assert not pipeline.plan.rest
    assert pipeline.device.type == "cuda"


def test_the_configs_read_folder_and_shards(synthetic, tmp_path):
    for split in ("train", "val"):
        to_shards(open_split(synthetic, split), split, tmp_path / "shards")
    settings = ["use_dali=true", "dali.device=cpu", "data.cache=off"]
    folder = OCRDataModule(config(synthetic, *settings))
    shards = OCRDataModule(config(tmp_path, *settings, "data=webdataset"))
    default = OCRDataModule(config(synthetic))
    for split, batches in (("train", 4), ("val", 3)):
        loaders = [data.loader(split) for data in (folder, shards, default)]
        assert [len(loader) for loader in loaders] == [batches] * 3
        names = [[batch["image_filename"] for batch in loader] for loader in loaders]
        assert names[0] == names[1] == names[2]


FLIP, AREA = RandomFlip(), Letterbox(SIZE, interpolation="area")


@pytest.mark.parametrize(
    ("transforms", "setting", "first"),
    [
        ([], "transforms", type(None)),
        ([FLIP, Letterbox(SIZE)], "transforms", Warp),
        ([AREA], "transforms.letterbox.interpolation", str),
    ],
)
def test_transforms_that_dali_cannot_begin_with_are_refused(synthetic, transforms, setting, first):
    with rejects(ConfigError, setting=setting) as caught:
        ocr_pipeline(open_pages(synthetic, *transforms), device="cpu")
    assert isinstance(caught.value.value, first)


def open_pages(data: Path, *steps: Any) -> OCRDataset:
    transform = DBTransforms([*steps, Normalize()])
    return OCRDataset(data / "images" / "val", data / "jsons" / "val.json", transform)


def ready_shards(data: Path, folder: Path) -> OCRWebDataset:
    dataset = open_split(data)
    to_shards(dataset, "val", folder, ready=True)
    return OCRWebDataset(f"{folder}/val-*.tar", dataset.transform)


def test_caches_ready_shards_and_unknown_words_are_refused(synthetic, tmp_path):
    with rejects(ConfigError, setting="data.cache", value=None):
        ocr_pipeline(open_split(synthetic, cache="auto", cache_folder=tmp_path / "cache"))
    preloaded = config(synthetic, "use_dali=true", "datasets.val_dataset.preload_images=true")
    with rejects(ConfigError, setting="data.cache", value=None):
        OCRDataModule(preloaded).loader("val")
    ready = ready_shards(synthetic, tmp_path / "ready")
    with rejects(ConfigError, setting="use_dali", value=None, path=ready.source.location):
        ocr_pipeline(ready)
    with rejects(ConfigError, setting="use_dali", value="list"):
        ocr_pipeline([1, 2])  # type: ignore[arg-type]
    for setting, value in (("device", "gpus"), ("suffix", "hosts")):
        with rejects(ConfigError, setting=f"dali.{setting}", value=value):
            ocr_pipeline(open_split(synthetic), **{setting: value})


def test_wording_of_errors_of_dali(synthetic, tmp_path, monkeypatch, snapshot):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pages = open_split(synthetic)
    cached = open_split(synthetic, cache="auto", cache_folder=tmp_path / "cache")
    mistakes: list[Callable[[], object]] = [
        lambda: ocr_pipeline(pages, device="gpus"),
        lambda: ocr_pipeline(pages, device="gpu"),
        lambda: ocr_pipeline(cached, device="cpu"),
        lambda: ocr_pipeline(ready_shards(synthetic, tmp_path / "ready"), device="cpu"),
        lambda: ocr_pipeline([1, 2], device="cpu"),  # type: ignore[arg-type]
        lambda: ocr_pipeline(open_pages(synthetic, FLIP, Letterbox(SIZE)), device="cpu"),
        lambda: ocr_pipeline(open_pages(synthetic, AREA), device="cpu"),
        lambda: DALIDataLoader(ocr_pipeline(pages, 4, device="cpu"), 5, 4),
        lambda: DALIDataLoader(ocr_pipeline(pages, 4, device="cpu"), 6, 9),
        lambda: DALIDataLoader(ocr_pipeline(pages, 4, device="cpu"), 6, 4, engine="processes"),
    ]
    said = []
    for mistake in mistakes:
        with pytest.raises(ConfigError) as caught:
            mistake()
        said.append(str(caught.value))
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(ConfigError) as caught:
        ocr_pipeline(pages)
    snapshot("dali_errors", "\n".join([*said, str(caught.value)]))
