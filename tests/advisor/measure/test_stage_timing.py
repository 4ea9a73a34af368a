"""What the system tells of a thread, where it tells anything."""

import errno
import os

from ocr.advisor.measure.stage_timing import queued_seconds


def test_a_thread_has_not_waited_for_a_core_if_the_system_does_not_tell(monkeypatch):
    assert queued_seconds() >= 0

    def missing(path, flags):
        raise FileNotFoundError(errno.ENOENT, "no such file", path)

    monkeypatch.setattr(os, "open", missing)
    assert queued_seconds() == 0
