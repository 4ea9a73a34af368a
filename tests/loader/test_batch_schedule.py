"""What workers do next: batches in order, no further ahead than allowed."""

from collections.abc import Iterator

import pytest

from ocr.loader.schedule import Schedule


def no_alarm(seconds: float) -> None:
    pytest.fail(f"waited for {seconds} s")


def test_batches_are_taken_in_order_whichever_is_done_first():
    schedule = Schedule(iter([[0], [1]]), ahead=2)
    opened = []
    for _ in range(2):
        assert schedule.next_task() == (None, 0)
        opened.append(schedule.open_next())
        schedule.begun(opened[-1], done=False)
        assert schedule.next_task() == (opened[-1], 0)
    for pending in reversed(opened):
        schedule.finish(pending)
    assert [schedule.take(1, no_alarm) for _ in range(3)] == [*opened, None]


def test_no_more_batches_are_open_than_allowed():
    schedule = Schedule(iter([[0], [1], [2]]), ahead=1)
    for indices in ([0], [1], [2]):
        assert schedule.next_task() == (None, 0)
        pending = schedule.open_next()
        assert pending.indices == indices
        schedule.begun(pending, done=True)
        assert schedule.take(1, no_alarm) is pending
    assert schedule.next_task() is None


def test_workers_leave_when_nothing_is_left_although_batches_are_not_taken_yet():
    schedule = Schedule(iter([[0, 1]]), ahead=2)
    pending = schedule.open_next()
    schedule.begun(pending, done=False)
    assert [schedule.next_task() for _ in range(3)] == [(pending, 0), (pending, 1), None]


def test_an_error_of_the_plan_comes_after_the_batches_before_it():
    def plan() -> Iterator[list[int]]:
        yield [0]
        raise OSError("shard lost")

    schedule = Schedule(plan(), ahead=3)
    first = schedule.open_next()
    schedule.begun(first, done=True)
    assert schedule.open_next() is None
    assert schedule.take(1, no_alarm) is first
    assert str(schedule.take(1, no_alarm).error) == "shard lost"
    assert schedule.next_task() is None


def test_a_stopped_schedule_gives_out_nothing():
    schedule = Schedule(iter([[0], [1]]), ahead=2)
    schedule.begun(schedule.open_next(), done=False)
    schedule.stop()
    assert schedule.next_task() is None


def test_a_long_wait_is_reported():
    schedule = Schedule(iter([[0]]), ahead=1)
    pending = schedule.open_next()
    waited = []

    def alarm(seconds: float) -> None:
        waited.append(seconds)
        pending.done = True

    assert schedule.take(0.01, alarm) is pending
    assert len(waited) == 1
