"""The campaign, the soak and the mutants: what they find is found, and can be run again."""

import faulthandler
import json
import os
import re
import subprocess
import sys
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
from benchmarks.reliability.mutate import draw_sample, mutants_of

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
<<<<<<< HEAD
    chosen = (
        "cache-flip",
        "edit-between",
        "shard-cut",
        "kill-fill",
        "annotation-native",
        "image-png",
        "cache-dense-page",
    )
=======
    chosen = ("cache-flip", "edit-between", "shard-cut", "kill-fill")
    chosen += ("annotation-native", "image-png", "cache-dense-page")
>>>>>>> core
    (tmp_path / "reliability.md").write_text(f"before\n{begin('campaign')}\nold\n{END}\nafter\n")
    options = ["--faults", "4", "--inputs", "90", "--seed", str(SEED), "--docs", str(tmp_path / "reliability.md")]
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


def test_an_error_and_a_signal_are_found_and_the_campaign_goes_on(monkeypatch, capfd):
    parser = Parser("explosive", "for this test", lambda: [b"123456"], explode, "a")
    monkeypatch.setitem(CLASSES, parser.name, parser)
    (line,) = lines = campaign.plan(0, 300, [parser.name])
    campaign.run(lines, SEED)
    assert line.found.cases == 300
    findings = line.found.findings
    assert any("KeyError: 'seven'" in finding["why"] for finding in findings)
    assert any("ended with -6" in finding["why"] for finding in findings)
    assert {finding["what"] for finding in findings} == {"crash"}
    case = next(finding["case"] for finding in findings if "seven" in finding["why"])
    assert case in capfd.readouterr().out
    assert campaign.run_again(case) == 1


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
    work = cases.Work(Fault("left", "for this test", run, lambda folder: None, 1), SEED, 0, 1)
    findings = [told["finding"] for told in cases.run_here(work, tmp_path) if "finding" in told]
    assert [(finding["what"], finding["case"]) for finding in findings] == [(what, f"{SEED}:left:0")]


@pytest.mark.parametrize("kind", CHANGERS)
def test_the_same_seed_makes_the_same_inputs(kind):
    data = b'{"a": [1, 2, {"b": null}]}' if kind == "json" else b'<a b="1"><c>2</c></a>\n1,2,3\n'
    first, second = ([CHANGERS[kind](data, rng, ()) for _ in range(200)] for rng in (Random(SEED), Random(SEED)))
    assert first == second
    assert len(set(first)) > 100


# -- soak

MEMORY, SPEED = (next(rule for rule in soak.RULES if word in rule.title) for word in ("memory", "CPU second"))
DESCRIPTORS = soak.Rule("descriptors", "descriptors", more=1)


def two_hours(rule: soak.Rule, first: float, per_hour: float, noise: float) -> list[dict[str, float]]:
    rng = Random(0)
    minutes = [1.5 * number for number in range(80)]
    return [{"minutes": at, rule.column: first + per_hour * at / 60 + rng.gauss(0, noise)} for at in minutes]


@pytest.mark.parametrize(
    ("rule", "first", "per_hour", "noise", "is_flat"),
    [
        (MEMORY, 500, 60, 20, False),
        (MEMORY, 500, 0, 60, True),
        (MEMORY, 500, -60, 20, True),
        (DESCRIPTORS, 30, 5, 0, False),
        (DESCRIPTORS, 30, 0, 0, True),
        (SPEED, 100, -30, 5, False),
        (SPEED, 100, 0, 20, True),
        (SPEED, 100, 30, 5, True),
    ],
)
def test_what_grows_is_distinguished_from_what_varies(rule, first, per_hour, noise, is_flat):
    cells, found = rule.judge(two_hours(rule, first, per_hour, noise))
    assert found == is_flat
    assert float(cells[3].replace(",", "")) == pytest.approx(per_hour, abs=max(1, noise))


def test_growth_in_the_first_quarter_is_no_growth_and_a_few_rounds_are_too_short_to_judge():
    rows = two_hours(MEMORY, 500, 0, 0)
    for number, row in enumerate(rows[:20]):
        row[MEMORY.column] = 10 * number
    assert MEMORY.judge(rows)[1]
    assert MEMORY.judge(rows[: soak.MIN_ROUNDS - 1]) is None


