"""`test tune=true`: what it is given is checked before the model runs, and no file is replaced or made worse."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.jobs.compose import complete
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.test import test as score
from ocr.jobs.tune import CLEVAL, choose
from ocr.models.load import load_detector

GRID = ("grid.thresh=[0.5,0.55]", "grid.box_thresh=[0.5]", "grid.unclip_ratio=[1.5,2.5]")


def settings(*overrides: str) -> DictConfig:
    words = ["tune=true", "output_dir=out", "trainer.accelerator=cpu", "data.cache=off", *overrides]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return complete(compose("test", words), "test", words, Console(quiet=True))


@pytest.fixture
def detector(noise_detector, tmp_path) -> Path:
    path = tmp_path / "tiny.safetensors"
    path.write_bytes(noise_detector.read_bytes())
    return path


@pytest.fixture
def pages(tmp_path, noise_detector) -> str:
    """Noise, labelled with what the detector finds there with boxes that grow more than its own."""
    from ocr import Detector

    images, words = tmp_path / "images" / "val", {}
    images.mkdir(parents=True)
    better = Detector.load(noise_detector, boxes={"unclip_ratio": 2.5})
    for name in ("a.png", "b.png"):
        noise = np.random.default_rng(len(words)).integers(190, 255, (96, 96, 3), dtype=np.uint8)
        for top in range(8, 80, 24):
            noise[top : top + 9, 10:85] //= 4
        cv2.imwrite(str(images / name), noise)
        words[name] = {"words": better(images / name).to_dict()["words"]}
    (tmp_path / "jsons").mkdir()
    (tmp_path / "jsons" / "val.json").write_text(json.dumps({"images": words}))
    return f"dataset_base_path={tmp_path}"


@pytest.mark.parametrize(
    ("given", "value"),
    [("grid.thresh=0.3", 0.3), ("grid.thresh=null", None), ("grid.thresh=[]", [])],
)
def test_a_grid_without_a_list_of_values_is_refused(given, value):
    with rejects(ConfigError, setting="grid.thresh", value=value):
        score(settings(given), Console(quiet=True))


@pytest.mark.parametrize(("typed", "value"), [("abc", "abc"), ("null", None), ("true", True)])
def test_a_value_that_is_not_a_number_is_refused(typed, value):
    with rejects(ConfigError, setting="BoxesFromMap.thresh", value=value):
        score(settings(f"grid.thresh=[0.3,{typed}]"), Console(quiet=True))


def test_it_needs_a_detector_and_labels(detector, pages):
    with rejects(ConfigError, setting="checkpoint_path"):
        score(settings(*GRID), Console(quiet=True))
    unlabelled = "datasets.val_dataset.annotation_path=null"
    with rejects(ConfigError, setting="datasets.val_dataset.annotation_path"):
        score(settings(f"checkpoint_path={detector}", pages, unlabelled), Console(quiet=True))


def test_the_best_boxes_are_a_new_file_and_the_detector_stays_as_it_is(detector, pages, capsys):
    before, words = detector.read_bytes(), (f"checkpoint_path={detector}", pages, *GRID)
    shown = Console(record=True, width=160)
    best = score(settings(*words), shown)
    assert detector.read_bytes() == before
    target = detector.with_name("tiny.tuned.safetensors")
    tuned, own = load_detector(target)[1], load_detector(detector)[1]
    assert (tuned.boxes["unclip_ratio"], own.boxes["unclip_ratio"]) == (2.5, 1.5)
    assert (tuned.letterbox["size"], tuned.provenance.scores) == (96, best)
    text = shown.export_text()
    assert all(name in text for name in ("precision", "recall", "H-mean", "CLEval"))
    assert f"{best['recall']:.4f}" in text
    with rejects(ConfigError, setting="tune", path=target):
        score(settings(*words), Console(quiet=True))


def test_boxes_that_lower_cleval_are_refused_whatever_they_gain():
    def scores(hmean: float, cleval: float) -> dict[str, float]:
        return {"hmean": hmean, "hmean_70": hmean, CLEVAL: cleval}

    now, better, best = (BoxesFromMap(thresh=thresh) for thresh in (0.3, 0.4, 0.5))
    own, full = scores(0.78, 0.941), {better: scores(0.785, 0.937), best: scores(0.79, 0.912)}
    scored = [(full[boxes], boxes) for boxes in (better, best)]
    assert choose((own, now), scored, full.__getitem__) == ((full[better], better), 1)
    assert choose((own, now), scored[1:], full.__getitem__) == ((own, now), 1)
    assert choose((scores(0.8, 0.9), now), scored, full.__getitem__) == ((scores(0.8, 0.9), now), 0)
