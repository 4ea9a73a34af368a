"""A student learns from a teacher: its maps, on labelled and unlabelled pages, and exactly so after a resume."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rejection import rejects
from rich.console import Console
from test_training import Losses, fit, settings

from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.jobs.train import train
from ocr.models import DBLoss, TextDetector
from ocr.models.load import load_detector, read_checkpoint, save_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.device import Normalize
from ocr.training.distillation import Distillation
from ocr.training.module import OCRPLModule
from ocr.training.teacher import BatchTeacher, fingerprint_weights

GRAY = Normalize((0.5, 0.5, 0.5), (0.25, 0.5, 1.0))


@pytest.fixture(autouse=True)
def single_thread() -> Iterator[None]:
    """Tiny convolutions lose more by sharing than they win."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def detector(seed: int, channels: int = 32) -> TextDetector:
    torch.manual_seed(seed)
    return TextDetector("mobilenetv3_small_050", channels=channels)


def make_batch(labelled: bool) -> dict:
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(2, 3, 64, 64, generator=generator)
    prob = (torch.rand(2, 1, 64, 64, generator=generator) > 0.8).float()
    mask = torch.full((2, 1, 64, 64), labelled)
    names = {"prob_maps": prob, "thresh_maps": prob * 0.4 + 0.3, "prob_masks": mask, "thresh_masks": mask}
    return {"images": images, "image_filename": ["a.png", "b.png"], **names}


@pytest.fixture(scope="module")
def teacher_file(tmp_path_factory) -> Path:
    """A detector with random weights: what it finds is arbitrary, and can be learnt."""
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    teacher = detector(5)
    about = DetectorSettings(teacher.architecture, {"size": 64}, targets={"shrink_ratio": 0.4})
    save_detector(path, teacher, about)
    return path


def test_the_teacher_sees_pages_in_its_own_normalisation():
    pages = torch.randint(0, 256, (2, 3, 48, 40), dtype=torch.uint8)
    teacher = detector(1).eval()
    with torch.no_grad():
        own = teacher(GRAY.on_device(pages), with_threshold=True)
    batch = {"images": Normalize().on_device(pages)}
    seen = BatchTeacher(teacher, normalization=GRAY, students=Normalize()).maps(batch)
    assert torch.allclose(seen.prob_logits, own.prob_logits, atol=1e-4)
    other = BatchTeacher(teacher, normalization=Normalize()).maps(batch)
    assert not torch.allclose(other.prob_logits, own.prob_logits, atol=1e-2)


def test_without_labels_the_gradient_is_the_teachers_and_leads_to_its_maps():
    student, distillation = detector(2), Distillation(BatchTeacher(detector(1, channels=64)))
    module = OCRPLModule(student, DBLoss(), BoxesFromMap(), torch.optim.Adam, distillation=distillation)
    with torch.no_grad():
        distillation.teacher.model.head.prob[1].bias.add_(4.6)  # About half of the page is text to it.
    batch = make_batch(labelled=False)
    taught = fingerprint_weights(distillation.teacher.model)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.03)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        prediction = student(batch["images"])
        labels, _ = module.loss(prediction, batch)
        assert labels.item() == pytest.approx(0, abs=1e-6)
        loss, _ = distillation(batch, prediction)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert fingerprint_weights(distillation.teacher.model) == taught
    assert not distillation.teacher.model.training


def test_a_step_adds_the_loss_of_both_and_the_teacher_is_no_part_of_the_module():
    student, distillation = detector(2), Distillation(BatchTeacher(detector(1)))
    plain = OCRPLModule(student, DBLoss(), BoxesFromMap())
    taught = OCRPLModule(student, DBLoss(), BoxesFromMap(), distillation=distillation)
    assert plain.state_dict().keys() == taught.state_dict().keys()
    assert len(list(plain.parameters())) == len(list(taught.parameters()))
    assert copy.deepcopy(taught).distillation is distillation
    student.eval()
    batch = make_batch(labelled=True)
    with torch.no_grad():
        prediction = student(batch["images"], with_threshold=True)
        both = DBLoss()(prediction, batch)[0] + distillation(batch, prediction)[0]
    student.forward = lambda images: prediction
    assert taught.training_step(batch, 0).item() == pytest.approx(both.item(), rel=1e-6)


