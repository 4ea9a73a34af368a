"""The advice on the screen."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ocr.advisor.remedies.advice import Advice, Remedy
from ocr.units import format_bytes


def print_advice(advice: Advice, console: Console, max_remedies: int = 12) -> None:
    """The verdict, what a page needs, and the remedies, best first."""
    shown = advice.remedies[:max_remedies]
    console.print(f"\n[bold]{escape(advice.sentence)}[/]", highlight=False, soft_wrap=True)
    console.print(_stages(advice))
    console.print(_remedies(advice, shown))
    for remedy in shown:
        console.print(f"[bold]{escape(remedy.name)}[/]: {escape(remedy.reason)}.", highlight=False, soft_wrap=True)
        steps = ", then ".join(filter(None, (remedy.command, " ".join(remedy.overrides))))
        console.print(f"  [dim]{escape(steps)}[/]", highlight=False, soft_wrap=True)
    if advice.verified:
        console.print(_verified(advice))


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _stages(advice: Advice) -> Table:
    table = _table(f"One page of {escape(advice.location)}", "stage", "ms", "on a core", "one worker at a time")
    for demand in advice.demands:
        serial = f"{1e3 * demand.serial_seconds:.2f} ({demand.resource})" if demand.serial_seconds else ""
        table.add_row(escape(demand.name), f"{1e3 * demand.seconds:.2f}", f"{1e3 * demand.cpu_seconds:.2f}", serial)
    step, cpu = 1e3 * advice.consumer.step_seconds, 1e3 * advice.consumer.step_cpu_seconds
    table.add_row(f"step of {advice.batch_size} pages", f"{step:.1f}", f"{cpu:.1f}", "")
    return table


def _remedies(advice: Advice, shown: list[Remedy]) -> Table:
    title = f"An epoch of {advice.pages} pages"
    table = _table(title, "remedy", "pages/s", "epoch", "gain", "keeps", "pays off after")
    for remedy in [advice.present, *shown]:
        style = "bold" if remedy is advice.present else "green" if remedy is advice.best else ""
        table.add_row(*_cells(remedy, advice), style=style)
    return table


def _cells(remedy: Remedy, advice: Advice) -> list[str]:
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
    table = _table("Predicted and measured seconds per epoch", "configuration", "predicted", "measured", "error")
    for name, predicted, measured in advice.verified:
        table.add_row(escape(name), f"{predicted:.3f}", f"{measured:.3f}", f"{predicted / measured - 1:+.0%}")
    table.add_row("mean absolute error", "", "", f"{advice.mean_error:.0%}")
    return table
