"""Mutants: what is changed, which tests are asked, and that a changed kernel is compiled again."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import mutants
from benchmarks.document_parts import END, begin
from benchmarks.mutants import Trial, controls
from benchmarks.mutation import reached_lines, report
from benchmarks.mutation.draw_sample import ROOMS, draw_sample
from benchmarks.mutation.mutate import is_another_program, mutants_of
from benchmarks.mutation.reached_lines import ReachedLines, measure_lines
from benchmarks.mutation.scratch import KERNELS, Scratch, TestRunner, importers
from ocr.geometry.kernels.compiled import KernelFiles, sources_digest

ROOT = Path(__file__).resolve().parent.parent
SMALL = {
    "ocr/__init__.py": "",
    "ocr/cache/__init__.py": "",
    "ocr/cache/steps.py": (
        "def steps(n):\n    count = 0\n    while n > 0:\n        n -= 2\n        count += 1\n    return count\n"
    ),
    "ocr/cache/named.py": "BEST = 90\n",
    "tests/cache/test_named.py": (
        "import pytest\nfrom ocr.cache.named import BEST\n\n\n"
        '@pytest.mark.parametrize("best", [BEST])\ndef test_best(best):\n    assert best == 90\n'
    ),
    "ocr/cache/needed.py": "COUNT = 1\nif COUNT < 1:\n    raise ImportError\n",
    "tests/cache/conftest.py": "from ocr.cache.needed import COUNT\n",
    "tests/cache/test_count.py": "from ocr.cache.needed import COUNT\n\n\ndef test_count():\n    assert COUNT\n",
    "ocr/cache/alone.py": "def nobody_calls_it():\n    return 1\n",
    "tests/cache/test_steps.py": (
        "from ocr.cache.steps import steps\n\n\ndef test_steps():\n    assert steps(4) == 2\n\n\n"
        "def test_that_fails_anyway():\n    assert steps(4) == 7\n"
    ),
    "tests/cache/test_other.py": "def test_nothing():\n    pass\n",
}

CHANGES = ("n -= 3", "while n >= 0:", "n += 2", "return 2", "if COUNT <= 1:", "BEST = 89")


def changes(source: str) -> set[str]:
    return {mutant.apply(source.encode()).decode() for mutant in mutants_of("a.py", source.encode())}


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
    ],
)
def test_each_kind_of_mistake_is_made_where_the_code_has_room_for_it(source, expected):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        'b = f"{c + 1}"',
        "b: Literal[1]",
        "import b",
        "if TYPE_CHECKING:\n    b = 1",
        "Row = list[int] | None",
        "@dataclass(slots=True)\nclass B:\n    pass",
    ],
)
def test_texts_and_types_are_left_alone(source):
    assert changes(source) == set()


def test_a_mutant_knows_the_lines_of_its_statement_and_function():
    source = b"def a():\n    b = (\n        1\n    )\n    if b:\n        c()\n"
    found = {mutant.replacement: mutant for mutant in mutants_of("a.py", source)}
    assert (found["2"].line, found["2"].statement, found["2"].function) == (3, (2, 4), (1, 6))
    assert found["(not (b))"].statement == (5, 5)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory) -> Path:
    """Two rooms, one of them with three times the lines of the other."""
    root = tmp_path_factory.mktemp("rooms")
    for room, lines in {"cache": 60, "loader": 20}.items():
        (root / "ocr" / room).mkdir(parents=True)
        (root / "ocr" / room / "numbers.py").write_text(
            "".join(f"A{line} = {line} + {line}\n" for line in range(lines))
        )
    return root


def test_a_sample_is_the_same_for_a_seed_and_spread_over_the_rooms_by_their_lines(rooms):
    sample = draw_sample(rooms, 12, 1, ("cache", "loader"))
    assert draw_sample(rooms, 12, 1, ("cache", "loader")) == sample
    assert draw_sample(rooms, 12, 2, ("cache", "loader")) != sample
    assert len({(mutant.module, mutant.line) for mutant in sample}) == 12
    assert [sum("cache" in mutant.module for mutant in part) for part in (sample[:4], sample)] == [3, 9]
    assert all(is_another_program(mutant, (rooms / mutant.module).read_bytes()) for mutant in sample)


def test_the_first_mutants_of_a_long_sample_are_a_short_sample(rooms):
    short, long = (draw_sample(rooms, count, 1, ("cache", "loader")) for count in (4, 12))
    assert long[:4] == short


def test_the_code_as_it_is_has_mutants_in_every_room():
    file = {room: next(iter(sorted((ROOT / "ocr" / room).glob("[a-z]*.py")))) for room in ROOMS}
    assert all(mutants_of(path.name, path.read_bytes()) for path in file.values())


@pytest.fixture
def small(tmp_path) -> Path:
    """A repository with two modules and one test that passes."""
    for name, text in SMALL.items():
        (tmp_path / "small" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "small" / name).write_text(text)
    return tmp_path / "small"


def test_a_mistake_is_noticed_by_the_tests_of_its_line_and_one_that_no_test_reaches_survives(
    small, tmp_path, monkeypatch
):
    monkeypatch.setattr(mutants, "START_SECONDS", 3)
    libraries = ("pytest", "hypothesis")
    runners = [TestRunner(Scratch(tmp_path / name, small), libraries) for name in ("work", "other")]
    try:
        reached = measure_lines(runners, tmp_path / "reached", ("cache",), ("cache",))
        assert reached.tests_of("ocr/cache/steps.py", (4, 4)) == ["tests/cache/test_steps.py::test_steps"]
        modules = ("ocr/cache/steps.py", "ocr/cache/alone.py", "ocr/cache/needed.py", "ocr/cache/named.py")
        possible = [mutant for module in modules for mutant in mutants_of(module, (small / module).read_bytes())]
        found = [mutant for mutant in possible if mutant.after in CHANGES]
        trial = Trial(runners)
        assert not any(control["noticed"] for control in trial.run(controls(small, found), reached))
        results = trial.run(found, reached)
    finally:
        for runner in runners:
            runner.close()
    by_change = {result["after"]: (result["noticed"], result["by"]) for result in results}
    assert by_change["n -= 3"] == (False, "1 tests pass")
    assert by_change["while n >= 0:"][1] == "tests/cache/test_steps.py::test_steps: assert 3 == 2"
    assert by_change["n += 2"] == (True, "timeout")
    assert by_change["return 2"] == (False, "no test reaches it")
    assert by_change["if COUNT <= 1:"] == (True, mutants.CONFTEST)
    assert by_change["BEST = 89"] == (True, "tests/cache/test_named.py::test_best[89]: assert 89 == 90")
    for tree in (small, *(runner.scratch.tree for runner in runners)):
        assert (tree / modules[0]).read_text() == SMALL[modules[0]]
    assert len(json.loads((tmp_path / "work" / "results.json").read_text())) == 7


def test_kernels_that_cannot_call_the_changed_one_are_not_compiled_again(small, tmp_path):
    folder = small / KERNELS
    folder.mkdir(parents=True)
    for name, text in {"a": "", "b": "from ocr.geometry.kernels.a import x", "c": ""}.items():
        (folder / f"{name}.py").write_text(text)
    scratch = Scratch(tmp_path / "work", small)
    scratch.kernels.mkdir()

    def kept(changed_tree: Path) -> dict[str, object]:
        stamp = sources_digest.__wrapped__(changed_tree / KERNELS)
        return {name: KernelFiles(scratch.kernels, f"{name}.f", stamp).load(()) for name in "abc"}

    stamp = sources_digest.__wrapped__(scratch.tree / KERNELS)
    for name in "abc":
        KernelFiles(scratch.kernels, f"{name}.f", stamp).save((), name)
    scratch.remember_kernels()
    assert importers(folder, "a") == {"b"}
    with scratch.changed(f"{KERNELS}/a.py", b"# Other.\n"):
        assert kept(scratch.tree) == {"a": None, "b": None, "c": "c"}
    assert kept(scratch.tree) == {"a": "a", "b": "b", "c": "c"}


def test_tests_of_the_modules_name_come_first_then_those_of_its_room_then_quick_ones():
    reached = ReachedLines(ROOT)
    tests = {
        "tests/cache/test_store.py::a": 9.0,
        "tests/cache/test_form.py::b": 2.0,
        "tests/loader/test_order.py::c": 1.0,
    }
    reached.seconds |= tests | {"tests/cache/test_form.py::d": 1.0}
    reached.lines["ocr/cache/store.py"][3] = set(reached.seconds)
    expected = [*list(tests)[:1], "tests/cache/test_form.py::d", *list(tests)[1:]]
    assert reached.tests_of("ocr/cache/store.py", (3, 3)) == expected
    assert reached_lines.imported_modules(Path(__file__))[0].startswith("ocr/")


@pytest.mark.parametrize(
    ("statement", "function", "expected"),
    [
        ((7, 7), (5, 9), {"b"}),  # a line of the body
        ((8, 8), (5, 9), {"a", "b", "c"}),  # one that is not reached: its function
        ((5, 6), (5, 9), {"b", "c"}),  # the head of the function, with its defaults, which runs when it is imported
        ((2, 2), (0, 0), {"a", "b", "c", "d"}),  # outside of functions
    ],
)
def test_what_runs_when_a_module_is_imported_is_tried_with_all_that_use_it(statement, function, expected):
    reached = ReachedLines(ROOT)
    for line, tests in {2: "a", 5: "a", 7: "b", 9: "c", 12: "d"}.items():
        reached.lines["ocr/cache/store.py"][line] = {f"tests/cache/test_a.py::{test}" for test in tests}
    reached.seconds |= {f"tests/cache/test_a.py::{test}": 1.0 for test in "abcd"}
    found = reached.tests_of("ocr/cache/store.py", statement, function)
    assert {test[-1] for test in found} == expected


def test_a_survivor_that_nobody_can_notice_does_not_count_and_others_do(tmp_path):
    changed = {"module": "ocr/cache/a.py", "line": 3, "before": "a", "by": "2 tests pass"}
    results = [changed | {"after": after, "noticed": after == "b"} for after in "bcde"]
    known = {("ocr/cache/a.py", "a", "c"): report.Reason("the same")}
    known |= {("ocr/cache/a.py", "a", "d"): report.Reason("an estimate", is_noticeable=True)}
    assert report.table_rows(results, known) == [[name, "4", "1", "3", "1", "33%"] for name in ("cache", "all")]
    assert [row[-1] for row in report.survivor_rows(results, known)] == ["the same", "an estimate", "2 tests pass"]


def test_every_reason_is_of_a_line_that_is_still_there():
    for module, before, _ in report.reasons():
        lines = [line.strip() for line in (ROOT / module).read_text().splitlines()]
        assert before.splitlines()[0] in lines, f"{module}: {before}"


def test_the_document_gets_a_table_per_room_and_every_survivor_with_its_reason(tmp_path):
    path = tmp_path / "reliability.md"
    path.write_text(f"# Title\n\n{begin(report.PART)}\n{END}\nafter\n")
    module, before, after = next(iter(report.reasons()))
    changed = {"module": module, "line": 3, "before": before, "by": "2 tests pass", "noticed": False}
    results = [changed | {"after": after}, changed | {"after": "a[0]"}, changed | {"after": "b", "noticed": True}]
    report.write_document(path, results, "today")
    text = path.read_text()
    assert "| all | 3 | 1 | 2 | 1 | 50% |" in text
    assert f"| {module}:3 | `{before}` | `{after}` | {report.reasons()[module, before, after].text} |" in text
    assert f"| {module}:3 | `{before}` | `a[0]` | 2 tests pass |" in text
    assert text.endswith("after\n")


def test_the_screen_shows_survivors_and_says_if_a_comment_was_noticed():
    result = {"module": "ocr/cache/a.py", "line": 3, "before": "a[0]", "after": "b[1]", "by": "1 tests pass"}
    console = Console(width=200, record=True, file=StringIO())
    report.show([result | {"noticed": False}], [result | {"noticed": True, "by": "tests/a.py::b: wrong"}], console)
    shown = console.export_text()
    assert "a[0]" in shown
    assert "b[1]" in shown
    assert "tests/a.py::b: wrong also notices a comment in ocr/cache/a.py" in shown
