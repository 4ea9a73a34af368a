"""What arrives from worker processes: pinned by one thread, whatever the number of workers."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ocr.advisor.measure import sending
from ocr.advisor.measure.sending import PINNING_THREAD, copied, measure_pinning, measure_sending, pins_memory
from ocr.advisor.model.queueing import Consumer, Demand, Pipeline


def test_pinning_limits_an_epoch_that_more_workers_would_make_faster():
    pinning = measure_pinning(torch.zeros(4), 4, lambda batch: time.sleep(0.02))
    assert pinning.seconds >= 0.005
    reading = Demand("the dataset", 0.001, 0.001)
    few, many = (
        Pipeline((reading, pinning), Consumer(), 40, 4, workers, 8, processes=True).predict() for workers in (1, 4)
    )
    assert (many.bottleneck, many.stage) == (PINNING_THREAD, "pinning")
    assert many.epoch_seconds >= 40 * pinning.seconds
    assert few.epoch_seconds >= many.epoch_seconds


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine can pin memory")
def test_without_an_accelerator_nothing_is_pinned():
    assert not pins_memory(DataLoader([1, 2], pin_memory=True))


def test_a_copied_batch_shares_no_tensor():
    batch = {"image": torch.zeros(2), "boxes": [torch.zeros(1)], "names": ("a", np.zeros(1))}
    other = copied(batch)
    other["image"] += 1
    other["boxes"][0] += 1
    assert batch["image"].sum() == batch["boxes"][0].sum() == 0
    assert other["names"][0] == "a"


def test_arrays_are_sent_as_arrays_and_not_as_the_tensors_that_torch_would_make_of_them(monkeypatch):
    sent = []

    def from_workers(loader, dataset, workers, count, **settings):
        sent.append(settings["collate_fn"](dataset[0]))
        return real(loader, dataset, workers, count, **settings)

    real = sending._from_workers
    monkeypatch.setattr(sending, "_from_workers", from_workers)
    batch = [np.zeros(3), np.ones(2)]
    loader = DataLoader(batch, batch_size=2, collate_fn=list)  # type: ignore[arg-type]
    assert measure_sending(loader, batch, 2, batch_seconds=1.0, cores=1).transfer is not None
    assert [type(array) for array in sent[0]] == [np.ndarray, np.ndarray]


def test_workers_are_started_and_send_also_if_an_epoch_has_fewer_batches_than_are_measured():
    loader = DataLoader(torch.arange(4), batch_size=2, num_workers=2)  # type: ignore[arg-type]
    found = measure_sending(loader, torch.zeros(2), 2, batch_seconds=1.0, cores=2)
    assert found.transfer is not None
    assert found.start_seconds > 0
    assert 1 <= found.contention <= 2