@pytest.mark.slow
def test_two_rounds_of_a_soak_have_no_finding_and_fill_the_document(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "reliability.md").write_text(f"{begin('soak')}\n{END}\n")
    command = [sys.executable, "-m", "benchmarks.reliability.soak", "--rounds", "2", "--seed", "6", "--size", "64"]
    command += [
        "--train",
        "8",
        "--val",
        "8",
        "--out",
        str(tmp_path / "out"),
        "--docs",
        str(tmp_path / "reliability.md"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "2 rounds in" in (tmp_path / "reliability.md").read_text()
    assert (tmp_path / "pictures" / "soak.png").stat().st_size > 10_000


def test_an_edit_that_is_not_seen_is_a_finding(synthetic, tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "BATCH_SIZE", 3)
    soak.make_pages(tmp_path / "pages", synthetic, 8, 6, 0)
    pages = soak.Pages(tmp_path / "pages", tmp_path / "cache", 64, 0)
    pages.edit(Random(1))
    monkeypatch.setattr(pages, "_sample", lambda split, number: 0)
    with pytest.raises(FindingError):
        pages.edit(Random(2))


# -- mutants


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("b = c < d", {"b = c <= d"}),
        ("b = (c) is not (d)", {"b = (c) is (d)"}),
        ("b = c not in d", {"b = c in d"}),
        ("é = c + (d)", {"é = c - (d)"}),
        ("b //= c", {"b *= c", "pass"}),
        ("b = c and d", {"b = c or d"}),
        ("b = not c", {"b = c"}),
        ("b = 0.5", {"b = 1.5", "b = (-0.5)"}),
        ("b = True", {"b = False"}),
        ("if c:\n    del d", {"if (not (c)):\n    del d", "if c:\n    pass"}),
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
    assert {one.apply(source.encode()).decode() for one in mutants_of("a.py", source.encode())} == expected


def test_a_sample_is_the_same_for_a_seed_spread_over_rooms_and_begins_with_the_shorter_one(tmp_path):
    for room, lines in {"cache": 60, "loader": 20}.items():
        (tmp_path / "ocr" / room).mkdir(parents=True)
        text = "".join(f"A{line} = {line} + {line}\n" for line in range(lines))
        (tmp_path / "ocr" / room / "numbers.py").write_text(text)
    sample = draw_sample(tmp_path, 12, 1)
    assert draw_sample(tmp_path, 12, 1) == sample != draw_sample(tmp_path, 12, 2)
    assert draw_sample(tmp_path, 4, 1) == sample[:4]
    assert sum("cache" in mutant.module for mutant in sample) == 9


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (8, {"b"}),  # a line of the body
        (9, {"a", "b", "c"}),  # one that no test reaches: its function
        (6, {"b", "c"}),  # the head of the function, with its defaults, which runs when it is imported
        (2, {"a", "b", "c", "d"}),  # outside of functions
    ],
)
def test_the_tests_of_a_mutant_are_those_that_reach_its_line_or_what_is_around_it(tmp_path, line, expected):
    module = "ocr/cache/store.py"
    source = "\nA = 1\n\n\n\ndef f(\n    a=1):\n    g(1)\n    h(1)\n    g(1)\n"
    (mutant, *_) = [one for one in mutants_of(module, source.encode()) if one.line in (line, line + (line == 6))]
    reached = mutants.Reached(tmp_path)
    for at, tests in {2: "ad", 6: "a", 8: "b", 10: "c"}.items():
        reached.lines[module][at] = {f"tests/cache/test_a.py::{test}" for test in tests}
    reached.seconds |= {f"tests/cache/test_a.py::{test}": 1.0 for test in "abcd"}
    assert {test[-1] for test in reached.tests_of(mutant)} == expected


def test_tests_of_the_modules_name_come_first_then_those_of_its_room_then_quick_ones(tmp_path):
    (mutant, *_) = mutants_of("ocr/cache/store.py", b"def f():\n    return 1\n")
    reached, room = mutants.Reached(tmp_path), "tests/cache/test_form.py"
    expected = ["tests/cache/test_store.py::a", f"{room}::d", f"{room}::b", "tests/loader/test_order.py::c"]
    reached.seconds |= dict(zip(expected, (9.0, 1.0, 2.0, 1.0), strict=True))
    reached.lines[mutant.module][2] = {*expected}
    assert reached.tests_of(mutant) == expected


