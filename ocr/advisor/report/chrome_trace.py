"""Timelines in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ocr.advisor.report.result_fields import number, objects, part, words
from ocr.advisor.report.timeline import MODEL, read_pieces
from ocr.atomic import replacing
from ocr.errors import ConfigError


def write_trace(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the timelines of all results, each as a process with its threads; ConfigError if there is none."""
    timed = [found for found in results if read_pieces(found)]
    if not timed:
        raise ConfigError(
            f"--trace {path}: none of the results has a timeline. Record one: ocr profile --json FILE, or ocr advise "
            "--json FILE if a step takes at most a few seconds",
            setting="--trace",
            value=path,
        )
    events = [event for process, found in enumerate(timed, 1) for event in _events(found, process)]
    with replacing(path) as stream:
        stream.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())


def _events(found: Mapping[str, Any], process: int) -> Iterator[dict[str, Any]]:
    """Names first, then complete events in microseconds, and memory as a counter."""
    data = part(found, "data")
    name = " ".join(filter(None, (words(found, "kind"), words(data, "split"), words(data, "place"))))
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    pieces = read_pieces(found)
    threads = {MODEL: 1}
    for piece in pieces:
        threads.setdefault(piece.thread, len(threads) + 1)
    for thread, at in threads.items():
        head = {"ph": "M", "pid": process, "tid": at}
        yield head | {"name": "thread_name", "args": {"name": thread}}
        yield head | {"name": "thread_sort_index", "args": {"sort_index": at}}
    for piece in pieces:
        times = {"ts": round(1e6 * piece.start, 1), "dur": round(1e6 * (piece.end - piece.start), 1)}
        yield {"ph": "X", "name": piece.what, "cat": piece.kind, "pid": process, "tid": threads[piece.thread]} | times
    for look in objects(found, "memory"):
        second, size = number(look, "at_s"), number(look, "bytes")
        if second is not None and size is not None:
            yield {"ph": "C", "name": "memory", "pid": process, "ts": round(1e6 * second, 1), "args": {"bytes": size}}
