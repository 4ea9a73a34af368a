"""What arrives from worker processes: pinned by one thread, whatever the number of workers."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

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


def test_workers_are_started_and_send_also_if_an_epoch_has_fewer_batches_than_are_measured():
    loader = DataLoader(torch.arange(4), batch_size=2, num_workers=2)  # type: ignore[arg-type]
    sending = measure_sending(loader, torch.zeros(2), 2, batch_seconds=1.0, cores=2)
    assert sending.transfer is not None
    assert sending.start_seconds > 0
    assert 1 <= sending.contention <= 2
