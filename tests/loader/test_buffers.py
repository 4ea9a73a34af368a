"""Batch buffers: reused when nobody refers to their batch any more, and never before."""

import sys

import numpy as np
import pytest
import torch

from ocr.loader.buffers import BatchBuffer, BufferPool


class Page:
    """What a pool needs to know of a sample."""

    size = (8, 6)
    image = np.zeros((6, 8, 3), dtype=np.uint8)


def take(pool: BufferPool) -> BatchBuffer:
    return pool.take(2, Page(), None)


@pytest.fixture
def pool(monkeypatch) -> BufferPool:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return BufferPool()


def test_a_held_batch_keeps_its_buffer_however_the_interpreter_counts_references(pool, monkeypatch):
    buffer = take(pool)
    held = buffer.batch([0, 1])
    # Python 3.14 does not count the references of local variables.
    monkeypatch.setattr(sys, "getrefcount", lambda value: 1)
    assert take(pool) is not buffer
    del held


@pytest.mark.parametrize("name", ["images", "prob_maps", "thresh_masks"])
def test_any_view_of_one_tensor_keeps_the_buffer_until_it_is_released(pool, name):
    buffer = take(pool)
    for part in (lambda tensor: tensor[1], lambda tensor: tensor[0].numpy()[:1], lambda tensor: tensor.detach()[:1]):
        view = part(buffer.batch([0, 1])[name])
        assert not buffer.is_idle()
        del view
        assert buffer.is_idle()
        assert take(pool) is buffer


def test_a_buffer_that_is_being_filled_or_whose_samples_were_copied_is_told_apart(pool):
    buffer = take(pool)
    assert take(pool) is not buffer
    batch = buffer.batch([1])
    assert take(pool) is buffer
    assert len(batch["images"]) == 1
