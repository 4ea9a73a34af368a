"""One epoch by thread: what is drawn of it, and the file for Perfetto."""

import json

import pytest
import sample_results as samples
import typer
from rejection import rejects
from typer.testing import CliRunner

from ocr.advisor.commands.report import report
from ocr.advisor.report.chrome_trace import write_trace
from ocr.advisor.report.result_file import write_result
from ocr.advisor.report.timeline import memory_chart, pieces_table, read_pieces, timeline_charts
from ocr.errors import ConfigError


def test_every_thread_has_a_row_and_the_model_comes_first():
    whole, part = timeline_charts(read_pieces(samples.advice()))
    for chart in (whole, part):
        assert [row.label for row in chart.rows] == ["model", "worker 1", "worker 2"]
        assert list(chart.legend) == ["c1", "c2", "c3", "c4", "c5"]
    assert [row.value for row in whole.rows] == ["38 % busy", "80 % busy", "80 % busy"]
    # Three batches of 0.4 s.
    assert part.top == pytest.approx(1.2)
    assert part.rows[0].marks[0].start == pytest.approx(0)


def test_a_timeline_of_an_older_version_is_one_thread_that_waits_and_computes():
    (whole,) = timeline_charts(read_pieces({"timeline": samples.timeline(steps=3)}))
    (row,) = whole.rows
    assert row.value == "22 % busy"
    assert row.marks[0].start == 0
    assert [mark.colour for mark in row.marks] == ["c5", "c4"] * 3


def test_spans_too_short_to_be_seen_are_drawn_together():
    spans = [
        {"what": "decode", "kind": "fixed", "thread": "w", "start_s": at, "end_s": at + 0.9999} for at in range(9999)
    ]
    (chart,) = timeline_charts(read_pieces({"timeline": spans}))
    assert [(mark.start, round(mark.end)) for mark in chart.rows[0].marks] == [(0, round(9998.9999 / 60))]
    seen = [span | {"end_s": span["start_s"] + 0.5} for span in spans[:50]]
    (chart,) = timeline_charts(read_pieces({"timeline": seen}))
    assert len(chart.rows[0].marks) == 50


def test_everything_the_threads_did_is_summed():
    table = pieces_table(read_pieces(samples.advice()))
    assert table.index("decode") < table.index("wait") < table.index("step") < table.index("targets")
    assert ">24<" in table
    assert "4.80 s" in table


def test_memory_is_drawn_over_the_same_time():
    (line,) = memory_chart(samples.advice()).lines
    assert line.points[0] == (0, pytest.approx(1.2))
    assert line.value == "at most 2.1 GB"
    assert memory_chart(samples.advice() | {"memory": []}).lines == []


def test_the_trace_has_every_span_in_microseconds_under_the_name_of_its_thread(tmp_path):
    write_trace([samples.profile(), samples.advice(), samples.advice()], tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(p, t): name for p in (1, 2) for t, name in enumerate(["model", "worker 1", "worker 2"], 1)}
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert len(spans) == len(samples.threads())
    second = [span for span in spans if names[1, span["tid"]] == "model"][2]
    assert (second["name"], second["cat"], second["ts"], second["dur"]) == ("wait", "wait", 400_000, 250_000)
    memory = [event for event in events if event["ph"] == "C" and event["pid"] == 1]
    assert memory[1] == {"ph": "C", "name": "memory", "pid": 1, "ts": 200_000, "args": {"bytes": 1_240_000_000}}


def test_a_trace_without_a_timeline_is_refused(tmp_path):
    with rejects(ConfigError, setting="--trace", value=tmp_path / "trace.json"):
        write_trace([samples.profile()], tmp_path / "trace.json")
    assert not (tmp_path / "trace.json").exists()


def test_the_command_writes_page_and_trace(tmp_path):
    app = typer.Typer()
    app.command()(report)
    result, out, trace = (tmp_path / name for name in ("advice.json", "report.html", "trace.json"))
    write_result(samples.advice(), result)
    done = CliRunner().invoke(app, [str(result), "--out", str(out), "--trace", str(trace)])
    assert done.exit_code == 0, done.output
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [str(out), str(trace)]
    assert "One epoch by thread" in out.read_text()
    with rejects(ConfigError, setting="--trace", value=result):
        CliRunner().invoke(app, [str(result), "--trace", str(result)], catch_exceptions=False)
