"""The campaign, the soak and the mutants: what they look for is found, and can be run again."""

import faulthandler
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import cv2
import pytest
import torch

from benchmarks.documents import END, begin
from benchmarks.reliability import mutants, soak
from benchmarks.reliability.campaign import __main__ as campaign
from benchmarks.reliability.campaign import cases
from benchmarks.reliability.campaign.cases import CLASSES, Case, Fault, FindingError, Parser
from benchmarks.reliability.campaign.changes import CHANGERS

ROOT = Path(__file__).resolve().parent.parent
SEED = 20


@pytest.fixture
def threads_restored():
    before = cv2.getNumThreads(), torch.get_num_threads()
    yield
    cv2.setNumThreads(before[0])
    torch.set_num_threads(before[1])


# -- campaign


def test_a_handful_of_faults_and_inputs_has_no_finding(tmp_path, threads_restored):
    chosen = ("cache-flip", "edit-between", "shard-cut", "kill-fill", "annotation-native", "image-png")
    (tmp_path / "reliability.md").write_text(f"before\n{begin('campaign')}\nold\n{END}\nafter\n")
    options = ["--faults", "4", "--inputs", "60", "--seed", str(SEED), "--docs", str(tmp_path / "reliability.md")]
    options += ["--json", str(tmp_path / "result.json"), *(word for name in chosen for word in ("--only", name))]
    assert campaign.main(options) == 0
    found = json.loads((tmp_path / "result.json").read_text())["classes"]
    assert {name: one["cases"] > 0 for name, one in found.items()} == dict.fromkeys(chosen, True)
    assert found["cache-flip"]["samples"] >= 12
    assert re.search(
        r"before\n.*\n\| images, png \| \d+ \|.*after", (tmp_path / "reliability.md").read_text(), re.DOTALL
    )


