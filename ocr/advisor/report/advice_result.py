"""The advice as JSON, for `ocr report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocr.advisor.measure.epoch_trace import Trace
from ocr.advisor.remedies.advice import Advice, Remedy
from ocr.advisor.report.result_file import result
from ocr.tools.cache.inventory import describe


def to_result(
    advice: Advice,
    command: str,
    machine: Mapping[str, Any],
    split: str,
    throughput: Mapping[str, float],
    caches: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything that the report draws."""
    present = advice.present.later
    figures = {
        "measured": {**_measured(advice), **throughput},
        "present": {
            "name": "present",
            "samples_per_s": present.samples_per_second,
            "epoch_s": present.epoch_seconds,
            "bottleneck": present.stage or present.bottleneck,
            "sentence": advice.sentence,
            "wait_share": present.wait_share,
            "run_s": advice.present.run_seconds,
            "memory_bytes": advice.present.memory_bytes or None,
        },
        "remedies": [_remedy(remedy, advice) for remedy in advice.remedies],
        "best": advice.best.name if advice.best else None,
        "left_out": advice.left_out,
        "verified": [
            {"name": name, "predicted_s": predicted, "measured_s": measured, "error": predicted / measured - 1}
            for name, predicted, measured in advice.verified
        ],
        "mean_error": advice.mean_error,
        **Trace(advice.timeline, advice.memory).to_figures(),
        "cache": list(caches),
    }
    data = {"place": advice.location, "split": split, "pages": advice.pages, "units": advice.units}
    return result("advice", command, machine, data, **figures)


def _measured(advice: Advice) -> dict[str, Any]:
    stages = [
        {
            "name": demand.name,
            "cpu_ms": 1e3 * demand.cpu_seconds,
            "wall_ms": 1e3 * demand.seconds,
            "bytes_out": 0,
            "serial": bool(demand.serial_seconds),
        }
        for demand in advice.demands
    ]
    return {
        "stages": stages,
        "step_ms": 1e3 * advice.consumer.step_seconds,
        "batch_size": advice.batch_size,
        "cores": advice.present.later.pipeline.cores,
        "workers": advice.workers,
        "unit": advice.unit,
    }


def _remedy(remedy: Remedy, advice: Advice) -> dict[str, Any]:
    return {
        "name": remedy.name,
        "overrides": list(remedy.overrides),
        "samples_per_s": remedy.later.samples_per_second,
        "epoch_s": remedy.later.epoch_seconds,
        "first_epoch_s": remedy.first.epoch_seconds,
        "run_s": remedy.run_seconds,
        "gain": remedy.gain if remedy.fits else None,
        "fits": remedy.fits,
        "memory_bytes": remedy.memory_bytes or None,
        "hmean": remedy.hmean,
        "ram_bytes": remedy.kept_bytes,
        "disk_bytes": remedy.kept_bytes,
        "payback_epochs": remedy.payback_epochs(advice.present.later),
        "reason": remedy.reason,
        "combined": remedy.combined,
        "command": remedy.command,
    }


def cache_state(root: Path) -> list[dict[str, Any]]:
    """What the caches of this machine hold, and how often they were hit."""
    return [
        {
            "split": kept.dataset,
            "bytes": kept.disk_bytes,
            "covers": kept.ready / max(1, kept.pages),
            "hits": kept.events.get("hits", 0),
            "misses": kept.events.get("misses", 0),
        }
        for kept in describe(root)
        if kept.pages
    ]
