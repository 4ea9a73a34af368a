"""CLEval against the published metric: on random pages, at its threshold, by ranks; and bad input."""

import json
import multiprocessing
import pickle
import random
import re

import numpy as np
import pytest
import torch
from outlines import box, turned
from rejection import rejects
from torch import distributed

from ocr.errors import ConfigError, GlyphFeedError
from ocr.evaluation import BoxesFromMap, BoxPool, CLEvalMetric, HmeanIoU
from ocr.evaluation.cleval_letters import common_letters, reading_order
from ocr.evaluation.cleval_page import Page, Words
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.polygons import Polygons

ALPHABET = "abAB12# ßé"


def slices(quad, count):
    """The quad cut across into equal parts."""
    top, bottom = quad[1] - quad[0], quad[2] - quad[3]
    shares = [(part / count, (part + 1) / count) for part in range(count)]
    return [
        np.array([quad[0] + top * a, quad[0] + top * b, quad[3] + bottom * b, quad[3] + bottom * a]) for a, b in shares
    ]


def around(a, b):
    low, high = np.minimum(a.min(axis=0), b.min(axis=0)), np.maximum(a.max(axis=0), b.max(axis=0))
    return box(*low, *(high - low))


def random_word(rng, whole):
    width, height = rng.uniform(4, 120), rng.uniform(3, 30)
    if rng.random() < 0.2:
        width, height = height, width
    if whole:
        # Steps of five bring borders through character centres, and overlaps of exactly 0.3 and 0.5.
        return box(
            *(5 * rng.randint(-2, 50) for _ in range(2)), 5 * round(width / 5 + 0.6), 5 * round(height / 5 + 0.6)
        )
    quad = box(rng.uniform(-10, 250), rng.uniform(-10, 250), width, height)
    quad = turned(quad, rng.uniform(-3.2, 3.2)) if rng.random() < 0.4 else quad
    return quad[[0, 2, 1, 3]] if rng.random() < 0.05 else quad


def misread(rng, text):
    return "".join(rng.choice(ALPHABET) if rng.random() < 0.2 else letter for letter in text)


def detections_of(rng, word, text, before, whole):
    """What a detector can make of a word: near hits, splits, merges with the word before, shifts, strays, nothing."""
    kind = rng.random()
    if kind < 0.3:
        noise = 0 if whole else np.array([rng.gauss(0, 1.5) for _ in range(8)]).reshape(4, 2)
        return [(word + noise, misread(rng, text))]
    if kind < 0.5:
        count = rng.randint(2, 4)
        step = len(text) / count
        return [
            (part, misread(rng, text)[int(n * step) :][: int(step) + 1]) for n, part in enumerate(slices(word, count))
        ]
    if kind < 0.65 and before is not None:
        return [(around(before[0], word), misread(rng, before[1] + text))]
    if kind < 0.75:
        return [(word + rng.uniform(-40, 40), misread(rng, text))]
    return [(random_word(rng, whole), "###")] if kind < 0.8 else []


def random_page(seed, words=20):
    """(det_quads, gt_quads, det_letters, gt_letters, gt_is_dcs), as the published metric takes them."""
    rng = random.Random(seed)
    whole, dtype = rng.random() < 0.3, rng.choice([np.float32, np.float64])
    gts, dets = [], []
    for _ in range(rng.randint(0, words)):
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, 12)))
        word = random_word(rng, whole), "###" if rng.random() < 0.05 else text
        dets += detections_of(rng, *word, gts[-1] if gts else None, whole)
        gts.append(word)
    rng.shuffle(dets)
    quads = [np.array([quad for quad, _ in side], dtype=dtype).reshape(-1, 8) for side in (dets, gts)]
    is_dcs = [rng.random() < 0.2 for _ in gts] if rng.random() < 0.7 else None
    return *quads, [text for _, text in dets], [text for _, text in gts], is_dcs


def numbers(scores):
    return {key: float(value) for key, value in scores.items() if key != "scale_wise"}


@pytest.fixture(scope="module")
def published():
    return pytest.importorskip("cleval").CLEvalMetric


