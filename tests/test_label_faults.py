"""The benchmark of faulty labels puts in the faults that it counts, and counts what was found."""

import numpy as np
import pytest

from benchmarks.label_faults import Fault, iou, judge, plan_faults, put_faults
from ocr.geometry.polygons import Polygons
from ocr.inspect.suspects import Suspect

SIZE = (400, 400)


def rectangle(left: float, top: float, width: float = 100, height: float = 20) -> np.ndarray:
    right, bottom = left + width, top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float32)


LABELS = Polygons.pack([rectangle(50, 40 * row + 20) for row in range(8)])


def faulty(plan: dict[int, str]) -> tuple[Polygons, list[Fault]]:
    return put_faults(LABELS, plan, SIZE, np.random.default_rng(0))


def test_a_missing_label_is_gone_and_its_place_remembered():
    labels, (fault,) = faulty({3: "missing"})
    assert len(labels) == 7
    assert not fault.labels
    assert iou(fault.place, rectangle(50, 140)) == 1
    assert fault.is_found_by(Suspect("missing", 1.0, "", None, rectangle(52, 141)))
    assert not fault.is_found_by(Suspect("missing", 1.0, "", None, rectangle(50, 180)))


def test_a_shifted_label_no_longer_matches_its_place():
    for seed in range(20):
        labels, (fault,) = put_faults(LABELS, {3: "shifted"}, SIZE, np.random.default_rng(seed))
        assert 0.09 < iou(list(labels)[3], fault.place) < 0.51
        assert fault.is_found_by(Suspect("unsupported", 1.0, "", 3, list(labels)[3]))


def test_a_duplicate_is_found_as_either_of_its_labels():
    labels, (fault,) = faulty({3: "duplicate"})
    assert len(labels) == 9
    assert iou(list(labels)[8], list(labels)[3]) > 0.6
    assert fault.labels == {3, 8}


def test_a_merged_label_covers_its_neighbour_which_is_gone():
    labels, (fault,) = faulty({3: "merged"})
    assert len(labels) == 7
    (wrong,) = fault.labels
    assert list(labels)[wrong][:, 1].max() - list(labels)[wrong][:, 1].min() == pytest.approx(60)


def test_a_page_in_another_frame_is_one_fault():
    labels, (fault,) = faulty({-1: "page"})
    assert not np.allclose(labels.vertices, LABELS.vertices)
    assert fault.is_found_by(Suspect("page", 1.0, ""))
    assert not fault.is_found_by(Suspect("missing", 1.0, "", None, rectangle(0, 0)))


def test_a_plan_has_each_kind_equally_often_and_is_the_same_for_a_seed():
    pages = {str(number): LABELS for number in range(100)}
    plan = plan_faults(pages, 0.05, seed=1)
    kinds = [kind for page in plan.values() for kind in page.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "page": 5, "missing": 10, "duplicate": 10, "shifted": 9, "merged": 9
    }  # fmt: skip
    assert plan == plan_faults(pages, 0.05, seed=1) != plan_faults(pages, 0.05, seed=2)


def test_only_twice_as_many_suspects_as_faults_count_and_each_finds_one():
    fault, wrong = Fault("shifted", rectangle(0, 0), frozenset({1})), Suspect("missing", 1.0, "", 7)
    hit = Suspect("shifted", 0.5, "", 1)
    late = judge([("a", wrong), ("a", wrong), ("a", hit)], {"a": [fault]})
    assert (late.recall, judge([("a", wrong), ("a", hit)], {"a": [fault]}).recall) == (0, 1)
    both = judge([("a", hit), ("a", hit)], {"a": [fault, Fault("merged", None, frozenset({2}))]})
    assert (both.recall, both.named["shifted"]) == (0.5, 1)
