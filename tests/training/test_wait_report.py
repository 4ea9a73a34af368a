"""During training: a model that waits for data is reported once per cause, and one that does not is left alone."""

import io
from collections import Counter
from types import SimpleNamespace

from rich.console import Console

from ocr.training.callbacks.wait_report import WaitReport
from ocr.training.stopwatch import Stopwatch


def end_epoch(report: WaitReport, waited: float, first_wait: float = 0.0, **counts: int) -> None:
    """Call the callback as a trainer does after an epoch of 2,500 seconds."""
    module = SimpleNamespace(stopwatch=Stopwatch())
    ledger = SimpleNamespace(totals=lambda: Counter(counts))
    data = SimpleNamespace(datasets={"train": SimpleNamespace(ledger=ledger)})
    trainer = SimpleNamespace(datamodule=data, is_global_zero=True)
    report.on_train_epoch_start(trainer, module)
    report._started -= 2500.0
    for index, until_now in enumerate((first_wait, waited)):
        module.stopwatch.seconds["data wait"] = until_now
        report.on_train_batch_start(trainer, module, None, index)
    report.on_train_epoch_end(trainer, module)


def test_a_model_that_waits_is_sent_to_advise_once():
    report, lines = WaitReport(Console(file=(out := io.StringIO()), width=200)), []
    for waited in (100.0, 2000.0, 2000.0):
        end_epoch(report, waited, seen=8)
        lines.append(len(out.getvalue().splitlines()))
    assert lines == [0, 1, 1]
    assert "80%" in out.getvalue()
    assert "glyphfeed advise" in out.getvalue()


def test_starting_and_filling_the_cache_are_reasons_of_their_own():
    report = WaitReport(Console(file=(out := io.StringIO()), width=200))
    end_epoch(report, 2400.0, first_wait=2300.0, seen=8)
    assert "2300.0 s" in out.getvalue()
    end_epoch(report, 2400.0, seen=8, cache_misses=8)
    assert "cache was filled" in out.getvalue()
    assert "glyphfeed advise" not in out.getvalue()
    end_epoch(report, 2400.0, seen=8, cache_misses=0)
    assert len(out.getvalue().splitlines()) == 3