@pytest.mark.parametrize("seed", range(40))
def test_the_numbers_are_the_published_ones_on_random_pages(published, seed):
    rng = random.Random(seed)
    options = {
        "case_sensitive": rng.random() < 0.6,
        "recall_gran_penalty": rng.choice([1.0, 0.5]),
        "precision_gran_penalty": rng.choice([1.0, 0.3]),
        "vertical_aspect_ratio_thresh": rng.choice([0.5, 0.2]),
        "ap_constraint": rng.choice([0.3, 0.5]),
    }
    theirs, mine = published(**options), CLEvalMetric(**options)
    for page in range(2):
        arguments = random_page(1000 * seed + page)
        theirs.update(*arguments)
        mine.update(*arguments)
    assert numbers(mine.compute()) == pytest.approx(numbers(theirs.compute()), abs=1e-6)


def test_the_numbers_by_text_height_are_the_published_ones(published):
    bins = (0.0, 0.02, 0.05, 1.0)
    theirs, mine = (metric(scale_wise=True, scale_bins=bins) for metric in (published, CLEvalMetric))
    for seed in range(4):
        dets, gts, *rest = random_page(seed)
        arguments = dets.astype(np.float32), gts.astype(np.float32), *rest, 300
        theirs.update(*arguments)
        mine.update(*arguments)
    expected, found = theirs.compute(), mine.compute()
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-6)
    assert list(found["scale_wise"]) == list(expected["scale_wise"]) == [(0.0, 0.02), (0.02, 0.05), (0.05, 1.0)]
    for bin_range, scores in expected["scale_wise"].items():
        assert numbers(found["scale_wise"][bin_range]) == pytest.approx(numbers(scores), abs=1e-6)


def test_forward_gives_the_published_scores_of_its_page(published):
    theirs, mine = published(), CLEvalMetric()
    for seed in (5, 6):
        arguments = random_page(seed)
        assert numbers(mine(*arguments)) == pytest.approx(numbers(theirs(*arguments)), abs=1e-6)
    assert numbers(mine.compute()) == pytest.approx(numbers(theirs.compute()), abs=1e-6)


def test_a_perfect_prediction_scores_exactly_one():
    quads = np.array([turned(box(13.3, 40.7 * row, 90 + row, 21.4), 0.02 * row) for row in range(30)]).reshape(-1, 8)
    letters = [f"word {row}" for row in range(30)]
    scores = numbers(CLEvalMetric()(quads, quads, letters, letters, [row % 7 == 0 for row in range(30)]))
    assert [scores[f"{kind}_{part}"] for kind in ("det", "e2e") for part in "prh"] == [1.0] * 6


@pytest.mark.parametrize("start", range(0, 14, 3))
@pytest.mark.parametrize("upright", [False, True])
def test_a_perfect_prediction_of_curved_text_scores_exactly_one(start, upright):
    angles = np.linspace(np.pi, 2 * np.pi, 8)[:, None]
    arch = np.concatenate([np.hstack([np.cos(a), np.sin(a)]) * r for a, r in ((angles, 90), (angles[::-1], 60))])[:15]
    arch = np.roll(arch[:, ::-1] if upright else arch, start, axis=0) + 200
    odd = box(300, 10, 60, 20)[:3]
    scores = CLEvalMetric()([arch, odd], [arch, odd], None, ["curved words", None])
    assert (scores["det_p"], scores["det_r"], scores["det_h"]) == (1.0, 1.0, 1.0)


def test_a_polygon_smaller_than_a_pixel_counts_as_missed():
    speck = np.array([[5.2, 5.2], [5.8, 5.3], [5.5, 5.7]])
    metric = CLEvalMetric()
    assert metric([speck], [speck, box(0, 50, 100, 20)], None, ["dot", "TOTAL"])["det_h"] == 0.0
    assert metric.sums[0, :3].tolist() == [8, 2, 0]


def test_a_split_word_costs_recall_and_a_merged_pair_costs_precision():
    word = box(0, 0, 100, 20)
    split = numbers(CLEvalMetric()(slices(word, 2), [word], ["ABCDE", "FGHIJ"], ["ABCDEFGHIJ"]))
    assert (split["det_r"], split["det_p"], split["e2e_r"]) == pytest.approx((0.9, 1.0, 0.9))
    assert (split["num_splitted"], split["num_merged"]) == (1, 0)
    merged = numbers(CLEvalMetric()([word], slices(word, 2), ["ABCDEFGHIJ"], ["ABCDE", "FGHIJ"]))
    assert (merged["det_r"], merged["det_p"], merged["e2e_p"]) == pytest.approx((1.0, 0.9, 0.9))
    assert (merged["num_splitted"], merged["num_merged"]) == (0, 1)


