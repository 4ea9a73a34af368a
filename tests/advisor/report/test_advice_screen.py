"""What `ocr advise` prints, for measurements that are invented."""

import io
from dataclasses import replace

from rich.console import Console

from ocr.advisor.model.queueing import GIL, Consumer, Demand, Pipeline
from ocr.advisor.model.training_run import TrainingRun
from ocr.advisor.remedies.advice import NOT_KNOWN, Advice, Remedy
from ocr.advisor.report.advice_screen import print_advice

DECODE, WARP = Demand("decode", 0.008, 0.008), Demand("Warp [1]", 0.004, 0.003, 0.002, GIL)
LINE = Pipeline((DECODE, WARP), Consumer(0.04, 0.02), 160, 16, 2, 4)


def remedy(name: str, line: Pipeline, *overrides: str, about: str = "", **details) -> Remedy:
    now, present = line.predict(), LINE.predict()
    details = {"first": now, "gain": present.epoch_seconds / now.epoch_seconds} | details
    return Remedy(name, overrides, about, now, **details)


def test_wording_of_advice(snapshot):
    cached, faster = replace(LINE, demands=(WARP,)), replace(LINE, consumer=Consumer(0.01, 0.01))
    slower, idle = replace(LINE, workers=1), replace(LINE, consumer=Consumer(1.0, 0.5))
    present = remedy("present", LINE)
    remedies = [
        remedy(
            "prefix cache",
            cached,
            "data.cache=prefix",
            about="pages are decoded once",
            first=slower.predict(),
            kept_bytes=7_000_000,
        ),
        remedy("ready shards", cached, "data=webdataset", command="ocr convert DIR shards --ready"),
        remedy("bf16", faster, "trainer.precision=bf16-mixed", hmean=NOT_KNOWN),
        remedy("1 worker", slower, "data.num_workers=1", about="cores are left for others"),
        remedy("batches of 64", faster, "batch_size=64", memory_bytes=6_000_000_000, free_bytes=2e9),
    ]
    advice = Advice("pages [1]", 160, 16, 2, (DECODE, WARP), LINE.consumer, present, remedies)
    advice.verified = [("present", 1.0, 1.25), ("prefix cache", 0.5, 0.4)]
    advice.left_out = {"compiled model": "no compiler [here]"}
    shown = Console(record=True, width=100, file=io.StringIO())
    print_advice(advice, shown)

    def verdict(now: Remedy, *others: Remedy) -> None:
        one = Advice("pages", 160, 16, 2, (), Consumer(), now, list(others))
        shown.print("", one.sentence, sep="\n", highlight=False, soft_wrap=True)

    verdict(remedy("present", idle, gain=1.0))
    verdict(present, replace(remedies[2], gain=3.0), replace(remedies[0], gain=2.0))
    verdict(present, remedies[1])
    full = replace(present, memory_bytes=3_000_000_000, free_bytes=2e9)
    verdict(full, replace(remedies[2], gain=0.9))
    verdict(full, remedies[4])
    run = replace(present, run=TrainingRun(10, 5, 2.0), memory_bytes=1_000_000_000)
    shown.print(width=100)
    print_advice(replace(advice, present=run, remedies=[], verified=[]), shown)
    snapshot("advice", shown.export_text())