@pytest.mark.slow
def test_a_slice_of_every_class_has_no_finding(tmp_path):
    command = [sys.executable, "-m", "benchmarks.reliability.campaign", "--faults", "34", "--inputs", "4000"]
    command += ["--seed", str(SEED), "--json", str(tmp_path / "result.json")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    for name, found in json.loads((tmp_path / "result.json").read_text())["classes"].items():
        assert found["cases"] > 0 or found["missing"], name


def explode(path: Path) -> bool:
    if b"7" in path.read_bytes():
        raise KeyError("seven")
    if b"8" in path.read_bytes():
        faulthandler.disable()  # This end is meant, and a page of stacks in the log is not.
        os.abort()
    return True


def test_an_error_and_a_signal_are_found_and_the_campaign_continues(monkeypatch, capfd):
    parser = Parser("explosive", "for this test", lambda: [b"123456"], explode, "a")
    monkeypatch.setitem(CLASSES, parser.name, parser)
    (line,) = lines = campaign.plan(0, 200, [parser.name])
    campaign.run(lines, SEED)
    assert line.cases == 200
    assert any("KeyError: 'seven'" in finding["why"] for finding in line.findings)
    assert any("ended with -6" in finding["why"] for finding in line.findings)
    assert {finding["what"] for finding in line.findings} == {"crash"}
    case = next(finding["case"] for finding in line.findings if "seven" in finding["why"])
    assert case in capfd.readouterr().out
    assert campaign.run_again(case) == 1


def test_a_case_that_does_not_end_is_found_with_the_place_where_it_waits(monkeypatch):
    monkeypatch.setattr(cases, "HANG_SECONDS", 0.3)
    parser = Parser("endless", "for this test", lambda: [b"1"], wait_for_ever, "a")
    monkeypatch.setitem(CLASSES, parser.name, parser)
    (line,) = lines = campaign.plan(0, 1, [parser.name])
    campaign.run(lines, SEED)
    (finding,) = line.findings
    assert finding["what"] == "hang"
    assert "wait_for_ever" in finding["why"]


def wait_for_ever(path: Path) -> None:
    threading.Event().wait()


def leave_a_file(case: Case) -> None:
    (case.folder / ".a.partial").touch()


def lose_a_sample(case: Case) -> None:
    case.compare([None, 1], [0, 1], skipped=0)


def give_another_sample(case: Case) -> None:
    case.compare([{"a": torch.zeros(2)}], [{"a": torch.ones(2)}])


@pytest.mark.parametrize(
    ("run", "what"), [(leave_a_file, "leak"), (lose_a_sample, "silent skip"), (give_another_sample, "wrong sample")]
)
def test_what_a_fault_leaves_behind_loses_and_changes_is_named(tmp_path, run, what, monkeypatch):
    monkeypatch.setattr(cases, "SETTLE_SECONDS", 0.0)
    left = Fault("left", "for this test", run, lambda folder: None, 1)
    findings = [told["finding"] for told in cases.run_here(left, SEED, 0, 1, tmp_path) if "finding" in told]
    assert [(finding["what"], finding["case"]) for finding in findings] == [(what, f"{SEED}:left:0")]


@pytest.mark.parametrize("kind", CHANGERS)
def test_the_same_seed_makes_the_same_inputs(kind):
    data = b'{"a": [1, 2, {"b": null}]}' if kind == "json" else b'<a b="1"><c>2</c></a>\n1,2,3\n'
    first, second = ([CHANGERS[kind](data, rng, ()) for _ in range(200)] for rng in (Random(SEED), Random(SEED)))
    assert first == second
    assert len(set(first)) > 100


# -- soak


@pytest.mark.parametrize(("per_hour", "noise", "is_flat"), [(60, 20, False), (0, 60, True), (-60, 20, True)])
def test_what_grows_is_distinguished_from_what_varies(per_hour, noise, is_flat):
    rule = soak.RULES[0]
    rng, minutes = Random(0), [1.5 * number for number in range(80)]
    rows = [{"minutes": at, rule.column: 500 + per_hour * at / 60 + rng.gauss(0, noise)} for at in minutes]
    for number, row in enumerate(rows[:20]):  # Growth in the first quarter does not count.
        row[rule.column] = 10.0 * number
    cells, found = rule.judge(rows)
    assert found == is_flat
    assert float(cells[3].replace(",", "")) == pytest.approx(per_hour, abs=noise)


@pytest.mark.slow
def test_two_rounds_of_a_soak_have_no_finding_and_fill_the_document(tmp_path):
    (tmp_path / "reliability.md").write_text(f"{begin('soak')}\n{END}\n")
    command = [sys.executable, "-m", "benchmarks.reliability.soak", "--rounds", "2", "--seed", "6"]
    command += ["--out", str(tmp_path / "out"), "--docs", str(tmp_path / "reliability.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "2 rounds in" in (tmp_path / "reliability.md").read_text()


def test_an_edit_that_is_not_seen_is_a_finding(synthetic, tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "BATCH", 3)
    soak.make_pages(tmp_path / "pages", synthetic, 0)
    pages = soak.Pages(tmp_path / "pages", tmp_path / "cache", 0, size=64)
    pages.edit(Random(1))
    monkeypatch.setattr(pages, "_sample", lambda split, number: 0)
    with pytest.raises(FindingError):
        pages.edit(Random(2))


# -- mutants


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("b = c < d", {"b = c <= d"}),
        ("b = c not in d", {"b = c in d"}),
        ("é = c + (d)", {"é = c - d"}),
        ("b //= c", {"b *= c", "pass"}),
        ("b = c and d", {"b = c or d"}),
        ("b = not c", {"b = c"}),
        ("b = 0.5", {"b = 1.5", "b = (-0.5)"}),
        ("b = True", {"b = False"}),
        ("if c:\n    del d", {"if not c:\n    del d", "if c:\n    pass"}),
        ("b = c(d, e, f)", {"b = c(e, d, f)"}),
        ("def b():\n    return c", {"def b():\n    return None"}),
        ("for b in c:\n    break", {"for b in c:\n    continue"}),
        ("raise b", {"pass"}),
        ('b = f"{c + 1}"', set()),
        ("b: Literal[1]", set()),
        ("if TYPE_CHECKING:\n    b = 1", set()),
        ("@dataclass(slots=True)\nclass B:\n    pass", set()),
    ],
)
def test_each_kind_of_mistake_is_made_where_the_code_has_room_for_it(source, expected):
    found = mutants.mutants_of("a.py", source.encode())
    assert {one.apply(source.encode()).decode() for one in found} == expected


SMALL = {
    "ocr/__init__.py": "",
    "ocr/cache/__init__.py": "",
    "ocr/cache/steps.py": (
        "def steps(n):\n    count = 0\n    while n > 0:\n        n -= 2\n        count += 1\n    return count\n"
    ),
    "ocr/cache/named.py": "BEST = 90\n",
    "ocr/cache/alone.py": "def unused():\n    return not True\n",
    "tests/cache/test_named.py": "from ocr.cache.named import BEST\n\n\ndef test_best():\n    assert BEST == 90\n",
    "tests/cache/test_steps.py": (
        "from ocr.cache.steps import steps\n\n\ndef test_steps():\n    assert steps(4) == 2\n\n\n"
        "def test_that_fails_anyway():\n    assert steps(4) == 7\n"
    ),
}
PROGRAM = """
import sys
import threading
from pathlib import Path
from benchmarks.reliability import mutants
mutants.ROOT, mutants.LIBRARIES, mutants.START_SECONDS = Path(sys.argv[1]), ("pytest", "hypothesis"), 3
mutants.COPIED = ("ocr", "tests")
sys.exit(mutants.main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_mistake_is_noticed_by_the_tests_of_its_line_and_one_that_no_test_reaches_survives(tmp_path):
    for name, text in SMALL.items():
        (tmp_path / "small" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "small" / name).write_text(text)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "small"), "--folder", str(tmp_path / "work")]
    command += ["--rooms", "cache", "--workers", "1"]
    found = {}
    for seed in range(4):  # One mutant of each line at a time.
        done = subprocess.run([*command, "--seed", str(seed)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for line in (tmp_path / "work/results.jsonl").read_text().splitlines():
        one = json.loads(line)
        found[Path(one["module"]).stem, one["before"], one["after"]] = one["noticed"]
    assert found["named", "BEST = 90", "BEST = 91"] or found["named", "BEST = 90", "BEST = 89"]
    assert {noticed for (module, *_), noticed in found.items() if module == "alone"} == {False}
    steps = {after: noticed for (module, _, after), noticed in found.items() if module == "steps"}
    assert steps.get("n += 2", True)  # It never ends.
    assert not steps.get("n -= 3", False)
    assert (tmp_path / "work/copy-0/tree/ocr/cache/steps.py").read_text() == SMALL["ocr/cache/steps.py"]


def test_a_sample_is_the_same_for_a_seed_and_begins_with_the_shorter_one(tmp_path):
    (tmp_path / "ocr/cache").mkdir(parents=True)
    (tmp_path / "ocr/cache/numbers.py").write_text("".join(f"A{line} = {line} + {line}\n" for line in range(60)))
    sample = mutants.draw_sample(tmp_path, ["cache"], 12, 1)
    assert mutants.draw_sample(tmp_path, ["cache"], 12, 1) == sample != mutants.draw_sample(tmp_path, ["cache"], 12, 2)
    assert mutants.draw_sample(tmp_path, ["cache"], 4, 1) == sample[:4]
    assert len({mutant.line for mutant in sample}) == 12


def test_a_survivor_that_cannot_be_noticed_does_not_count(monkeypatch, tmp_path):
    changed = {"module": "ocr/cache/a.py", "line": 3, "before": "a", "by": "2 tests pass"}
    results = [changed | {"after": after, "noticed": after == "b"} for after in "bcd"]
    (tmp_path / "reasons.json").write_text(
        json.dumps([{"module": "ocr/cache/a.py", "before": "a", "after": "c", "reason": "the same"}])
    )
    monkeypatch.setattr(mutants, "REASONS", tmp_path / "reasons.json")
    rooms, survivors = mutants.tables(results)
    assert rooms[1:] == [[room, "3", "1", "2", "1", "50%"] for room in ("cache", "all")]
    assert [row[-1] for row in survivors[1:]] == ["the same", "2 tests pass"]
