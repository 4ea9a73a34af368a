"""Which page next: unsure pages first, none like one that is labelled or chosen."""

import numpy as np
import pytest

from ocr.evaluation.boxes import BoxesFromMap
from ocr.geometry.polygons import Polygons
from ocr.inspect.next_pages import rank_pages
from ocr.inspect.page import PageInput
from ocr.inspect.page_look import FEATURES, PageLook, look_at

BOXES = BoxesFromMap(thresh=0.3, box_thresh=0.6, min_size=1)


def look(name: str, unsure: float | None = 0.1, *, boxes: int = 10, **features: float) -> PageLook:
    """Features are 0 except those given by their number, such as f3=1."""
    values = [features.get(f"f{number}", 0.0) for number in range(len(FEATURES))]
    return PageLook(name, unsure, boxes, 1, tuple(values))


def names(ranked) -> list[str]:
    return [page.look.name for page in ranked]


def page_of(prob_map: np.ndarray, image: np.ndarray | None = None, inverse: np.ndarray | None = None) -> PageInput:
    height, width = prob_map.shape
    image = np.full((height, width, 3), 200, np.uint8) if image is None else image
    size = (width, height)
    return PageInput("a.png", image, prob_map.astype(np.float32), np.eye(3) if inverse is None else inverse, size,
                     Polygons.pack([]))  # fmt: skip


def lines_map(probability: float, rows: int = 4) -> np.ndarray:
    prob_map = np.zeros((96, 128), np.float32)
    for row in range(rows):
        prob_map[10 + 20 * row : 18 + 20 * row, 10:110] = probability
    return prob_map


class TestLooking:
    def test_a_page_of_doubtful_pixels_is_more_unsure_than_one_of_sure_text(self):
        sure, doubtful = (look_at(page_of(lines_map(value)), BOXES) for value in (0.99, 0.7))
        assert doubtful.unsure > 5 * sure.unsure > 0
        assert doubtful.unsure == pytest.approx(4 * 0.7 * 0.3 * (lines_map(0.7) > 0).mean())

    def test_boxes_just_over_and_just_under_the_limit_are_unsure_and_only_those_over_it_are_boxes(self):
        prob_map = lines_map(0.95, rows=1)
        prob_map[40:48, 10:110] = 0.65
        prob_map[60:68, 10:110] = 0.55
        prob_map[80:88, 10:110] = 0.4
        seen = look_at(page_of(prob_map), BOXES)
        assert (seen.boxes, seen.unsure_boxes) == (2, 2)

    def test_padding_around_the_page_does_not_make_it_surer(self):
        alone = look_at(page_of(lines_map(0.7)), BOXES)
        padded = np.zeros((192, 256), np.float32)
        padded[:96, :128] = lines_map(0.7)
        image = np.zeros((192, 256, 3), np.uint8)
        image[:96, :128] = 200
        given = PageInput("a.png", image, padded, np.eye(3), (128, 96), Polygons.pack([]))
        seen = look_at(given, BOXES)
        assert seen.unsure == pytest.approx(alone.unsure)
        assert seen.features == pytest.approx(alone.features)

    def test_a_page_without_text_has_no_known_uncertainty(self):
        assert look_at(page_of(np.zeros((96, 128), np.float32)), BOXES).unsure is None

    @pytest.mark.parametrize(
        ("word", "low", "high"),
        [
            ("dark page", page_of(lines_map(0.9), np.full((96, 128, 3), 30, np.uint8)), page_of(lines_map(0.9))),
            ("few lines", page_of(lines_map(0.9, rows=1)), page_of(lines_map(0.9, rows=4))),
            ("tall page", page_of(lines_map(0.9).T.copy()), page_of(lines_map(0.9))),
            (
                "gray page",
                page_of(lines_map(0.9)),
                page_of(lines_map(0.9), np.full((96, 128, 3), (220, 200, 90), np.uint8)),
            ),
        ],
    )
    def test_a_feature_is_lower_on_the_page_that_its_first_word_fits(self, word, low, high):
        number = [pair[0] for pair in FEATURES].index(word)
        assert look_at(low, BOXES).features[number] < look_at(high, BOXES).features[number]

    def test_every_feature_has_its_two_words(self):
        for prob_map in (lines_map(0.9), lines_map(0.0)):
            features = look_at(page_of(prob_map), BOXES).features
            assert len(features) == len(FEATURES)
            assert np.isfinite(features).all()


