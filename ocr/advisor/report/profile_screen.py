"""The profile on the screen."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ocr.advisor.measure.profile import Profile
from ocr.advisor.report.number_format import in_bytes, in_count, in_percent

PLAIN: Any = {"highlight": False, "soft_wrap": True}
BUSY = 0.1
"""Share of the time spent waiting for a core from which a warning is shown."""


def print_profile(found: Profile, split: str, console: Console) -> None:
    """One row per stage, the whole path, the sizes, and a sentence about the slowest stage."""
    calls = max(stage.calls for stage in found.data_stages)
    what = f"{found.pages} pages of {escape(found.location)}, {calls // found.pages} times each"
    console.print(f"{escape(split)}: {what}, in one thread, ms per page", **PLAIN)
    console.print(_stages(found), highlight=False)
    for stage in found.stages:
        if stage.name.startswith("Warp"):
            console.print(f"{stage.name} does all of this while it samples pixels once: {escape(stage.label)}", **PLAIN)
    for name, whole in found.whole.items():
        times = f"{whole.mean_ms:.2f} ± {whole.std_ms:.2f} ms per page, {whole.cpu_ms:.2f} of them on the CPU"
        console.print(f"whole path {name}: {times}", **PLAIN)
    if found.sizes:
        console.print(_sizes(found), highlight=False)
    console.print(f"[bold]{escape(found.sentence)}[/]", **PLAIN)
    if found.queued > BUSY:
        busy = f"other processes used the cores for {found.queued:.0%} of the time: rely on the CPU times"
        console.print(f"[yellow]{busy}[/]", **PLAIN)


def _stages(found: Profile) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("stage", overflow="fold")
    for heading in ("kind", "mean", "std", "min", "max", "share", "CPU", "out", "faults"):
        table.add_column(heading, justify="left" if heading == "kind" else "right", no_wrap=True)
    for stage in found.stages:
        shown = f"[bold]{escape(stage.name)}[/]" if stage is found.slowest else escape(stage.name)
        times = [_ms(value) for value in (stage.mean_ms, stage.std_ms, stage.min_ms, stage.max_ms)]
        rest = (_ms(stage.cpu_ms), in_bytes(stage.bytes_out), in_count(round(stage.page_faults)))
        share = "" if stage.share is None else in_percent(stage.share)
        table.add_row(shown, stage.kind, *times, share, *rest)
        if stage is found.data_stages[-1]:
            cpu_ms = sum(one.cpu_ms for one in found.data_stages)
            table.add_row("data path", "", _ms(found.total_ms), "", "", "", "100 %", _ms(cpu_ms), end_section=True)
    return table


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 99.995 else f"{value:.0f}"


def _sizes(found: Profile) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="mean ms per page at other sizes", title_justify="left")
    table.add_column("stage", overflow="fold")
    by_size = {size: {stage.name: stage.mean_ms for stage in stages} for size, stages in found.sizes.items()}
    for size in by_size:
        table.add_column(f"{size} px", justify="right", no_wrap=True)
    for name in dict.fromkeys(name for means in by_size.values() for name in means):
        table.add_row(escape(name), *(_ms(means[name]) if name in means else "" for means in by_size.values()))
    table.add_section()
    table.add_row("sum", *(_ms(sum(means.values())) for means in by_size.values()))
    return table
