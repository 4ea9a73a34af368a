"""What a stage needs: whether it waits for something that only one thread at a time can have."""

import pytest

from benchmarks.artificial import open_pages
from ocr.advisor.measure.stage_demands import _waiting_share, measure_demands
from ocr.advisor.model.queueing import DISK


@pytest.mark.parametrize("cores", [1, 2])
def test_a_disk_that_reads_one_file_at_a_time_is_seen_with_one_worker_too(synthetic, cores):
    dataset = open_pages(synthetic, disk_seconds=0.05)
    for _ in range(3):  # Others may take the cores for as long as one measurement lasts.
        source = measure_demands(dataset, range(4), workers=1, cores=cores, epochs=1).demands[0]
        if source.resource == DISK:
            break
    assert (source.name, source.resource) == ("source", DISK)
    assert 0 < source.serial_seconds <= source.seconds


@pytest.mark.parametrize(
    ("together", "at_once", "share"),
    [([], 2, 0.0), ([1.0], 2, 0.0), ([2.0], 2, 1.0), ([4.0], 4, 1.0), ([2.5], 4, 0.5), ([9.0], 2, 1.0)],
)
def test_what_threads_wait_for_each_other_is_a_share_of_one(together, at_once, share):
    assert _waiting_share(together, at_once) == share