SMALL = {
    "ocr/__init__.py": "",
    "ocr/cache/__init__.py": "",
    "ocr/cache/steps.py": (
        "def steps(n):\n    count = 0\n    while n > 0:\n        n -= 2\n        count += 1\n    return count\n"
    ),
    "ocr/cache/named.py": "BEST = 90\n",
    "ocr/cache/needed.py": "COUNT = 1\nif COUNT < 1:\n    raise ImportError\n",
    "ocr/cache/alone.py": "def nobody_calls_it():\n    return 1\n",
    "tests/cache/conftest.py": "from ocr.cache.needed import COUNT\n",
    "tests/cache/test_count.py": "from ocr.cache.needed import COUNT\n\n\ndef test_count():\n    assert COUNT\n",
    "tests/cache/test_named.py": (
        "import pytest\nfrom ocr.cache.named import BEST\n\n\n"
        '@pytest.mark.parametrize("best", [BEST])\ndef test_best(best):\n    assert best == 90\n'
    ),
    "tests/cache/test_steps.py": (
        "import pytest\nfrom ocr.cache.steps import steps\n\n\ndef test_steps():\n    assert steps(4) == 2\n\n\n"
        "def test_that_fails_anyway():\n    assert steps(4) == 7\n\n\n"
        "@pytest.mark.slow\ndef test_that_is_slow():\n    assert steps(3) == 2\n"
    ),
}
PROGRAM = """
import sys
from pathlib import Path
from benchmarks.reliability import mutants
mutants.ROOT, mutants.LIBRARIES, mutants.START_SECONDS = Path(sys.argv[1]), ("pytest", "hypothesis", "coverage"), 2
sys.exit(mutants.main(sys.argv[2:]))
"""


def test_a_mistake_is_noticed_by_the_tests_of_its_line_and_one_that_no_test_reaches_survives(tmp_path):
    for name, text in SMALL.items():
        (tmp_path / "small" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "small" / name).write_text(text)
    expected = {
        ("steps", "n -= 2", "n -= 3"): (False, "1 tests pass"),
        ("steps", "while n > 0:", "while n >= 0:"): (True, "tests/cache/test_steps.py::test_steps: assert 3 == 2"),
        ("steps", "n -= 2", "n += 2"): (True, "timeout"),
        ("alone", "return 1", "return 2"): (False, "no test reaches it"),
        ("needed", "if COUNT < 1:", "if COUNT <= 1:"): (True, mutants.CONFTEST),
        ("named", "BEST = 90", "BEST = 89"): (True, "tests/cache/test_named.py::test_best[89]: assert 89 == 90"),
    }
    listed = [{"module": f"ocr/cache/{name}.py", "before": old, "after": new} for name, old, new in expected]
    (tmp_path / "listed.json").write_text(json.dumps(listed))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "small"), "--folder", str(tmp_path / "work")]
    command += ["--like", str(tmp_path / "listed.json"), "--json", str(tmp_path / "results.json"), "--workers", "2"]
    for tried in (6, 0):  # The second run resumes: nothing is left to try.
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((tmp_path / "results.json").read_text())
        assert {
            (Path(one["module"]).stem, one["before"], one["after"]): (one["noticed"], one["by"]) for one in found
        } == expected
        assert len(re.findall(r"^\d+/\d+ (?:SURVIVED|noticed)", done.stdout, re.MULTILINE)) == tried
    assert (tmp_path / "work" / "tree" / "ocr/cache/steps.py").read_text() == SMALL["ocr/cache/steps.py"]


def test_kernels_that_import_the_changed_one_are_compiled_again():
    folder = ROOT / "ocr" / "geometry" / "kernels"
    assert {"offset", "boxes", "warm_up"} <= mutants.callers(folder, "offset")
    assert "fill" not in mutants.callers(folder, "offset")


def test_a_survivor_that_cannot_be_noticed_does_not_count_and_others_do(monkeypatch):
    changed = {"module": "ocr/cache/a.py", "line": 3, "before": "a", "by": "2 tests pass"}
    results = [changed | {"after": after, "noticed": after == "b"} for after in "bcde"]
    known = {("ocr/cache/a.py", "a", "c"): {"reason": "the same"}}
    known |= {("ocr/cache/a.py", "a", "d"): {"reason": "an estimate", "noticeable": True}}
    monkeypatch.setattr(mutants, "reasons", lambda: known)
    counts = ["4", "1", "3", "1", "33%"]
    assert mutants.rooms_table(results)[1:] == [["cache", *counts], ["all", *counts]]
    assert [row[-1] for row in mutants.survivors_table(results)[1:]] == ["the same", "an estimate", "2 tests pass"]
