"""One epoch by thread: what each thread did when, and the memory over that time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ocr.advisor.report.charts import KIND_COLOURS
from ocr.advisor.report.html_tables import draw_table
from ocr.advisor.report.line_chart import Line, LineChart
from ocr.advisor.report.number_format import in_bytes, in_count, in_percent, in_seconds
from ocr.advisor.report.result_fields import number, objects, words
from ocr.advisor.report.svg_chart import ALL_WIDTHS, Chart, ChartRow, Mark, time_axis

Found = Mapping[str, Any]
MODEL, WAIT = "model", "wait"
"""What the thread that takes the batches does; it is called after the model."""
MEANINGS = {
    "c1": "read and fixed stages",
    "c2": "random stages",
    "c3": "targets, batch, device",
    "c4": "model",
    "c5": "waiting for data",
}
BATCHES_SHOWN = 3
"""In the enlarged part."""


class Piece(NamedTuple):
    """A part of the time of one thread, in seconds from the start."""

    thread: str
    kind: str
    what: str
    start: float
    end: float


def read_pieces(found: Found) -> list[Piece]:
    """The timeline of a result, in order and from zero."""
    spans = [
        (span, start, end)
        for span in objects(found, "timeline")
        if (start := number(span, "start_s")) is not None and (end := number(span, "end_s")) is not None and end > start
    ]
    begin = min((start for _, start, _ in spans), default=0.0)
    pieces = []
    for span, start, end in spans:
        what = words(span, "what")
        # Results of older versions tell waiting and computing of one thread only.
        kind = words(span, "kind") or (WAIT if what == WAIT else MODEL)
        pieces.append(Piece(words(span, "thread") or MODEL, kind, what, start - begin, end - begin))
    return sorted(pieces, key=lambda piece: piece.start)


def timeline_charts(pieces: Sequence[Piece]) -> list[Chart]:
    """The whole time and, if there are many batches, a few of them from its middle."""
    if not pieces:
        return []
    arrivals = [piece.end for piece in pieces if piece.kind == WAIT]
    end = max(piece.end for piece in pieces)
    whole = _chart("All threads", pieces, 0.0, end, f"{in_count(len(arrivals))} batches.")
    if len(arrivals) < 3 * BATCHES_SHOWN:
        return [whole]
    start, end = arrivals[len(arrivals) // 2], arrivals[len(arrivals) // 2 + BATCHES_SHOWN]
    return [whole, _chart(f"{BATCHES_SHOWN} batches from the middle", pieces, start, end, "")]


def _chart(title: str, pieces: Sequence[Piece], start: float, end: float, note: str) -> Chart:
    factor, unit = time_axis(end - start)
    threads = sorted({piece.thread for piece in pieces}, key=lambda name: (name != MODEL, len(name), name))
    rows, used = [], set()
    for thread in threads:
        own = [
            piece._replace(start=max(piece.start, start) - start, end=min(piece.end, end) - start)
            for piece in pieces
            if piece.thread == thread and piece.end > start and piece.start < end
        ]
        marks = [
            Mark("bar", piece.start * factor, piece.end * factor, colour_of(piece.kind))
            for piece in _merged(own, (end - start) / max(ALL_WIDTHS.values()))
        ]
        used |= {mark.colour for mark in marks}
        busy = sum(piece.end - piece.start for piece in own if piece.kind != WAIT) / (end - start)
        rows.append(ChartRow(thread, f"{in_percent(min(1.0, busy))} busy", marks))
    legend = {colour: meaning for colour, meaning in MEANINGS.items() if colour in used}
    return Chart(title, f"{unit} since the start" if start == 0 else unit, rows, note, legend)


def colour_of(kind: str) -> str:
    """The colour of a kind of work; waiting is grey, as is what no version knows."""
    return KIND_COLOURS.get(kind, "c5")


def _merged(pieces: Sequence[Piece], shortest: float) -> list[Piece]:
    """Neighbours of one colour whose gap nobody can see become one: a timeline has thousands."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last and colour_of(last.kind) == colour_of(piece.kind) and piece.start - last.end < shortest / 2:
            merged[-1] = last._replace(end=max(last.end, piece.end))
        else:
            merged.append(piece)
    return merged


def memory_chart(found: Found) -> LineChart:
    """The memory of all processes while the timeline was recorded."""
    times = [(number(look, "at_s"), number(look, "bytes")) for look in objects(found, "memory")]
    points = [(at, size) for at, size in times if at is not None and size is not None and size >= 0]
    top = max((size for _, size in points), default=0.0)
    factor, unit = (1e-9, "GB") if top >= 1e9 else (1e-6, "MB")
    scale, seconds = time_axis(max((at for at, _ in points), default=0.0))
    line = Line("memory", [(at * scale, size * factor) for at, size in points], f"at most {in_bytes(top)}")
    note = "Of this process and its workers; what they share counts once."
    return LineChart("Memory", f"{seconds} since the start", unit, [line] if len(points) > 1 else [], note)


def pieces_table(pieces: Sequence[Piece]) -> str:
    """What the threads did, longest first."""
    by_what: dict[tuple[str, str], list[float]] = {}
    for piece in pieces:
        where = MODEL if piece.thread == MODEL else "workers"
        by_what.setdefault((where, piece.what), []).append(piece.end - piece.start)
    ordered = sorted(by_what.items(), key=lambda item: -sum(item[1]))
    body = [
        [what, where, in_count(len(spent)), *map(in_seconds, (sum(spent), sum(spent) / len(spent), max(spent)))]
        for (where, what), spent in ordered
    ]
    return draw_table("All of it", ["what", "thread", "times", "together", "mean", "longest"], body, range(2, 6))
