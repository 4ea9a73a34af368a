"""What `ocr doctor` finds in words."""

from typing import Any

import numpy as np
import pytest
from doctor_data import SmallDataset, box, kinds
from hypothesis import given, settings
from hypothesis import strategies as st

from ocr.tools.doctor.fix import fix_points
from ocr.tools.doctor.polygons import clipped, is_out, is_sound, repaired, shorter_side

BOW_TIE = [[20, 30], [80, 30], [20, 50], [80, 50]]


def found(dataset: SmallDataset, points: Any, **options: Any) -> list[str]:
    dataset.add("a.jpg", words={"7": {"points": points}})
    return kinds(dataset.examine(**options))


@pytest.mark.parametrize(
    "points",
    [
        [[0, 0], [9, 9]],
        [[0, 0], [60, "0"], [60, 20]],
        [[0, 0], [60, float("nan")], [60, 20]],
        [[0, 0], [60], [60, 20]],
        "0,0,60,0,60,20",
        None,
        [],
    ],
)
def test_points_that_are_no_polygon_are_an_error_that_names_the_word(dataset: SmallDataset, points: Any) -> None:
    assert found(dataset, points) == ["bad-points"]
    finding = dataset.examine().findings[0]
    assert finding.word == "7"
    assert "train/a.jpg, word 7: " in finding.message
    assert "--fix" in finding.message


def test_labels_that_lie_exactly_on_others_are_a_warning_without_a_model(dataset: SmallDataset) -> None:
    three = {key: {"points": box(20, 30)} for key in ("a", "b", "c")}
    nearly = {"d": {"points": box(20, 30.4)}, "row": {"points": box(20, 50)}, "inside": {"points": box(20, 30, 30)}}
    dataset.add("a.jpg", words=three | nearly)
    dataset.add("b.jpg", words={"other page": {"points": box(20, 30)}})
    doubles = dataset.examine().findings
    assert [(found.kind, found.severity, found.image, found.word) for found in doubles] == [
        ("double-label", "warning", "a.jpg", word) for word in ("b", "c", "d")
    ]
    assert all("lies on word a" in found.message for found in doubles)


def test_points_nested_once_more_are_fine(dataset: SmallDataset) -> None:
    assert found(dataset, [box(20, 30)]) == []


