"""The campaign: a slice of every class has no finding, and a finding is told with what it takes to see it again."""

import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from benchmarks.document_parts import END, begin
from tests.campaign.again import run_again
from tests.campaign.block import Work, run_block
from tests.campaign.campaign import Campaign, plan
from tests.campaign.cases import CLASSES, Case, Fault, Parser, SilentSkipError, nothing
from tests.campaign.mutate import CHANGERS
from tests.campaign.report import PART, write_document

ROOT = Path(__file__).resolve().parent.parent
SEED = 20


def test_a_slice_of_every_class_has_no_finding(tmp_path):
    command = [sys.executable, "-m", "tests.campaign", "--faults", "40", "--inputs", "5000", "--seed", str(SEED)]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "result.json")], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    for name, found in result["classes"].items():
        assert found["cases"] > 0 or found.get("missing"), name
    assert result["total"]["samples"] > 300


def explode(data: bytes, folder: Path) -> bool:
    if b"7" in data:
        raise KeyError("seven")
    if b"8" in data:
        faulthandler.disable()  # This end is meant, and a page of stacks in the log is not.
        os.abort()
    return True


@pytest.fixture
def parser(monkeypatch) -> Parser:
    made = Parser("explosive", "for this test", lambda: [b"123456"], explode, ("tests/test_campaign",))
    monkeypatch.setitem(CLASSES, made.name, made)
    return made


def test_an_error_and_a_signal_are_found_and_the_campaign_goes_on(parser, tmp_path):
    lines = plan(0, 400, [parser.name])
    Campaign(lines, SEED, tmp_path, None, Console(quiet=True)).run()
    (line,) = lines
    assert line.found.cases == 400
    reasons = [finding["why"] for finding in line.found.findings]
    assert any("KeyError: 'seven'" in reason for reason in reasons)
    assert any("ended with -6" in reason for reason in reasons)
    assert {finding["what"] for finding in line.found.findings} == {"crash"}
    (case, *_) = [finding["case"] for finding in line.found.findings if "seven" in finding["why"]]
    assert run_again(case, Console(quiet=True)) == 1


def leave_a_file(case: Case) -> None:
    (case.folder / ".a.partial").touch()


def lose_a_sample(case: Case) -> None:
    raise SilentSkipError("one of two")


@pytest.mark.parametrize(("run", "what"), [(leave_a_file, "leak"), (lose_a_sample, "silent skip")])
def test_what_a_fault_leaves_behind_and_what_it_loses_are_named(tmp_path, run, what, monkeypatch):
    monkeypatch.setattr("tests.campaign.leaks.SETTLE_SECONDS", 0.0)
    work = Work(Fault("left", "for this test", run, nothing, 1), SEED, 0, 1)
    findings = [told["finding"] for told in run_block(work, tmp_path) if "finding" in told]
    assert [(finding["what"], finding["case"]) for finding in findings] == [(what, f"{SEED}:left:0")]


@pytest.mark.parametrize("kind", CHANGERS)
def test_the_same_seed_makes_the_same_inputs(kind):
    data = b'{"a": [1, 2, {"b": null}]}' if kind == "json" else b'<a b="1"><c>2</c></a>\n1,2,3\n'
    first, second = ([CHANGERS[kind](data, rng, ()) for _ in range(200)] for rng in (Random(SEED), Random(SEED)))
    assert first == second
    assert len(set(first)) > 100


def test_the_table_replaces_what_is_between_the_marks_of_a_document(tmp_path):
    result = {"date": "2026-01-02", "cores": 2, "python": "3.11", "seconds": 60, "command": "the command", "seed": 1}
    tally = dict.fromkeys(("samples", "orders", "processes", "kills", "refused", "counted"), 0)
    fault = {"kind": "fault", "about": "a fault", "cases": 3, "findings": [], **tally}
    result |= {"total": {"faults": 3, "inputs": 0}, "classes": {"a": fault}}
    document = tmp_path / "a.md"
    document.write_text(f"before\n{begin(PART)}\nold\n{END}\nafter\n")
    for _ in range(2):
        write_document(result, document)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| a fault | 3 |") == 1
