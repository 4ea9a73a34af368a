"""The advice on the screen."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ocr.advisor.remedies.advice import SAME, Advice, Remedy
from ocr.advisor.report.number_format import in_seconds
from ocr.units import format_bytes

MAX_UNFIT = 4


def print_advice(advice: Advice, console: Console, max_remedies: int = 12) -> None:
    """The verdict, what a page needs, and the remedies, best first; then those that do not fit into memory."""
    shown = [remedy for remedy in advice.remedies if remedy.fits][:max_remedies]
    shown += [remedy for remedy in advice.remedies if not remedy.fits][:MAX_UNFIT]
    console.print(f"\n[bold]{escape(advice.sentence)}[/]", highlight=False, soft_wrap=True)
    console.print(_stages(advice))
    console.print(_remedies(advice, shown))
    for remedy in shown:
        hmean = "" if remedy.hmean == SAME else f" H-mean: {remedy.hmean}."
        told = f"[bold]{escape(remedy.name)}[/]: {escape(remedy.reason)}.{escape(hmean)}"
        console.print(told, highlight=False, soft_wrap=True)
        steps = ", then ".join(filter(None, (remedy.command, " ".join(remedy.overrides))))
        console.print(f"  [dim]{escape(steps)}[/]", highlight=False, soft_wrap=True)
    for name, why in advice.left_out.items():
        console.print(f"[bold]{escape(name)}[/] is left out: {escape(why)}", highlight=False, soft_wrap=True)
    if advice.verified:
        console.print(_verified(advice))


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _stages(advice: Advice) -> Table:
    table = _table(
        f"One {advice.unit} of {escape(advice.location)}", "stage", "ms", "on a core", "one worker at a time"
    )
    for demand in advice.demands:
        serial = f"{1e3 * demand.serial_seconds:.2f} ({demand.resource})" if demand.serial_seconds else ""
        table.add_row(escape(demand.name), f"{1e3 * demand.seconds:.2f}", f"{1e3 * demand.cpu_seconds:.2f}", serial)
    step, cpu = 1e3 * advice.consumer.step_seconds, 1e3 * advice.consumer.step_cpu_seconds
    table.add_row(f"step of {advice.batch_size} {advice.units}", f"{step:.1f}", f"{cpu:.1f}", "")
    return table


def _remedies(advice: Advice, shown: list[Remedy]) -> Table:
    title, run = f"An epoch of {advice.pages} {advice.units}", advice.present.run
    # The width of a terminal has room for either.
    speed = [f"{advice.units}/s", "epoch"] if run is None else ["epoch", "run", "memory"]
    if run is not None:
        title += f", and a run of {run.epochs} epochs and {run.validations} validations"
    table = _table(title, "remedy", *speed, "gain", "keeps", "pays off after")
    for remedy in [advice.present, *shown]:
        style = "bold" if remedy is advice.present else "green" if remedy is advice.best else ""
        table.add_row(*_cells(remedy, advice), style=style)
    return table


def _cells(remedy: Remedy, advice: Advice) -> list[str]:
    later, is_present = remedy.later, remedy is advice.present
    kept = format_bytes(remedy.kept_bytes) if remedy.kept_bytes else ""
    gain = "" if is_present else f"{remedy.gain:.2f} x" if remedy.fits else "does not fit"
    pays = "" if is_present else _in_epochs(remedy.payback_epochs(advice.present.later))
    speed = later.samples_per_second
    shown = f"{speed:.0f}" if speed >= 10 else f"{speed:.2g}"
    times = [shown, f"{later.epoch_seconds:.2f} s"]
    if remedy.run_seconds is not None:
        times = [times[1], in_seconds(remedy.run_seconds), format_bytes(remedy.memory_bytes)]
    return [escape(remedy.name), *times, gain, kept, pays]


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
