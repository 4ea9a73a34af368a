"""The head that tells how a page is turned: it learns with the encoder fixed, and is stored with the detector."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ocr.datasets import DBTransforms, OCRDataset
from ocr.formats import Annotations, Page, write_native
from ocr.models import TextDetector
from ocr.models.load import load_detector, read_detector, save_detector
from ocr.models.orientation import TURNS, choose_turn, find_turn, turn_page
from ocr.models.settings import DetectorSettings
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.training.orientation import score_orientation, train_orientation

SIDE = 64


def small() -> TextDetector:
    torch.manual_seed(0)
    return TextDetector("test_efficientnet", channels=16, head_channels=16).eval()


def drawn(rng: np.random.Generator) -> NDArray[np.uint8]:
    """A page with a dark head and lines that begin at the left margin."""
    page = np.full((int(rng.integers(70, 110)), int(rng.integers(60, 90)), 3), 240, np.uint8)
    page[4:16, 6:-6] = 20
    for top in range(24, len(page) - 8, 8):
        page[top : top + 3, 6 : 6 + int(rng.integers(15, 45))] = 60
    return page


@pytest.fixture
def pages(tmp_path: Path) -> OCRDataset:
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(12):
        cv2.imwrite(str(tmp_path / "images" / f"{number}.png"), drawn(rng))
    write_native(Annotations("", "native", {f"{number}.png": Page() for number in range(12)}), tmp_path / "labels.json")
    transform = DBTransforms([Letterbox(SIDE, interpolation="area")])
    return OCRDataset(tmp_path / "images", tmp_path / "labels.json", transform)


def test_it_learns_how_pages_are_turned_and_nothing_else_changes(pages):
    detector = small()
    before = {name: value.clone() for name, value in detector.state_dict().items()}
    losses = train_orientation(detector, Normalize(), [pages], SIDE, steps=60)
    assert losses[-1] < 0.3 * losses[0]
    found = score_orientation(detector, Normalize(), pages)
    assert found["right"] >= 46
    after = detector.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in detector.parameters())


def test_a_turned_page_is_found_and_turning_it_back_restores_it(pages):
    detector = small()
    train_orientation(detector, Normalize(), [pages], SIDE, steps=60)
    page = drawn(np.random.default_rng(0))
    assert detector.orientation is not None
    for turn in TURNS:
        turned = turn_page(page, turn)
        found, margin = find_turn(detector.encoder, detector.orientation, Normalize(), turned, SIDE)
        assert (found, margin > 0.5) == (turn, True)
        assert np.array_equal(turn_page(turned, -turn), page)


def test_an_ambiguous_page_stays_as_it_is():
    assert choose_turn(np.array([1.0, 1.4, 0.0, 0.0]))[0] == 0
    assert choose_turn(np.array([0.0, 0.0, 5.0, 0.0])) == (180, pytest.approx(0.973, abs=0.001))


def test_the_head_is_stored_with_the_detector_and_left_out_of_new_training(tmp_path):
    detector = small()
    detector.add_orientation(SIDE)
    save_detector(tmp_path / "a.safetensors", detector, DetectorSettings(dict(detector.architecture)))
    stored, _ = load_detector(tmp_path / "a.safetensors")
    assert stored.orientation is not None
    assert stored.architecture["orientation"] == SIDE
    images = torch.rand(1, 3, SIDE, SIDE)
    new = small()
    read_detector(tmp_path / "a.safetensors").load_into(new)
    assert new.orientation is None
    assert torch.equal(new(images).prob_map, stored(images).prob_map)