class TestChoosing:
    def test_of_equal_pages_the_most_unsure_comes_first(self):
        ranked = rank_pages([look("a", 0.1), look("b", 0.3), look("c", 0.2)], [], 1)
        assert names(ranked)[0] == "b"
        assert [page.chosen for page in ranked] == [True, False, False]

    def test_a_page_like_one_that_was_chosen_waits_although_it_is_more_unsure(self):
        pages = [look("a", 0.5), look("twin", 0.49, f1=0.01), look("other", 0.3, f1=5.0), look("far", 0.2, f2=4.0)]
        assert names(rank_pages(pages, [], 3))[-1] == "twin"

    def test_a_copy_of_a_labelled_page_comes_last(self):
        pages = [look("copy", 0.9, f0=1.0), look("new", 0.1, f0=-1.0), look("other", 0.1, f3=2.0)]
        ranked = rank_pages(pages, [look("done", f0=1.0)], 1)
        assert names(ranked)[-1] == "copy"
        assert ranked[-1].unlike == 0
        assert ranked[-1].nearest == "done"

    def test_the_same_pages_are_chosen_again_and_each_once(self):
        rng = np.random.default_rng(0)
        pages = [
            PageLook(f"{at}", float(rng.random()), 5, 1, tuple(rng.normal(size=len(FEATURES)))) for at in range(40)
        ]
        first, again = (names(rank_pages(pages, pages[:0], 15)) for _ in range(2))
        assert first == again
        assert sorted(first) == sorted(page.name for page in pages)

    def test_chosen_pages_are_further_apart_than_the_most_unsure_ones(self):
        rng = np.random.default_rng(1)
        crowd = [look(f"crowd{at}", 0.5 + at / 100, f0=float(rng.normal(0, 0.05))) for at in range(20)]
        rare = [look(f"rare{at}", 0.4, **{f"f{at + 1}": 3.0}) for at in range(4)]
        chosen = names(rank_pages([*crowd, *rare], [], 5))[:5]
        assert sum(name.startswith("rare") for name in chosen) == 4

    def test_a_page_of_unknown_uncertainty_counts_as_a_usual_one(self):
        ranked = rank_pages([look("a", 0.1), look("b", 0.2), look("c", 0.6), look("blank", None, boxes=0)], [], 1)
        (blank,) = [page for page in ranked if page.look.name == "blank"]
        assert blank.unsure == pytest.approx(0.2)
        assert "unsure" not in blank.reason

    def test_more_pages_than_there_are_is_all_of_them(self):
        ranked = rank_pages([look("a"), look("b")], [], 7)
        assert all(page.chosen for page in ranked)
        assert rank_pages([], [look("a")], 7) == []

    def test_the_reason_names_what_is_unusual(self):
        usual = [look(f"{at}", f1=float(at % 3 - 1)) for at in range(12)]
        strange = look("strange", 0.2, f1=-9.0)
        first = rank_pages([strange, *usual], [], 1)[0]
        assert first.look.name == "strange"
        assert "dark page" in first.reason
        assert all(part in first.reason for part in ("0.200", "0.100", "box_thresh"))

    def test_one_absurd_number_does_not_hide_all_other_differences(self):
        pages = [look("a", f0=1e9), look("b", f1=1.0), look("c", f1=-1.0), look("d", f1=0.5)]
        apart = {page.look.name: page.unlike for page in rank_pages(pages, [look("done", f1=-1.0)], 1)}
        assert apart["b"] > 0.3
        assert apart["c"] == 0