def test_a_transcription_that_is_a_number_is_an_error(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", words={"1": {"points": box(20, 30), "transcription": 12}})
    assert kinds(dataset.examine()) == ["bad-text"]


@pytest.mark.parametrize(
    "points",
    [
        [[20, 30], [80, 30], [50, 30]],
        [[20, 30], [20, 30], [20, 30]],
        box(20, 30, 0.6, 0.6),
        # There and back again: crossing itself, but around nothing.
        [[20, 30], [80, 30], [80, 60], [80, 30], [50, 30]],
    ],
)
def test_a_polygon_without_area_is_degenerate(dataset: SmallDataset, points: Any) -> None:
    assert found(dataset, points) == ["degenerate-polygon"]


def test_a_bow_tie_is_self_intersecting_although_its_signed_area_is_0(dataset: SmallDataset) -> None:
    assert found(dataset, BOW_TIE) == ["self-intersecting"]
    assert "self-intersection at (50, 40)" in dataset.examine().findings[0].message


def test_a_vertex_on_the_border_or_a_pixel_beyond_is_on_the_page(dataset: SmallDataset) -> None:
    assert found(dataset, [[-1, 30], [200, 30], [201, 120], [-1, 121]]) == []


@pytest.mark.parametrize("points", [box(-2, 30), box(150, 30), box(20, 110), box(900, 900)])
def test_a_vertex_further_out_is_out_of_the_page(dataset: SmallDataset, points: Any) -> None:
    assert found(dataset, points) == ["out-of-page"]


def test_a_word_out_of_the_page_says_how_far(dataset: SmallDataset) -> None:
    found(dataset, box(150, 30))
    assert "reaches (210, 30), 10 px out of a page of 200 x 120" in dataset.examine().findings[0].message


def test_text_that_resizing_makes_tiny_is_a_note(dataset: SmallDataset) -> None:
    thin = box(20, 30, 100, 4)
    assert found(dataset, thin) == []
    assert found(dataset, thin, size=50) == ["tiny-after-resize"]
    assert dataset.examine(size=50).ok
    assert found(dataset, thin, size=50, min_text_size=0.5) == []


def test_a_slanted_line_is_as_high_as_its_own_rectangle_not_its_bounds(dataset: SmallDataset) -> None:
    slanted = [[10, 10], [110, 80], [109, 82], [9, 12]]
    assert shorter_side(np.array(slanted, dtype=np.float64)) == pytest.approx(2.2, abs=0.1)
    assert found(dataset, slanted, size=100) == ["tiny-after-resize"]


def test_tiny_text_that_is_ignored_anyway_is_not_worth_a_note(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", words={"1": {"points": box(20, 30, 100, 2), "illegibility": True}})
    assert dataset.examine(size=50).findings == ()


def test_a_word_can_be_wrong_in_two_ways(dataset: SmallDataset) -> None:
    assert found(dataset, [[20, 30], [280, 30], [20, 50], [280, 50]]) == ["self-intersecting", "out-of-page"]


def test_a_page_without_words_is_a_note(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", words={})
    report = dataset.examine()
    assert kinds(report) == ["no-words"]
    assert report.ok


def test_words_of_a_missing_page_are_judged_but_for_the_page_border(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", words={"1": {"points": box(900, 900)}, "2": {"points": BOW_TIE}}).unlink()
    assert kinds(dataset.examine()) == ["missing-image", "self-intersecting"]


def test_a_bow_tie_is_repaired_by_reordering_from_its_first_vertex() -> None:
    fixed = repaired(np.array(BOW_TIE, dtype=np.float64))
    assert fixed is not None
    assert fixed.tolist() == [[20, 30], [80, 30], [80, 50], [20, 50]]
    crossed = repaired(np.array([[20, 30], [80, 50], [80, 30], [20, 50]], dtype=np.float64))
    assert crossed is not None
    assert crossed.tolist() == [[20, 30], [80, 30], [80, 50], [20, 50]]


def test_a_curved_line_with_its_lower_edge_written_forwards_keeps_all_vertices() -> None:
    upper = [[10, 20], [40, 15], [70, 20]]
    lower = [[10, 40], [40, 35], [70, 40]]
    fixed = repaired(np.array(upper + lower, dtype=np.float64))
    assert fixed is not None
    assert fixed.tolist() == upper + lower[::-1]


def test_a_knot_is_repaired_to_its_largest_piece() -> None:
    knot = np.array([[0, 0], [100, 0], [100, 30], [95, -3], [0, 30]], dtype=np.float64)
    fixed = repaired(knot)
    assert fixed is not None
    assert is_sound(fixed)
    assert fixed[0].tolist() == [0, 0]


def test_clipping_keeps_the_first_vertex_and_the_direction() -> None:
    for points in (np.array(box(150, 30)), np.array(box(150, 30))[::-1]):
        fixed = clipped(points.astype(np.float64), (200, 120))
        assert fixed is not None
        expected = np.minimum(points, [200, 120])
        if points[0, 0] <= 200:
            assert fixed.tolist() == expected.tolist()


def test_nothing_is_left_of_a_word_beside_the_page() -> None:
    assert clipped(np.array(box(900, 900), dtype=np.float64), (200, 120)) is None


def test_two_halves_joined_by_less_than_a_hundredth_of_a_pixel_become_their_hull() -> None:
    left, right = [[0, 0], [50, 0], [50, 20]], [[100, 20], [100, 0], [300, 0], [300, 50], [100, 50], [100, 20.002]]
    fixed, taken = fix_points(np.array([*left, *right, [50, 20.002], [50, 50], [0, 50]]), (200, 120))
    assert taken == [("clipped", "out-of-page")]
    assert fixed is not None
    assert sorted(fixed.tolist()) == [[0, 0], [0, 50], [200, 0], [200, 50]]


coordinates = st.tuples(st.integers(-80, 280), st.integers(-80, 200))


@settings(max_examples=300, deadline=None)
@given(st.lists(coordinates, min_size=3, max_size=14))
def test_what_is_left_after_a_repair_is_sound_and_on_the_page(points: list[tuple[int, int]]) -> None:
    written = np.array(points, dtype=np.float64)
    fixed, taken = fix_points(written, (200, 120))
    if fixed is None:
        return
    assert is_sound(fixed)
    assert not is_out(fixed, (200, 120))
    assert (fixed is written) == (not taken)
