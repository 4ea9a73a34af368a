"""What a step takes: in proportion to pages and pixels, and memory that every page adds to."""

from functools import partialmethod

import pytest
import torch
from torch._dynamo.utils import counters

from ocr.advisor.measure import model_epoch
from ocr.advisor.measure.model_step import ModelStep, model_threads
from ocr.advisor.measure.process_memory import peak_growth
from ocr.advisor.measure.step_costs import StepCosts, measure_step
from ocr.advisor.measure.typical_batch import TypicalBatch
from ocr.advisor.model.queueing import Consumer
from ocr.jobs.compose import compose_training

MEGABYTE = 1 << 20
CPU = torch.device("cpu")


def test_a_step_takes_as_long_as_its_pages_and_pixels():
    costs = StepCosts({1: (1.0, 2.0), 4: (3.0, 6.0)}, pixels=100.0, step_bytes=50, page_bytes=10)
    assert costs.consumer(8, 100.0) == Consumer(6.0, 12.0)
    assert costs.consumer(4, 25.0) == Consumer(0.75, 1.5)
    # Of two pages only the time of one was measured.
    assert costs.consumer(2, 100.0) == Consumer(2.0, 4.0)
    assert costs.memory_bytes(8, 100.0) == 130
    assert costs.memory_bytes(8, 50.0) == 90
    assert costs.most_pages(130, 100.0) == 8
    assert costs.most_pages(40, 100.0) == 0


def test_the_peak_of_a_call_counts_although_it_is_freed_again():
    grown = peak_growth(lambda: torch.ones(64 * MEGABYTE // 4).sum())
    assert 60 * MEGABYTE < grown < 90 * MEGABYTE
    assert peak_growth(lambda: None) < 8 * MEGABYTE


def composed(data, *overrides: str):
    tiny = ["transforms.size=256", "model=lite", "model.channels=32", "trainer.accelerator=cpu"]
    small = "dataloaders.train_dataloader.batch_size=2"
    return compose_training([f"dataset_base_path={data}", *tiny, small, *overrides])


@pytest.fixture
def config(synthetic):
    return composed(synthetic)


def test_a_page_more_takes_more_memory_and_the_optimizer_keeps_three_times_the_weights(config):
    pages = TypicalBatch(config, "train", CPU, max_pages=4)
    step = ModelStep(config, CPU, training=True)
    weights = sum(weight.nbytes for weight in step.module.model.parameters())
    assert step.kept_bytes == weights
    costs = measure_step(step, pages.batch, [1, 4])
    # Gradients, and two averages of them.
    assert step.kept_bytes == pytest.approx(4 * weights, rel=0.01)
    assert set(costs.times) == {1, 4}
    activations = 4 * 3 * pages.batch["images"].shape[-1] * pages.batch["images"].shape[-2]
    assert costs.page_bytes > activations
    assert costs.memory_bytes(8, pages.mean_pixels) > costs.memory_bytes(4, pages.mean_pixels)


def test_steps_that_would_take_too_long_are_not_measured_with_more_pages(config):
    pages = TypicalBatch(config, "train", CPU, max_pages=4)
    costs = measure_step(ModelStep(config, CPU, training=True), pages.batch, [1, 2, 4], max_seconds=0.0)
    assert set(costs.times) == {1, 2}


def test_the_batch_has_the_shape_of_a_usual_one(synthetic, config):
    pages = TypicalBatch(config, "train", CPU, max_pages=2)
    height, width = pages.batch["images"].shape[-2:]
    assert len(pages.batch["images"]) == 2
    assert 0 < pages.mean_pixels <= pages.largest_pixels
    assert height * width <= pages.largest_pixels
    squares = composed(synthetic, "transforms.letterbox.shape=square")
    square = TypicalBatch(squares, "train", CPU, max_pages=2)
    assert square.mean_pixels == square.largest_pixels == 256 * 256 > pages.mean_pixels


def test_threads_of_the_model_are_those_of_the_config_and_given_back(config):
    before = torch.get_num_threads()
    config.threads.model = before + 1
    with model_threads(config):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


class RecordedStep:
    """A step that notes the shapes of its batches."""

    device, kept_bytes = CPU, 0

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, batch) -> None:
        assert batch["images"].shape[-2:] == batch["prob_maps"].shape[-2:]
        self.shapes.append(tuple(batch["images"].shape))


def test_an_epoch_of_several_shapes_is_measured_after_a_batch_of_another_shape():
    batch = {"images": torch.zeros(4, 3, 96, 64), "prob_maps": torch.zeros(4, 96, 64), "shape": [(96, 64)] * 4}
    step = RecordedStep()
    measure_step(step, batch, [4], shapes=3)
    assert step.shapes[0] == (3, 3, 64, 32)
    assert set(step.shapes[1:]) == {(4, 3, 96, 64)}
    alone = RecordedStep()
    measure_step(alone, batch, [4])
    assert alone.shapes == step.shapes[1:]


@pytest.mark.slow
def test_a_compiled_model_has_seen_every_shape_before_its_epoch_is_timed(synthetic, monkeypatch):
    # The graphs are the same as of the default backend, which takes half a minute for each.
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend="eager"))
    graphs = []

    def run_part(loader, step, max_seconds):
        graphs.append(counters["stats"]["unique_graphs"])
        for batch in loader:
            step(batch)
        graphs.append(counters["stats"]["unique_graphs"])
        return 1.0

    monkeypatch.setattr(model_epoch, "run_part", run_part)
    config = composed(synthetic, "compile_model=true", "data.num_workers=0")
    model_epoch.time_model_epoch(config, "train", 1.0)
    assert graphs[0] == graphs[1] > 0


def test_a_step_whose_memory_was_not_measured_is_said_to_take_none():
    assert StepCosts({1: (1.0, 1.0)}, pixels=100).memory_bytes(4, 100) == 0