def test_case_counts_by_default():
    word = [box(0, 0, 100, 20)]
    assert CLEvalMetric()(word, word, ["total"], ["TOTAL"])["e2e_h"] == 0.0
    assert CLEvalMetric(case_sensitive=False)(word, word, ["total"], ["TOTAL"])["e2e_h"] == 1.0


def test_an_ignored_word_counts_neither_for_nor_against():
    words = [box(0, 0, 100, 20), box(0, 50, 100, 20)]
    for arguments in [
        (words, words, None, ["TOTAL", "###"]),
        (words, words, None, ["TOTAL", "12.50"], [False, True]),
        (words[:1], words, None, ["TOTAL", "12.50"], np.array([False, True])),
        (words, Polygons.pack(words, ignore=[False, True], texts=["TOTAL", None])),
    ]:
        metric = CLEvalMetric()
        assert metric(*arguments)["det_h"] == 1.0
        assert metric.sums[0, :3].tolist() == [5, 5, 5]


def test_without_letters_detection_is_scored_by_the_room_for_characters():
    words = [box(0, 0, 100, 20), box(0, 50, 40, 20)]
    metric = CLEvalMetric()
    scores = metric(words[:1], words)
    assert scores["det_p"] == 1.0
    assert scores["det_r"] == pytest.approx(5 / 7)
    assert scores["e2e_h"] == 0.0


@pytest.mark.parametrize("empty", [[], np.zeros((0, 8)), np.zeros((0, 4, 2), dtype=np.float32)])
def test_pages_without_words_or_detections_score_zero_as_published(empty):
    word = [box(0, 0, 100, 20)]
    assert CLEvalMetric()(empty, empty, [], [])["det_h"] == 0.0
    nothing_found = CLEvalMetric()
    assert nothing_found(empty, word, [], ["TOTAL"])["det_r"] == 0.0
    assert nothing_found.sums[0, :3].tolist() == [5, 0, 0]
    stray = CLEvalMetric()
    assert stray(word, empty, ["TOTAL"], [])["det_p"] == 0.0
    assert stray.sums[0, 1] == 1


def test_reset_and_pickle_keep_their_word():
    metric = CLEvalMetric(ap_constraint=0.5)
    metric.update(*random_page(1))
    copy = pickle.loads(pickle.dumps(metric))
    assert numbers(copy.compute()) == numbers(metric.compute())
    assert copy.ap_constraint == 0.5
    metric.reset()
    assert not metric.sums.any()


def test_far_apart_boxes_cost_no_overlap():
    x, y = np.meshgrid(np.arange(50) * 100.0, np.arange(40) * 100.0)
    quads = np.stack([x, y, x + 60, y, x + 60, y + 20, x, y + 20], axis=-1).reshape(-1, 8)
    letters = ["abcdefgh"] * len(quads)
    assert CLEvalMetric()(quads, quads, letters, letters)["e2e_h"] == 1.0
    words = Words(read_rings(quads, "quads"), tuple(letters), np.zeros(len(quads), dtype=np.bool_))
    page = Page(words, words, upright_ratio=0.5, case_sensitive=True)
    # Of the four million pairs only each word with itself is measured.
    assert len(page.touching) == len(page.gts_touching) == len(quads)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([[0, 0, 9, 0]], []), "det_quads[0]"),
        (([], np.zeros((2, 7))), "gt_quads[0]"),
        (([], np.zeros((2, 8)), [], ["one"]), "gt_letters"),
        ((np.zeros((1, 8)), [], ["one", "two"], []), "det_letters"),
        (([], np.zeros((2, 8)), [], ["one", "two"], [False]), "gt_is_dcs"),
        (([], np.zeros((1, 8)), []), "gt_letters[0]"),
        ((np.zeros((1, 8)), [], [None], []), "det_letters[0]"),
        (([], np.full((1, 8), np.inf)), "gt_quads[0]"),
    ],
)
def test_bad_input_is_named(arguments, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        CLEvalMetric().update(*arguments)


def test_bad_settings_are_named():
    for value in (0, 1.1):
        with rejects(ConfigError, setting="CLEvalMetric.ap_constraint", value=value):
            CLEvalMetric(ap_constraint=value)
    with pytest.raises(ValueError, match="img_longer_length"):
        CLEvalMetric(scale_wise=True).update([], [])


@pytest.mark.parametrize(
    ("a", "b", "common"), [("", "abc", ""), ("abcd", "acbd", "acd"), ("aab", "baa", "aa"), ("日本語", "日語", "日語")]
)
def test_common_letters_keep_their_order(a, b, common):
    assert common_letters(a, b) == common


def test_detections_are_read_in_the_order_of_the_characters_they_cover():
    hits = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], dtype=bool)
    assert reading_order([7, 3, 5], list(hits)) == [3, 5, 7]
    assert reading_order([7, 3, 5], list(hits[:, :1])) == [3, 7]


