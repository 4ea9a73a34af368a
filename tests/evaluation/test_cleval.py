import multiprocessing
import pickle
import random
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from torch import distributed

from ocr.errors import ConfigError
from ocr.evaluation import CLEvalMetric, HmeanIoU
from ocr.evaluation.cleval_letters import common_letters, reading_order
from ocr.evaluation.cleval_page import Page, Words
from ocr.geometry.kernels.overlap import read_rings
from ocr.geometry.polygons import Polygons

ALPHABET = "abAB12# ßé"


def box(x, y, width, height):
    return np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]], dtype=np.float64)


def turned(points, angle):
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (points - points.mean(axis=0)) @ matrix.T + points.mean(axis=0)


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
    """What a detector may make of a word: near hits, splits, merges with the word before, shifts, strays, nothing."""
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
    theirs, ours = published(**options), CLEvalMetric(**options)
    for page in range(2):
        arguments = random_page(1000 * seed + page)
        theirs.update(*arguments)
        ours.update(*arguments)
    assert numbers(ours.compute()) == pytest.approx(numbers(theirs.compute()), abs=1e-6)


def test_the_numbers_by_text_height_are_the_published_ones(published):
    bins = (0.0, 0.02, 0.05, 1.0)
    theirs, ours = (metric(scale_wise=True, scale_bins=bins) for metric in (published, CLEvalMetric))
    for seed in range(4):
        dets, gts, *rest = random_page(seed)
        arguments = dets.astype(np.float32), gts.astype(np.float32), *rest, 300
        theirs.update(*arguments)
        ours.update(*arguments)
    expected, found = theirs.compute(), ours.compute()
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-6)
    assert list(found["scale_wise"]) == list(expected["scale_wise"]) == [(0.0, 0.02), (0.02, 0.05), (0.05, 1.0)]
    for bin_range, scores in expected["scale_wise"].items():
        assert numbers(found["scale_wise"][bin_range]) == pytest.approx(numbers(scores), abs=1e-6)


def test_forward_gives_the_published_scores_of_its_page(published):
    theirs, ours = published(), CLEvalMetric()
    for seed in (5, 6):
        arguments = random_page(seed)
        assert numbers(ours(*arguments)) == pytest.approx(numbers(theirs(*arguments)), abs=1e-6)
    assert numbers(ours.compute()) == pytest.approx(numbers(theirs.compute()), abs=1e-6)


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


def test_case_counts_unless_told_otherwise():
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
    ("arguments", "message"),
    [
        (([[0, 0, 9, 0]], []), r"det_quads\[0\] has shape \(4,\)"),
        (([], np.zeros((2, 7))), r"gt_quads\[0\] has shape \(7,\)"),
        (([], np.zeros((2, 8)), [], ["one"]), "gt_letters has 1 texts for 2 gt_quads"),
        ((np.zeros((1, 8)), [], ["one", "two"], []), "det_letters has 2 texts for 1 det_quads"),
        (([], np.zeros((2, 8)), [], ["one", "two"], [False]), "gt_is_dcs has 1 flags for 2 gt_quads"),
        (([], np.zeros((1, 8)), []), r"gt_letters\[0\] is None: give its text"),
        ((np.zeros((1, 8)), [], [None], []), r"det_letters\[0\] is None: leave det_letters out"),
        (([], np.full((1, 8), np.inf)), r"gt_quads\[0\] has the point \[inf, inf\]"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        CLEvalMetric().update(*arguments)


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match="ap_constraint=0"):
        CLEvalMetric(ap_constraint=0)
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


def score_pages(seeds):
    cleval, hmean = CLEvalMetric(), HmeanIoU()
    for seed in seeds:
        page = random_page(seed)
        cleval.update(*page)
        hmean.update(page[0], page[1], page[4])
    return numbers(cleval.compute()), numbers(hmean.compute())


def score_share(seeds, rank, rendezvous):
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    try:
        return score_pages(seeds)
    finally:
        distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")
def test_two_processes_give_the_scores_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    expected = score_pages(range(7))
    # This process is one of the two: importing torchmetrics takes longer than everything else here.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        other = pool.submit(score_share, range(5, 7), 1, tmp_path / "meet")
        assert score_share(range(5), 0, tmp_path / "meet") == expected
        assert other.result() == expected
