"""`glyphfeed preview`: pages as the model sees them, with the settings of the training."""

import cv2
import numpy as np
import pytest
from rejection import rejects

from ocr.errors import ConfigError, DataError
from ocr.jobs.train import build_module
from ocr.models.load import save_detector
from ocr.tools.preview import draw_preview


def drawn(data, path, **settings) -> np.ndarray:
    draw_preview(data, path, **settings)
    picture = cv2.imread(str(path))
    assert picture is not None
    return picture


def test_it_has_the_size_and_the_transforms_of_the_config(synthetic, tmp_path):
    size = ("transforms.size=96", "transforms.letterbox.shape=square")
    picture = drawn(synthetic, tmp_path / "a.png", limit=2, settings=size)
    assert picture.shape == (2 * 96 + 4, 3 * 96 + 8, 3)
    turned = (
        "transforms.val_transform.transforms=[${transforms.letterbox},{_target_: ocr.pipeline.suffix.RandomFlip, p: 1}]"
    )
    flipped = drawn(synthetic, tmp_path / "b.png", limit=2, settings=[*size, turned])
    kernels = picture[:96, 100:196, 0] > 128
    mirrored = flipped[:96, 100:196, 0] > 128
    # Polygons are cut to whole pixels on either side.
    assert (kernels[:, ::-1] != mirrored).sum() < 0.1 * (kernels != mirrored).sum() + 0.3 * kernels.sum()
    smaller = drawn(synthetic, tmp_path / "c.png", limit=2, settings=[*size, "targets.shrink_ratio=0.9"])
    assert (smaller[:96, 100:196] > 128).sum() > (picture[:96, 100:196] > 128).sum()


def test_it_takes_the_settings_of_a_checkpoint(synthetic, tmp_path):
    from ocr.jobs.compose import compose_training

    small = ["model=lite", "model.channels=8", "transforms.normalization.mean=[0.5,0.5,0.5]"]
    module = build_module(compose_training([*small, "output_dir=out"]))
    save_detector(tmp_path / "x.safetensors", module.model, module.settings)
    words = [f"checkpoint_path={tmp_path / 'x.safetensors'}", "transforms.size=64"]
    assert drawn(synthetic, tmp_path / "a.png", limit=1, settings=words).shape[0] <= 64


def test_training_pages_are_augmented_and_an_experiment_is_used(synthetic, tmp_path):
    plain = drawn(synthetic, tmp_path / "a.png", split="train", limit=1, settings=["transforms.size=96", "seed=1"])
    other = drawn(synthetic, tmp_path / "b.png", split="train", limit=1, settings=["transforms.size=96", "seed=2"])
    assert plain.shape != other.shape or (plain != other).any()
    windows = drawn(synthetic, tmp_path / "c.png", split="train", limit=1, settings=["experiment=receipts"])
    assert windows.shape[0] == 480


def test_what_cannot_work_is_named(synthetic, dataset_folder, tmp_path):
    with rejects(ConfigError, setting="--limit", value=0):
        draw_preview(synthetic, tmp_path / "x.png", limit=0)
    with rejects(ConfigError, setting="transforms.sise"):
        draw_preview(synthetic, tmp_path / "x.png", settings=["transforms.sise=3"])
    for page in (dataset_folder / "images" / "val").iterdir():
        page.write_bytes(b"nothing")
    with rejects(DataError, value="val", path=dataset_folder):
        draw_preview(dataset_folder, tmp_path / "x.png")


@pytest.mark.parametrize("normalize", ["device", "host"])
def test_pages_are_drawn_wherever_they_are_normalised(synthetic, tmp_path, normalize):
    words = ["transforms.size=64", f"transforms.normalize={normalize}"]
    assert drawn(synthetic, tmp_path / "x.png", limit=1, settings=words).size
