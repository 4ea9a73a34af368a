"""One network for lines and words: its loss, weights and scores."""

from typing import Any

import numpy as np
import pytest
import torch
from rejection import rejects

from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.geometry.polygons import Polygons
from ocr.models import DBLoss, TextDetector
from ocr.models.head import Prediction
from ocr.models.load import load_detector, read_detector, save_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.targets import MAPS, Targets
from ocr.training.module import OCRPLModule

SIDE = 64
LINES, WORDS = [[[4, 8], [60, 8], [60, 24], [4, 24]]], [[[4, 8], [28, 8], [28, 24], [4, 24]]]
BOTH = ("lines", "words")
TENSORS = [spec.batch_name for spec in MAPS.values()]


def small(units: tuple[str, ...] = BOTH) -> TextDetector:
    return TextDetector("test_efficientnet", channels=16, head_channels=16, units=units).eval()


def batch(*pages: Polygons, units: tuple[str, ...] = BOTH) -> dict[str, Any]:
    drawn = [Targets(units=units).draw(page, SIDE, SIDE) for page in pages]
    maps = {spec.batch_name: torch.from_numpy(np.stack([page[name] for page in drawn])) for name, spec in MAPS.items()}
    images = torch.rand(len(pages), 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return {
        **{name: value if value.ndim == 4 else value[:, None] for name, value in maps.items()},
        "images": images,
        "polygons": [list(page) for page in pages],
        "ignore": [page.ignore for page in pages],
        "transcriptions": [list(page.texts) for page in pages],
        "units": [page.units for page in pages],
        "inverse_matrix": [np.eye(3)] * len(pages),
        "shape": [(SIDE, SIDE)] * len(pages),
        "image_filename": ["a.jpg"] * len(pages),
    }


def page(lines: bool = True, words: bool = True) -> Polygons:
    outlines = [*(LINES if lines else ()), *(WORDS if words else ())]
    return Polygons.pack(outlines, units=np.array([1] * lines + [2] * words, np.uint8))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_a_detector_of_two_units_has_a_map_for_each():
    model = small()
    assert model(torch.zeros(1, 3, 40, 60)).prob_map.shape == (1, 2, 40, 60)
    assert small(("words",))(torch.zeros(1, 3, 40, 60)).prob_map.shape == (1, 1, 40, 60)
    assert model.architecture["units"] == ["lines", "words"]
    assert "units" not in small(()).architecture


def test_the_loss_of_two_units_is_the_mean_of_their_losses():
    model, both = small(), batch(page(), page())
    prediction = model(both["images"], with_threshold=True)
    loss, parts = DBLoss()(prediction, both)
    alone = [
        DBLoss()(prediction.of_unit(unit), {name: both[name][:, unit, None] for name in TENSORS}) for unit in range(2)
    ]
    assert loss.item() == pytest.approx(sum(of_unit.item() for of_unit, _ in alone) / 2)
    assert parts["prob"].item() == pytest.approx(sum(found["prob"].item() for _, found in alone) / 2)


def test_a_unit_without_labels_in_the_batch_does_not_count():
    model, lines_only = small(), batch(page(words=False))
    prediction = model(lines_only["images"], with_threshold=True)
    first = {name: lines_only[name][:, :1] for name in TENSORS}
    assert DBLoss()(prediction, lines_only)[0].item() == pytest.approx(DBLoss()(prediction.of_unit(0), first)[0].item())
    DBLoss()(prediction, lines_only)[0].backward()
    gradient = model.head.prob[1].weight.grad
    assert gradient[:16].abs().sum() > 0
    assert gradient[16:].abs().sum() == 0


def test_targets_of_other_units_than_the_model_are_an_error():
    one = batch(page(words=False), units=())
    with rejects(ConfigError, setting="units"):
        DBLoss()(small()(one["images"], with_threshold=True), one)


@pytest.mark.parametrize(("stored", "wanted", "source"), [((), BOTH, [0, 0]), (BOTH, ("words",), [1]), (BOTH, (), [0])])
def test_weights_fit_detectors_of_other_units(tmp_path, stored, wanted, source):
    given = small(stored)
    save_detector(tmp_path / "a.safetensors", given, DetectorSettings(given.architecture))
    other = small(wanted)
    read_detector(tmp_path / "a.safetensors").load_into(other)
    images = torch.rand(1, 3, 64, 64)
    expected = load_detector(tmp_path / "a.safetensors")[0](images, with_threshold=True)
    found = other(images, with_threshold=True)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs[:, source], atol=1e-5)


def test_a_stored_detector_keeps_its_units(tmp_path):
    model = small()
    save_detector(tmp_path / "a.safetensors", model, DetectorSettings(model.architecture))
    assert load_detector(tmp_path / "a.safetensors")[0].units == BOTH


class Perfect(torch.nn.Module):
    """Finds what the labels of a batch surround, and on its last page a line that they do not."""

    units = BOTH

    def __init__(self, taught: dict[str, Any]) -> None:
        super().__init__()
        self.maps = taught["prob_maps"].clone()
        self.maps[-1, 0] = 1

    def forward(self, images: torch.Tensor, with_threshold: bool) -> Prediction:
        return Prediction(self.maps.logit(1e-6))


def test_each_unit_is_scored_on_the_pages_that_are_labelled_in_it():
    taught = batch(page(), page(words=False), page(lines=False))
    module = OCRPLModule(Perfect(taught), DBLoss(), BoxesFromMap())  # type: ignore[arg-type]
    logged: dict[str, torch.Tensor] = {}
    module.log_dict = lambda scores, **_: logged.update(scores)  # type: ignore[method-assign]
    module.on_validation_epoch_start()
    module.validation_step(taught, 0)
    module.on_validation_epoch_end()
    assert set(logged) == set(module.score_names)
    assert logged["val/hmean_lines"] == logged["val/hmean_words"] == logged["val/hmean"] == 1


def test_two_units_are_learnt_at_once():
    module = OCRPLModule(small().train(), DBLoss(), BoxesFromMap())
    optimizer = torch.optim.AdamW(module.model.parameters(), lr=0.02)
    taught = batch(page(), page(words=False), page(lines=False))
    taught["images"][:, :, 8:24, 4:60] += 2
    taught["images"][:, :, 8:24, 4:28] += 2
    for _ in range(60):
        optimizer.zero_grad()
        loss, _ = module.loss(module.model(taught["images"]), taught)
        loss.backward()
        optimizer.step()
    found = module.model.train()(taught["images"], with_threshold=False).prob_map
    assert found[:, 0, 16, 44].min() > 0.5 > found[:, 1, 16, 44].max()
    assert found[:, 1, 16, 16].min() > 0.5