@pytest.mark.parametrize("maps", ["page", "batch"])
def test_a_run_with_unlabelled_pages_resumes_exactly_and_keeps_the_teacher_out(synthetic, teacher_file, tmp_path, maps):
    pages = tmp_path / "more"
    pages.mkdir()
    for page in sorted((synthetic / "images" / "val").iterdir())[:4]:
        shutil.copy(page, pages / page.name)
    given = [f"teacher={teacher_file}", f"distil.images={pages}", f"distil.maps={maps}", "trainer.max_epochs=1"]
    given += ["trainer.strategy=ddp"]
    whole = Losses({4: tmp_path / "step4.ckpt"})
    fit(settings(synthetic, tmp_path / "whole", *given), whole)
    # Eight labelled pages and four others.
    assert len(whole.seen) == 6
    resumed = Losses()
    fit(settings(synthetic, tmp_path / "resumed", *given), resumed, tmp_path / "step4.ckpt")
    assert resumed.seen == whole.seen[4:]
    with rejects(ConfigError, setting="teacher", value={}):
        fit(settings(synthetic, tmp_path / "alone", "trainer.max_epochs=1"), Losses(), tmp_path / "step4.ckpt")
    checkpoint = read_checkpoint(tmp_path / "step4.ckpt")
    assert all(key.startswith("model.") for key in checkpoint["state_dict"])
    origin = load_detector(tmp_path / "step4.ckpt")[1].provenance
    teacher = load_detector(teacher_file)[0]
    assert origin.teacher == {"encoder": "mobilenetv3_small_050", "fingerprint": fingerprint_weights(teacher)}
    assert (origin.data["pages"], origin.data["unlabelled"]) == (12, 4)


def test_another_precision_and_the_parts_in_the_log(synthetic, teacher_file, tmp_path):
    config = settings(
        synthetic,
        tmp_path,
        f"teacher={teacher_file}",
        "trainer.max_epochs=1",
        "trainer.limit_train_batches=2",
        "trainer.limit_val_batches=1",
        "trainer.precision=bf16-mixed",
    )
    scores = train(config, Console(quiet=True))
    assert {"train/loss_prob", "train/loss_teacher_prob", "train/loss_teacher_thresh"} <= set(scores)
    assert scores["train/loss_teacher_prob"] > 0


@pytest.mark.parametrize(("given", "is_inherited"), [((), True), (("distil.inherit=false",), False)])
def test_a_student_starts_with_the_head_of_its_teacher_unless_told_not_to(
    synthetic, teacher_file, tmp_path, given, is_inherited
):
    overrides = [f"teacher={teacher_file}", "trainer.max_epochs=1", "trainer.limit_train_batches=1"]
    overrides += ["trainer.limit_val_batches=0", "optimizer.lr=1e-9", "model.channels=32", "model.head_channels=8"]
    train(settings(synthetic, tmp_path, *overrides, *given), Console(quiet=True))
    student, teacher = load_detector(tmp_path / "checkpoints/last.ckpt")[0], load_detector(teacher_file)[0]
    weights = [dict(one.head.named_parameters())["prob.0.0.weight"] for one in (student, teacher)]
    assert torch.allclose(*weights, atol=1e-6) == is_inherited


def test_given_weights_are_where_a_student_starts_not_those_of_its_teacher(synthetic, teacher_file, tmp_path):
    own = tmp_path / "own.safetensors"
    save_detector(own, detector(6), load_detector(teacher_file)[1])
    overrides = [f"teacher={teacher_file}", f"weights={own}", "trainer.max_epochs=1", "trainer.limit_train_batches=1"]
    overrides += ["trainer.limit_val_batches=0", "optimizer.lr=1e-9", "model.channels=32", "model.head_channels=8"]
    train(settings(synthetic, tmp_path / "run", *overrides), Console(quiet=True))
    student, given = (load_detector(file)[0] for file in (tmp_path / "run/checkpoints/last.ckpt", own))
    assert torch.allclose(student.head.prob[0][0].weight, given.head.prob[0][0].weight, atol=1e-6)
