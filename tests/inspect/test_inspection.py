"""What is summed over pages: scores, gains, curves, calibration, groups, files, and the comparison of two detectors."""

import csv
import io
import json

import numpy as np
import pytest
from evaluated_pages import BOTH, BOXES, ONE, SEEN, THREE, WORDS, evaluated, inspection
from rich.console import Console
from test_causes import CASES

from ocr.evaluation.hmean import Counts
from ocr.inspect.causes import FALSE_RULES, MISSED_RULES
from ocr.inspect.compare import Comparison, show_comparison
from ocr.inspect.inspection import Inspection, without
from ocr.inspect.result import calibrate, cost_of_lowering
from ocr.inspect.tables import show, write_comparison, write_parquet, write_tables


@pytest.fixture(scope="module")
def example() -> Inspection:
    """A page with errors, and one without."""
    return inspection(evaluated(WORDS, SEEN, name="=a.png"), evaluated([ONE], [(ONE, 0.8)], name="b.png"))


def test_scores_are_those_of_all_pages_together(example):
    assert example.counts == Counts(matched=3, boxes=4, words=6)
    assert example.counts.hmean == pytest.approx(0.6)
    assert 0 < example.cleval[2] < 1
    assert [page.name for page in example.worst] == ["=a.png", "b.png"]


def test_a_gain_is_the_hmean_without_the_errors_of_a_cause(example):
    gains = {gain.cause: gain for gain in example.gains}
    assert [gain.cause for gain in example.gains] == ["merged", "under a threshold"]
    # 5 of 5 boxes right, 5 of 6 words found.
    assert gains["merged"].points == pytest.approx(100 * (10 / 11 - 0.6))
    assert "boxes.box_thresh=0.1" in gains["under a threshold"].fix
    assert example.explained == 1


def test_better_labels_need_no_other_box():
    counts = Counts(matched=8, boxes=10, words=10)
    assert without(counts, "unlabelled text", 0, 2) == Counts(10, 10, 12)
    assert without(counts, "labelled twice", 2, 0) == Counts(8, 10, 8)
    assert without(counts, "split", 1, 2) == Counts(9, 9, 10)


def test_a_word_under_box_thresh_says_what_finding_it_costs(example):
    (error,) = [error for error in example.errors if error.cause == "under a threshold"]
    assert "box_thresh" in error.detail
    candidates = np.array([[0.9, 1], [0.55, 1], [0.52, 0], [0.4, 1]])
    assert cost_of_lowering(candidates, 0.6, 0.5) == (1, 1)


def test_calibration_is_the_distance_of_score_and_share_right():
    bins, error = calibrate(np.array([[0.75, 1], [0.75, 0], [1.0, 1], [1.0, 1]]))
    assert [(item.boxes, item.mean_score, item.right) for item in bins] == [(2, 0.75, 0.5), (2, 1.0, 1.0)]
    assert error == pytest.approx(0.125)
    assert calibrate(np.zeros((0, 2))) == ([], 0.0)


def test_curves_hold_the_settings_own_values_and_fall_with_tighter_overlaps(example):
    for name in ("thresh", "box_thresh"):
        assert example.curves[name][getattr(BOXES, name)] == example.counts
    recalls = [counts.recall for counts in example.curves["iou"].values()]
    assert recalls == sorted(recalls, reverse=True)


def test_groups_count_every_word_and_box_once_per_property(example):
    by_kind: dict[str, list[int]] = {}
    for group in example.groups:
        sums = by_kind.setdefault(group.kind, [0, 0])
        sums[0] += group.words
        sums[1] += group.boxes
    assert len(by_kind) == 7
    assert set(map(tuple, by_kind.values())) == {(6, 4)}
    aspect = {group.name: group for group in example.groups if group.kind == "aspect"}
    assert aspect["6 to 12"].recall == 1
    assert aspect["3 to 6"].recall == 0


def test_files_hold_every_page_and_error_and_no_formula(example, tmp_path):
    files = {file.name for file in write_tables(example, tmp_path)}
    assert {"inspection.json", "pages.csv", "errors.csv"} <= files
    written = json.loads((tmp_path / "inspection.json").read_text())
    assert written["scores"]["iou_50"]["hmean"] == pytest.approx(0.6)
    assert len(written["errors"]) == 4
    with (tmp_path / "pages.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["page"], row["missed"], row["false"]) for row in rows] == [("'=a.png", "3", "1"), ("b.png", "0", "0")]
    with (tmp_path / "errors.csv").open() as stream:
        assert [row["cause"] for row in csv.DictReader(stream)].count("merged") == 3


def test_parquet_holds_the_same_rows(example, tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table

    write_parquet(tmp_path / "x.parquet", [{"page": "=a.png", "iou": 0.5, "points": [[1.0, 2.0]]}])
    assert read_table(tmp_path / "x.parquet").to_pylist() == [{"page": "=a.png", "iou": 0.5, "points": [[1.0, 2.0]]}]


def test_a_set_without_any_word_or_box_can_be_shown(tmp_path):
    empty = inspection(evaluated([], []))
    show(empty, Console(quiet=True))
    write_tables(empty, tmp_path)
    assert (empty.counts.hmean, empty.errors, empty.explained) == (1, [], 1)


def test_a_comparison_names_what_was_gained_and_lost(example, tmp_path):
    seen = [(ONE, 0.9), (THREE, 0.9), (BOTH, 0.9), ((120, 120, 200, 140), 0.9)]
    after = inspection(
        evaluated(WORDS, seen, name="=a.png"), evaluated([ONE], [(ONE, 0.8)], name="b.png"), name="b.ckpt"
    )
    comparison = Comparison(example, after)
    changed, same = comparison.pages
    assert (changed.gained.tolist(), changed.lost.tolist()) == ([2], [1])
    assert (len(changed.gone), len(changed.new)) == (0, 1)
    assert not same.any
    assert comparison.causes_of("gained") == {"under a threshold": 1}
    assert comparison.causes_of("new").total() == 1
    low, high = comparison.interval
    assert low <= 100 * (after.counts.hmean - example.counts.hmean) <= high
    assert Comparison(example, after).interval == (low, high)
    for file in write_comparison(comparison, tmp_path):
        assert file.stat().st_size
    assert json.loads((tmp_path / "comparison.json").read_text())["causes"]["gained"] == {"under a threshold": 1}


def test_wording_of_an_inspection(example, snapshot):
    """Its summary; a comparison with a better detector; and what each rule says of what it saw."""
    shown = Console(record=True, width=150, file=io.StringIO())
    show(example, shown)
    seen = [(ONE, 0.9), (THREE, 0.9), (BOTH, 0.9), ((120, 120, 200, 140), 0.9)]
    after = inspection(
        evaluated(WORDS, seen, name="=a.png"), evaluated([ONE], [(ONE, 0.8)], name="b.png"), name="b.ckpt"
    )
    show_comparison(Comparison(example, after), shown)
    rules = {id(rule): cause for cause, rule in (*MISSED_RULES.items(), *FALSE_RULES.items())}
    for rule, evidence in (*CASES, *((error.detail, None) for error in example.errors)):
        said = rule if evidence is None else f"{rules[id(rule)]}: {rule(evidence)}"
        shown.print(said, highlight=False, markup=False, soft_wrap=True)
    snapshot("inspect", shown.export_text())
