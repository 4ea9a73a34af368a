"""The advice as a table, as JSON, and as configs/data/tuned.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ocr.advisor.remedies.advice import Advice, Remedy
from ocr.advisor.report.result_file import result
from ocr.atomic import replacing
from ocr.errors import ConfigError
from ocr.tools.cache.kept import describe
from ocr.units import format_bytes

TUNABLE = ("data.", "decode.", "transforms.normalize", "trainer.precision", "use_dali")


def show(advice: Advice, console: Console, most: int = 12) -> None:
    """The verdict, what a page asks for, and the remedies in their order."""
    console.print(f"\n[bold]{escape(advice.sentence)}[/]", highlight=False, soft_wrap=True)
    console.print(_stages(advice))
    console.print(_remedies(advice, most))
    for remedy in advice.remedies[:most]:
        console.print(f"[bold]{escape(remedy.name)}[/]: {escape(remedy.reason)}.", highlight=False, soft_wrap=True)
        if remedy.overrides or remedy.command:
            first = f"{remedy.command}, then " if remedy.command and remedy.overrides else remedy.command
            console.print(f"  [dim]{escape(first + ' '.join(remedy.overrides))}[/]", highlight=False, soft_wrap=True)
    if advice.verified:
        console.print(_verified(advice))


def _stages(advice: Advice) -> Table:
    table = Table(title=f"A page of {advice.place}", title_justify="left", box=SIMPLE)
    table.add_column("stage")
    for heading in ("ms", "on a core", "one at a time"):
        table.add_column(heading, justify="right")
    for demand in advice.demands:
        serial = f"{1e3 * demand.serial_seconds:.2f} ({demand.resource})" if demand.serial_seconds else ""
        table.add_row(escape(demand.name), f"{1e3 * demand.seconds:.2f}", f"{1e3 * demand.cpu_seconds:.2f}", serial)
    step = 1e3 * advice.consumer.step_seconds
    table.add_row(f"a step of {advice.batch_size}", f"{step:.1f}", f"{1e3 * advice.consumer.step_cpu_seconds:.1f}", "")
    return table


def _remedies(advice: Advice, most: int) -> Table:
    table = Table(title=f"An epoch of {advice.pages} pages", title_justify="left", box=SIMPLE)
    table.add_column("remedy", overflow="fold")
    for heading in ("pages/s", "epoch", "gain", "keeps", "pays after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for remedy in [advice.present, *advice.remedies[:most]]:
        style = "bold" if remedy is advice.present else "green" if remedy is advice.best else ""
        table.add_row(*_row(remedy, advice), style=style)
    return table


def _row(remedy: Remedy, advice: Advice) -> list[str]:
    later, is_present = remedy.later, remedy is advice.present
    kept = format_bytes(remedy.kept_bytes) if remedy.kept_bytes else ""
    gain = "" if is_present else f"{remedy.gain:.2f} x"
    pays = "" if is_present else _in_epochs(remedy.payback_epochs(advice.present.later))
    speed = later.samples_per_second
    shown = f"{speed:.0f}" if speed >= 10 else f"{speed:.2g}"
    return [escape(remedy.name), shown, f"{later.epoch_seconds:.2f} s", gain, kept, pays]


def _in_epochs(count: float | None) -> str:
    if count is None:
        return ""
    return "at once" if count < 0.5 else "1 epoch" if count < 1.5 else f"{count:.0f} epochs"


def _verified(advice: Advice) -> Table:
    table = Table(title="Predicted and measured seconds of an epoch", title_justify="left", box=SIMPLE)
    table.add_column("configuration")
    for heading in ("predicted", "measured", "error"):
        table.add_column(heading, justify="right")
    for name, predicted, measured in advice.verified:
        table.add_row(escape(name), f"{predicted:.3f}", f"{measured:.3f}", f"{predicted / measured - 1:+.0%}")
    table.add_row("mean absolute error", "", "", f"{advice.mean_error:.0%}")
    return table


def to_result(
    advice: Advice,
    command: str,
    machine: Mapping[str, Any],
    split: str,
    rates: Mapping[str, float],
    caches: Sequence[Any],
) -> dict[str, Any]:
    """For `ocr report`."""
    present = advice.present.later
    measured = {
        "stages": [
            {
                "name": demand.name,
                "cpu_ms": 1e3 * demand.cpu_seconds,
                "wall_ms": 1e3 * demand.seconds,
                "bytes_out": 0,
                "serial": bool(demand.serial_seconds),
            }
            for demand in advice.demands
        ],
        "step_ms": 1e3 * advice.consumer.step_seconds,
        "batch_size": advice.batch_size,
        "cores": present.pipeline.cores,
        "workers": advice.workers,
        **rates,
    }
    state = {
        "name": "present",
        "samples_per_s": present.samples_per_second,
        "epoch_s": present.epoch_seconds,
        "bottleneck": present.stage or present.bottleneck,
        "sentence": advice.sentence,
        "wait_share": present.wait_share,
    }
    checked = [
        {"name": name, "predicted_s": predicted, "measured_s": measured_s, "error": predicted / measured_s - 1}
        for name, predicted, measured_s in advice.verified
    ]
    figures = {
        "measured": measured,
        "present": state,
        "remedies": [_as_dict(remedy, advice) for remedy in advice.remedies],
        "best": advice.best.name if advice.best else None,
        "verified": checked,
        "mean_error": advice.mean_error,
        "timeline": [asdict(span) for span in advice.timeline],
        "cache": list(caches),
    }
    data = {"place": advice.place, "split": split, "pages": advice.pages}
    return result("advice", command, machine, data, **figures)


def cache_state(root: Path) -> list[dict[str, Any]]:
    """What the caches of this machine hold, and how often it was of use."""
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


def _as_dict(remedy: Remedy, advice: Advice) -> dict[str, Any]:
    return {
        "name": remedy.name,
        "overrides": list(remedy.overrides),
        "samples_per_s": remedy.later.samples_per_second,
        "epoch_s": remedy.later.epoch_seconds,
        "first_epoch_s": remedy.first.epoch_seconds,
        "gain": remedy.gain,
        "ram_bytes": remedy.kept_bytes,
        "disk_bytes": remedy.kept_bytes,
        "payback_epochs": remedy.payback_epochs(advice.present.later),
        "reason": remedy.reason,
        "combined": remedy.combined,
        "command": remedy.command,
    }


def write_tuned(overrides: Sequence[str], base: str, command: str, path: Path) -> None:
    """`data=tuned`: the group that was used, with the settings that were found best."""
    kept = [text for text in overrides if text.startswith(TUNABLE)]
    tree: dict[str, Any] = {}
    for text in kept:
        name, _, value = text.partition("=")
        *parents, last = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{text}: {parent} is a value already")
        node[last] = value
    tuned = f"  - {base:<32}# what was tuned: configs/data/{base}.yaml"
    head = f"# @package _global_\n# Written by: {command}\ndefaults:\n{tuned}\n"
    with replacing(path) as stream:
        stream.write((head + "".join(_lines(tree, 0))).encode())


def _lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for name, value in tree.items():
        indent = "  " * depth
        if isinstance(value, dict):
            lines.append("\n" * (not depth) + f"{indent}{name}:".ljust(36) + "# found by measuring\n")
            lines += _lines(value, depth + 1)
        else:
            lines.append(f"{indent}{name}: {value}".ljust(36) + "# ocr advise\n")
    return lines
