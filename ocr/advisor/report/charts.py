"""The charts of the report: which figures of a result are drawn, and how they are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ocr.advisor.report.number_format import in_digits, in_percent, in_seconds, in_times
from ocr.advisor.report.result_fields import number, objects, part, words
from ocr.advisor.report.svg_chart import Chart, ChartRow, Mark, time_axis

Found = Mapping[str, Any]

KIND_COLOURS = {
    "source": "c1",
    "fixed": "c1",
    "random": "c2",
    "targets": "c3",
    "batch": "c3",
    "device": "c3",
    "model": "c4",
    "boxes": "c4",
    "scores": "c4",
    "wait": "c5",
}
KIND_MEANINGS = {
    "c1": "source and fixed stages",
    "c2": "random stages",
    "c3": "targets, batch, device",
}
DATA_KINDS = ("source", "fixed", "random", "targets", "batch", "device")
MODEL_KINDS = ("model", "boxes", "scores")
# Everybody can tell four colours and grey apart; more are too many.
NAMED_STAGES = 4


def known(found: Found, key: str) -> float:
    """A figure >= 0; 0 if it is missing."""
    return max(number(found, key) or 0.0, 0.0)


def having(found: Found, key: str, figure: str) -> list[Found]:
    """The objects that have this figure: a missing one is left out, not drawn as zero."""
    return [row for row in objects(found, key) if number(row, figure) is not None]


def charts_of_profile(found: Found) -> tuple[list[Chart], list[Chart]]:
    """Left and right column."""
    note = "Each stage by itself, with the output of the one before. Shares are of the data path."
    data = _stages(found, "Stages of the data path", DATA_KINDS, note)
    model = _stages(found, "After the data path", MODEL_KINDS)
    return _present(data), _present(_whole(found), model, _sizes(found))


def _present(*charts: Chart) -> list[Chart]:
    return [chart for chart in charts if chart.rows]


def _stages(found: Found, title: str, kinds: Collection[str], note: str = "") -> Chart:
    drawn, used = [], set()
    for stage in having(found, "stages", "mean_ms"):
        kind = words(stage, "kind") or "fixed"
        if kind not in kinds:
            continue
        mean, share = known(stage, "mean_ms"), number(stage, "share")
        value = f"{in_digits(mean)} ms" + (f" · {in_percent(share)}" if share is not None else "")
        name = words(stage, "name")
        marks = [Mark("bar", 0, mean, KIND_COLOURS[kind])]
        drawn.append(ChartRow(name, value, marks, name == words(found, "slowest")))
        used.add(KIND_COLOURS[kind])
    legend = {colour: meaning for colour, meaning in KIND_MEANINGS.items() if colour in used and len(used) > 1}
    return Chart(title, "milliseconds per page, mean", drawn, note, legend)


def _whole(found: Found) -> Chart:
    drawn = []
    for name, times in part(found, "whole").items():
        if isinstance(times, Mapping) and number(times, "mean_ms") is not None:
            mean, spread = known(times, "mean_ms"), number(times, "std_ms")
            value = f"{in_digits(mean)} ms" if spread is None else f"{in_digits(mean)} ± {in_digits(spread, 2)} ms"
            drawn.append(ChartRow(words({"": name}, ""), value, [Mark("bar", 0, mean)]))
    return Chart("The whole data path", "milliseconds per page, mean", drawn)


def _sizes(found: Found) -> Chart:
    sizes = objects(found, "sizes")
    totals: Counter[str] = Counter()
    for size in sizes:
        totals.update({name: known(part(size, "stages"), name) for name in part(size, "stages")})
    named = [name for name, _ in totals.most_common(NAMED_STAGES)]
    colours = {name: f"c{at}" for at, name in enumerate(named, 1)}
    drawn = []
    for size in sizes:
        stages, end, marks = part(size, "stages"), 0.0, []
        for name in named:
            marks.append(Mark("bar", end, end + known(stages, name), colours[name]))
            end = marks[-1].end
        total = max(known(size, "total_ms"), end)
        if total > end * (1 + 1e-6):
            marks.append(Mark("bar", end, total, "c5" if named else "c1"))
        drawn.append(ChartRow(f"{words(size, 'size')} px", f"{in_digits(total)} ms", marks))
    legend = {colours[name]: words({"": name}, "") for name in named}
    others = any(mark.colour == "c5" for row in drawn for mark in row.marks)
    note = "By the longest side of the letterboxed page."
    return Chart(
        "Across image sizes", "milliseconds per page", drawn, note, legend | ({"c5": "all others"} if others else {})
    )


def demand_chart(measured: Found) -> Chart:
    """What the predictions are based on."""
    stages = having(measured, "stages", "cpu_ms")
    drawn = [
        ChartRow(
            words(stage, "name"),
            f"{in_digits(known(stage, 'cpu_ms'))} ms",
            [Mark("bar", 0, known(stage, "cpu_ms"), "c2" if stage.get("serial") else "c1")],
        )
        for stage in stages
    ]
    serial = any(stage.get("serial") for stage in stages)
    legend = {"c1": "all workers at once", "c2": "one worker at a time"} if serial else {}
    return Chart(
        "CPU time of each stage", f"CPU milliseconds per {words(measured, 'unit') or 'page'}", drawn, legend=legend
    )


def epochs_chart(found: Found) -> Chart:
    """The present run, or epoch if no run is predicted, and the same with each remedy."""
    present = part(found, "present")
    what, figure = ("run", "run_s") if number(present, "run_s") is not None else ("epoch", "epoch_s")
    remedies, today = having(found, "remedies", figure), number(present, figure)
    factor, unit = time_axis(max([today or 0.0, *(known(remedy, figure) for remedy in remedies)]))
    drawn = []
    if today is not None:
        drawn.append(ChartRow("today", in_seconds(today), [Mark("bar", 0, today * factor, "c5")], strong=True))
    for remedy in remedies:
        seconds, colour = known(remedy, figure), "c3" if remedy.get("combined") else "c1"
        gain = number(remedy, "gain")
        value = in_seconds(seconds) + ("" if gain is None else f" · {in_times(gain)}")
        drawn.append(ChartRow(words(remedy, "name"), value, [Mark("bar", 0, seconds * factor, colour)]))
    legend = {} if today is None else {"today": "today"}
    used = {mark.colour for row in drawn for mark in row.marks}
    legend |= {colour: text for colour, text in {"c1": "alone", "c3": "combined"}.items() if colour in used}
    line = None if today is None else today * factor
    return Chart(f"Predicted {what}", f"{unit} per {what}", drawn if remedies else (), legend=legend, line=line)


def verified_chart(found: Found) -> Chart:
    """Each prediction beside its measurement."""
    verified = [check for check in having(found, "verified", "predicted_s") if number(check, "measured_s") is not None]
    pairs = [(known(check, "predicted_s"), known(check, "measured_s")) for check in verified]
    factor, unit = time_axis(max([0.0, *map(max, pairs)]))
    drawn = []
    for check, (predicted, measured) in zip(verified, pairs, strict=True):
        low, high = sorted((predicted * factor, measured * factor))
        marks = [Mark("link", low, high), Mark("dot", 0, measured * factor, "c1")]
        marks.append(Mark("ring", 0, predicted * factor, "c2"))
        drawn.append(ChartRow(words(check, "name"), in_percent(error_of(check), signed=True), marks))
    mean = number(found, "mean_error")
    note = "" if mean is None else f"Mean absolute error: {in_percent(mean)} of the measured time."
    legend = {"dot c1": "measured", "ring c2": "predicted"}
    return Chart("Predicted and measured epoch", f"{unit} per epoch", drawn, note, legend)


def error_of(check: Found) -> float | None:
    """The error in the result, or computed as a share of the measured time."""
    predicted, measured = number(check, "predicted_s"), number(check, "measured_s")
    if (error := number(check, "error")) is None and predicted is not None and measured:
        return predicted / measured - 1
    return error


def bench_charts(found: Found) -> list[Chart]:
    """Later epochs with their spread, and first epochs separately, because they also fill caches."""
    ran = [row for row in objects(found, "configurations") if not row.get("skipped")]
    named = list(zip(ran, name_configurations(ran), strict=True))
    baseline = words(found, "baseline")
    return _present(
        _epochs("Later epochs", named, "median_s", baseline, "Median, with the fastest and the slowest."),
        _epochs("First epoch", named, "first_s", baseline, "Shown separately, because it also fills caches."),
    )


def _epochs(title: str, named: Sequence[tuple[Found, str]], figure: str, baseline: str, note: str) -> Chart:
    timed = [(row, name) for row, name in named if number(row, figure) is not None]
    spans = [_span(row) if figure == "median_s" else [] for row, _ in timed]
    factor, unit = time_axis(max([0.0, *(known(row, figure) for row, _ in timed), *(max(s, default=0) for s in spans)]))
    drawn = []
    for (row, name), span in zip(timed, spans, strict=True):
        strong, seconds = words(row, "name") == baseline, known(row, figure)
        marks = [Mark("bar", 0, seconds * factor, "c5" if strong else "c1" if figure == "median_s" else "c3")]
        if span:
            marks.append(Mark("whisker", span[0] * factor, span[1] * factor))
        drawn.append(ChartRow(name, in_seconds(seconds), marks, strong))
    return Chart(title, f"{unit} per epoch", drawn, f"{note} Grey is the baseline." if baseline else note)


def _span(row: Found) -> list[float]:
    """The fastest and the slowest later epoch."""
    later = row.get("later_s")
    seconds = [float(s) for s in later if isinstance(s, int | float) and s >= 0] if isinstance(later, list) else []
    return [min(seconds), max(seconds)] if len(seconds) > 1 else []


def name_configurations(ran: Sequence[Found]) -> list[str]:
    """Their names, with split and workers if the same name ran more than once."""
    counts = Counter(words(row, "name") for row in ran)
    return [
        words(row, "name")
        if counts[words(row, "name")] == 1
        else f"{words(row, 'name')} ({words(row, 'split')}, {words(row, 'workers')} workers)"
        for row in ran
    ]