TALL = [[0, 0], [100, 0], [100, 100], [0, 100]]


def between(left, top, right, bottom):
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def count(detections, words, ignore, min_precision=0.3):
    def side(outlines, texts):
        rings = read_rings([np.array(outline, np.float64) for outline in outlines], "words")
        return Words(rings, tuple(texts), np.zeros(len(outlines), np.bool_))

    texts = ["word"] * len(words)
    page = Page(side(detections, [None] * len(detections)), side(words, texts), 0.5, True)
    return page.count(np.full(len(words), ignore), min_precision, False)


@pytest.mark.parametrize(("height", "found"), [(30, 4), (29, 0), (31, 4)])
def test_a_detection_of_which_exactly_three_tenths_are_in_the_word_finds_it(height, found):
    assert count([TALL], [between(0, 0, 100, height)], ignore=False).found_chars == found


@pytest.mark.parametrize(("height", "ignored"), [(30, True), (29, False), (31, True)])
def test_a_detection_of_which_exactly_three_tenths_are_in_an_ignored_word_does_not_count(height, ignored):
    # Between the centres of two characters, so that it covers none.
    narrow = between(14, 0, 24, 100)
    assert (count([narrow], [between(0, 0, 100, height)], ignore=True).det_chars == 0) == ignored


@pytest.mark.parametrize(("height", "ignored"), [(15, True), (14, False)])
def test_several_ignored_words_are_enough_if_they_hold_exactly_three_tenths_together(height, ignored):
    words = [between(0, 0, 100, height), between(0, 85, 100, 85 + height)]
    assert (count([TALL], words, ignore=True).det_chars == 0) == ignored


def score_pages(seeds):
    cleval, hmean = CLEvalMetric(), HmeanIoU()
    for seed in seeds:
        page = random_page(seed)
        cleval.update(*page)
        hmean.update(page[0], page[1], page[4])
    return numbers(cleval.compute()), numbers(hmean.compute())


def score_share(seeds, rank, folder):
    """The scores of a rank that updates with these pages, in a file."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    (folder / f"{rank}.json").write_text(json.dumps(score_pages(seeds)))
    distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")
def test_two_processes_give_the_scores_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    expected = score_pages(range(7))
    # Forked: importing torchmetrics takes longer than everything else here.
    forks = multiprocessing.get_context("fork")
    shares = enumerate((range(5), range(5, 7)))
    ranks = [forks.Process(target=score_share, args=(share, rank, tmp_path)) for rank, share in shares]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(300)
        rank.kill()
    assert [rank.exitcode for rank in ranks] == [0, 0]
    for rank in range(2):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == list(expected)


def test_wording_of_errors_about_evaluation(tmp_path, snapshot):
    shown = []

    def show(action):
        with pytest.raises((GlyphFeedError, ValueError)) as caught:
            action()
        shown.append(str(caught.value))

    word = box(0, 0, 30, 10)
    show(lambda: BoxesFromMap(thresh=1.5))
    show(lambda: BoxesFromMap(unclip_ratio="exakt"))
    show(lambda: BoxesFromMap(min_size="3"))
    show(lambda: BoxesFromMap(shrink_ratio=1))
    show(lambda: BoxesFromMap(max_candidates=0))
    show(lambda: BoxesFromMap()(np.full((8, 8), np.nan, np.float32)))
    show(lambda: BoxPool(BoxesFromMap(), workers=0))
    show(lambda: HmeanIoU(iou_threshold=1.0))
    show(lambda: HmeanIoU().update([np.zeros((2, 2))], []))
    show(lambda: HmeanIoU().update([], [word], [True, False]))
    show(lambda: HmeanIoU().update([box(0, np.nan, 9, 9)], []))
    show(lambda: CLEvalMetric(ap_constraint=0))
    show(lambda: CLEvalMetric(scale_wise=True).update([], []))
    show(lambda: CLEvalMetric().update([], [word], [], ["one", "two"]))
    show(lambda: CLEvalMetric().update([word], [], [None], []))
    snapshot("evaluation_errors", "\n".join(shown))
