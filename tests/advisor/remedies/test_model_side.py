"""Advice on the model's side: what a config leaves open, what fits into memory, and what is known of the H-mean."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ocr.advisor.catalogue import Configuration
from ocr.advisor.measure.stage_demands import Measured
from ocr.advisor.measure.step_costs import StepCosts
from ocr.advisor.measure.temporary_folder import temporary_folder
from ocr.advisor.model.queueing import Consumer, Demand, Pipeline
from ocr.advisor.model.training_run import TrainingRun
from ocr.advisor.remedies import model_candidates as candidates
from ocr.advisor.remedies import model_side
from ocr.advisor.remedies.advice import NOT_KNOWN, SAME, Advice, Remedy, combine
from ocr.advisor.remedies.advisor import AdviseSettings, Advisor
from ocr.advisor.remedies.model_side import ModelSide, _combinations
from ocr.advisor.remedies.predictor import Predictor, Workload
from ocr.jobs.compose import compose_training

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results.md"
CPU = torch.device("cpu")
TINY = (
    "transforms.size=128",
    "model=lite",
    "model.channels=32",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=4",
    "threads.model=1",
)
SMALL = ("dataloaders.train_dataloader.batch_size=1", "dataloaders.val_dataloader.batch_size=2")
# One of each kind is enough here; compiling takes a minute.
FEW = ("compiled", "resnet18", "hgnetv2_b0", "package", "core", "checkpoints")


def names(*overrides: str, split: str = "train", steps: int = 10) -> dict[str, candidates.ModelCandidate]:
    found = candidates.model_candidates(compose_training(overrides), split, cores=4, device=CPU, steps=steps)
    return {one.name: one for one in found}


def test_what_a_config_does_not_do_yet_is_tried_and_what_it_does_is_not():
    base, other = names(), names("model.channels_last=false", "trainer.precision=bf16-mixed", "model=lite")
    assert {"channels first", "gradient checkpoints", "bf16", "pages of 480", "pages of 320", "slim decoder"} <= set(
        base
    )
    assert {"1 core for the model", "2 cores for the model", "3 cores for the model"} <= set(base)
    assert {"mobilenetv3_small_050", "hgnetv2_b0", "package's weights"} <= set(base)
    assert not {"resnet18", "page shape", "fp32", "fp16", "4 cores for the model"} & set(base)
    assert {"channels last", "fp32", "resnet18"} <= set(other)
    assert not {"channels first", "bf16", "slim decoder", "mobilenetv3_small_050"} & set(other)
    assert "page shape" in names("transforms.letterbox.shape=square")
    assert not {"gradient checkpoints", "package's weights"} & set(names(split="val"))


def test_weights_that_are_given_keep_their_architecture():
    assert not {"resnet18", "mobilenetv3_small_050", "slim decoder", "package's weights"} & set(
        names("weights=glyphfeed")
    )


def test_compiling_and_gradient_checkpoints_exclude_each_other():
    assert not {"compiled model", "gradient checkpoints"} & set(names("model.checkpoint_gradients=true"))
    assert not {"compiled model", "gradient checkpoints"} & set(names("compile_model=true"))


def test_the_packages_weights_take_as_many_steps_as_finetuning():
    overrides = names("trainer.max_epochs=75", "model=lite", steps=16)["package's weights"].configuration.overrides
    assert "trainer.max_epochs=25" in overrides
    config = compose_training(["trainer.max_epochs=75", "model=lite", *overrides])
    assert (config.model.encoder, config.model.channels) == ("hgnetv2_b0", 64)
    assert not any("max_epochs" in one for one in names(steps=16)["package's weights"].configuration.overrides)


def test_nothing_is_said_of_the_hmean_that_the_results_do_not_have():
    results = RESULTS.read_text()
    for name, known in candidates.KNOWN.items():
        figures = re.findall(r"0\.\d+", known)
        assert figures, name
        assert all(figure in results for figure in figures), name
    assert names()["bf16"].hmean == NOT_KNOWN
    assert {one.hmean for one in names().values() if one.setting in ("layout", "kept", "threads")} == {SAME}


def remedy(name: str, step: float, *overrides: str, **details) -> Remedy:
    pipeline = Pipeline((Demand("work", 0.001, 0.001),), Consumer(step), 160, 16, 2, 8)
    found = Remedy(name, overrides, "so", pipeline.predict(), pipeline.predict(), 1.0, **details)
    return replace(found, gain=10.008 / found.seconds) if details.get("run") is None else found


def advice(present: Remedy, *remedies: Remedy) -> Advice:
    return Advice("here", 160, 16, 2, (), Consumer(1.0), present, list(remedies))


def test_what_changes_the_hmean_is_told_and_never_chosen():
    present, layout = remedy("present", 1.0), remedy("channels first", 0.5, "model.channels_last=false")
    smaller = remedy("pages of 320", 0.1, "transforms.size=320", hmean=NOT_KNOWN)
    found = advice(present, smaller, layout)
    assert found.best is layout
    assert found.fastest_other is smaller
    assert "2.0" in found.sentence
    assert "H-mean" in found.sentence
    assert advice(present, smaller).best is None
    assert "pages of 320" in advice(present, smaller).sentence


def test_a_configuration_that_does_not_fit_is_told_and_one_that_fits_is_chosen():
    present = remedy("present", 1.0, memory_bytes=3_000_000_000, free_bytes=2e9)
    halves = remedy("batches of 8, 2 per step", 1.0, "x=1", memory_bytes=1_600_000_000, free_bytes=2e9, hmean=NOT_KNOWN)
    fast = remedy("batches of 32", 0.2, "x=2", memory_bytes=6_000_000_000, free_bytes=2e9)
    found = advice(present, fast, halves)
    assert found.best is halves
    assert all(part in found.sentence for part in ("3.0 GB", "2.0 GB", "batches of 8, 2 per step"))
    assert all(part in fast.reason for part in ("6.0 GB", "2.0 GB"))
    alone = advice(remedy("present", 1.0), fast)
    assert alone.best is None
    assert alone.fastest_other is None


def test_a_run_counts_validations_and_what_happens_once():
    run = TrainingRun(10, 10, 5.0)
    present = remedy("present", 1.0, run=run)
    fewer = remedy("fewer validations", 1.0, run=replace(run, validations=2))
    assert present.seconds == pytest.approx(10 * 10.008 + 50)
    assert present.seconds - fewer.seconds == pytest.approx(40)


def test_a_combination_takes_the_run_and_the_memory_of_its_step():
    run, faster = TrainingRun(10, 10, 5.0), TrainingRun(10, 10, 2.0)
    # Loading takes 0.9 s per batch, the step 1 s: each alone gains little.
    slow = Pipeline((Demand("work", 0.1125, 0.0),), Consumer(1.0), 160, 16, 2, 8)
    quick, cached = replace(slow, consumer=Consumer(0.5), batch_size=8), replace(slow, demands=())
    present, bf16, cache = (
        Remedy(name, (name,), "", line.predict(), line.predict(), 1.1, changes=changes, run=each, memory_bytes=size)
        for name, line, changes, each, size in (
            ("present", slow, "", run, 9),
            ("bf16", quick, "consumer", faster, 7),
            ("cache", cached, "demands", run, 9),
        )
    )
    (joined,) = combine([bf16, cache], present)
    assert joined.name == "cache + bf16"
    assert joined.later.pipeline == replace(quick, demands=())
    assert (joined.run, joined.memory_bytes) == (faster, 7)
    # 20 steps of 0.5 s, ten times, and ten validations of 2 s, against 10.9 s and 5 s.
    assert joined.gain == pytest.approx((10 * 10.9 + 50) / (10 * 10.0 + 20))


def test_the_best_of_each_setting_go_together_and_those_that_change_nothing_by_themselves():
    def found(name: str, setting: str, gain: float, hmean: str = SAME) -> tuple[candidates.ModelCandidate, Remedy]:
        configuration = Configuration(name, "", (f"{name}=1",))
        return candidates.ModelCandidate(configuration, setting, hmean), replace(remedy(name, 1.0), gain=gain)

    tried = [found("a", "layout", 1.2), found("b", "threads", 1.1), found("c", "size", 2.0, NOT_KNOWN)]
    tried += [found("d", "size", 1.5, NOT_KNOWN), found("e", "kept", 0.9)]
    exact, every = _combinations(tried)
    assert (exact.name, exact.hmean) == ("b + a", SAME)
    assert (every.name, every.hmean) == ("b + a + c", "c: not known")
    assert every.configuration.overrides == ("b=1", "a=1", "c=1")
    assert _combinations(tried[4:]) == []


@pytest.mark.slow
def test_the_model_is_measured_predicted_as_a_run_and_checked(synthetic, tmp_path):
    given = [f"dataset_base_path={synthetic}", *TINY, *SMALL]
    settings = AdviseSettings(pages=4, rounds=1, skip=FEW)
    told: list[str] = []
    chief = Advisor(lambda more: compose_training([*given, *more]), settings, cores=2, free_memory_bytes=4e9)
    with temporary_folder(tmp_path) as folder:
        advice = chief.advise(folder, told.append)
        chief.verify(advice, folder, told.append)
    found = {one.name: one for one in advice.remedies}
    assert {"channels first", "bf16"} <= set(found)
    assert found["batches of 2"].overrides == ("dataloaders.train_dataloader.batch_size=2",)
    assert advice.left_out == {}
    present = advice.present
    assert present.run is not None
    assert present.fits
    assert (present.run.epochs, present.run.validations) == (4, 4)
    assert present.run.validation_seconds > 0
    assert present.run_seconds > 4 * present.later.epoch_seconds
    assert 0 < present.memory_bytes < found["batches of 2"].memory_bytes < 4e9
    assert all(one.run is not None and one.memory_bytes > 0 for one in advice.remedies)
    assert {"present", "channels first", "bf16"} <= {name for name, *_ in advice.verified}
    assert any(re.search(r"the model: bf16 \(\d+ of \d+", line) for line in told)


@pytest.mark.parametrize(
    ("run", "overrides"),
    [
        (TrainingRun(2, 2, 5.0), ["trainer.check_val_every_n_epoch=2"]),  # One, after the last epoch, is the least.
        (TrainingRun(60, 60, 5.0), ["trainer.check_val_every_n_epoch=4"]),
        (TrainingRun(1, 1, 5.0), []),
        (TrainingRun(2, 2, 0.01), []),  # They take hardly any time.
        (TrainingRun(2, 0, 0.0), []),
        (None, []),
    ],
)
def test_fewer_validations_are_advised_if_they_take_a_part_of_the_run(run, overrides):
    side = ModelSide.__new__(ModelSide)
    side._workload = SimpleNamespace(pages=8, batch_size=1)
    # What a step and a validation take is given here, not measured.
    side.config = side._now = None
    side._outlook = lambda config, trial: SimpleNamespace(run=run, consumer=Consumer(1.0))
    found = list(side._validations())
    assert [one for candidate in found for one in candidate.configuration.overrides] == overrides
    assert {(candidate.name, candidate.setting) for candidate in found} <= {("fewer validations", "validations")}


def test_a_set_too_large_for_the_memory_is_predicted_not_tried(synthetic, monkeypatch):
    tried: list[list[int]] = []

    def measure_step(step, batch, counts, *_, **__):
        tried.append(list(counts))
        return StepCosts({1: (0.1, 0.1), 2: (0.2, 0.2)}, pixels=128 * 128, step_bytes=10e6, page_bytes=4e6)

    monkeypatch.setattr(model_side, "measure_step", measure_step)
    given = [f"dataset_base_path={synthetic}", *TINY, "transforms.letterbox.shape=square"]
    given += ["dataloaders.train_dataloader.batch_size=8"]

    def compose(more=()):
        return compose_training([*given, *more])

    workload = Workload("train", 8, 1e6, 8, 2, False, 2, 20e6, 1e9)
    side = ModelSide(compose, workload, CPU)
    predictor = Predictor(workload, Measured((), 1.0), side.outlook)
    predictor.present = replace(
        remedy("present", 0.8), memory_bytes=side.outlook.memory_bytes, free_bytes=side.outlook.free_bytes
    )
    tried.clear()
    found = side.remedies(predictor, lambda what: None, skip=("",))
    halves = next(one for one in found if one.name == "batches of 4, 2 per step")
    assert (predictor.present.memory_bytes, halves.memory_bytes) == (10e6 + 8 * 4e6, 10e6 + 4 * 4e6)
    assert not predictor.present.fits
    assert not halves.fits
    assert tried == []
    fitting = advice(predictor.present, *found).best
    assert fitting is not None
    assert (fitting.name, fitting.memory_bytes) == ("batches of 1", 10e6 + 4e6)
