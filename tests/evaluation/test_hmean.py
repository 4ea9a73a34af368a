"""The H-mean at an IoU against the protocol as its script has it, and the overlaps that it needs."""

import pickle
import re

import numpy as np
import pytest
import shapely
import torch
from outlines import box, turned
from rejection import rejects

from ocr.errors import ConfigError
from ocr.evaluation import HmeanIoU
from ocr.geometry.kernels.overlap import read_rings, ring_areas, shared_areas, touching_pairs
from ocr.geometry.polygons import Polygons


def blob(rng, x, y, radius, points):
    """A star-shaped, mostly concave polygon."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, points))
    return np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], axis=1) * rng.uniform(
        0.9, 1.1, (points, 1)
    )


def random_page(seed):
    """Words close together, some ignored, and detections that shift, split, merge, miss and invent words."""
    rng = np.random.default_rng(seed)
    gts, dets = [], []
    for _ in range(rng.integers(1, 25)):
        word = turned(box(*rng.uniform(0, 200, 2), *rng.uniform(5, 60, 2)), rng.uniform(-0.5, 0.5))
        if rng.random() < 0.3:
            word = blob(rng, *rng.uniform(20, 200, 2), rng.uniform(5, 30), int(rng.integers(5, 14)))
        gts.append(word)
        kind = rng.random()
        if kind < 0.5:
            dets.append(word + rng.normal(0, 2, word.shape))
        elif kind < 0.7:
            middle = word.mean(axis=0)
            dets += [word * 0.5 + middle * 0.5, word + np.array([0.6, 0])]
        elif kind < 0.85:
            dets.append(turned(word, 0.4))
    ignore = rng.random(len(gts)) < 0.3
    order = rng.permutation(len(dets))
    return [dets[index] for index in order], gts, ignore


def protocol_counts(dets, gts, ignore, constraint=0.5):
    """The protocol as its script has it: every detection meets every word."""
    gt_shapes = [shapely.make_valid(shapely.Polygon(points)) for points in gts]
    det_shapes = [shapely.make_valid(shapely.Polygon(points)) for points in dets]
    dropped = set()
    for number, det in enumerate(det_shapes):
        for gt, ignored in zip(gt_shapes, ignore, strict=True):
            if ignored and det.area > 0 and gt.intersection(det).area / det.area > constraint:
                dropped.add(number)
                break
    gt_taken, det_taken, matched = set(), set(), 0
    for gt_number, gt in enumerate(gt_shapes):
        for det_number, det in enumerate(det_shapes):
            if gt_number in gt_taken or det_number in det_taken or ignore[gt_number] or det_number in dropped:
                continue
            shared = gt.intersection(det).area
            union = gt.area + det.area - shared
            if union > 0 and shared / union > constraint:
                gt_taken.add(gt_number)
                det_taken.add(det_number)
                matched += 1
    return matched, len(dets) - len(dropped), int((~np.asarray(ignore)).sum())


def scores_of(metric):
    return {key: value.item() for key, value in metric.compute().items()}


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_those_of_the_protocol_on_random_pages(seed):
    dets, gts, ignore = random_page(seed)
    metric = HmeanIoU()
    metric.update(dets, gts, ignore)
    assert (metric.matched, metric.detections, metric.words) == protocol_counts(dets, gts, ignore)


def test_scores_are_taken_over_all_pages_together():
    pages = [random_page(seed) for seed in range(6)]
    metric = HmeanIoU()
    for dets, gts, ignore in pages:
        metric.update(dets, gts, ignore)
    matched, detections, words = np.sum([protocol_counts(*page) for page in pages], axis=0)
    scores = scores_of(metric)
    assert scores["precision"] == pytest.approx(matched / detections)
    assert scores["recall"] == pytest.approx(matched / words)
    assert scores["hmean"] == pytest.approx(2 * matched / (detections + words))


def test_more_thresholds_have_the_counts_that_each_has_alone():
    metric, alone = HmeanIoU(also_at=[0.7, 0.25]), {0.7: HmeanIoU(0.7), 0.25: HmeanIoU(0.25)}
    for seed in range(6):
        for counted in (metric, *alone.values()):
            counted.update(*random_page(seed))
    scores = scores_of(metric)
    for threshold, expected in alone.items():
        for name, score in scores_of(expected).items():
            assert scores[f"{name}_{threshold * 100:.0f}"] == pytest.approx(score)
    assert scores["hmean_70"] < scores["hmean"] < scores["hmean_25"]


def test_a_perfect_prediction_scores_exactly_one():
    _, gts, _ = random_page(3)
    bowtie = box(500, 500, 40, 40)[[0, 2, 1, 3]]
    words = [*gts, bowtie]
    apart = [points + np.array([index * 1000, 0]) for index, points in enumerate(words)]
    metric = HmeanIoU()
    metric.update(apart, apart)
    assert scores_of(metric) == {"precision": 1.0, "recall": 1.0, "hmean": 1.0}


def test_an_overlap_of_exactly_one_half_is_not_enough():
    metric = HmeanIoU()
    metric.update([box(0, 0, 10, 10)], [box(0, 0, 20, 10)])
    assert metric.matched == 0
    metric.update([box(0, 0, 10.01, 10)], [box(0, 0, 20, 10)])
    assert metric.matched == 1


def test_a_detection_half_in_an_ignored_word_counts_and_one_further_in_does_not():
    ignored = [box(0, 0, 100, 100)]
    metric = HmeanIoU()
    metric.update([box(95, 0, 10, 10)], ignored, [True])
    assert (metric.detections, metric.words) == (1, 0)
    metric.reset()
    metric.update([box(94, 0, 10, 10)], ignored, [True])
    assert (metric.detections, metric.words) == (0, 0)


def test_each_word_takes_one_detection_and_each_detection_one_word():
    word = box(0, 0, 50, 20)
    metric = HmeanIoU()
    metric.update([word, word + 1, word + 2], [word, word + 0.5])
    assert (metric.matched, metric.detections, metric.words) == (2, 3, 2)


@pytest.mark.parametrize(
    ("dets", "gts", "expected"),
    [
        ([], [], (1.0, 1.0, 1.0)),
        ([box(0, 0, 9, 9)], [], (0.0, 1.0, 0.0)),
        ([], [box(0, 0, 9, 9)], (0.0, 0.0, 0.0)),
        (np.zeros((0, 8)), np.zeros((0, 4, 2)), (1.0, 1.0, 1.0)),
    ],
)
def test_pages_without_words_or_detections_have_defined_scores(dets, gts, expected):
    metric = HmeanIoU()
    metric.update(dets, gts)
    assert tuple(scores_of(metric).values()) == expected


def test_a_word_without_area_counts_and_matches_nothing():
    flat = np.array([[0, 5], [10, 5], [20, 5]])
    metric = HmeanIoU()
    metric.update([flat], [flat, box(0, 0, 20, 10)])
    assert (metric.matched, metric.detections, metric.words) == (0, 1, 2)


def test_packed_polygons_bring_their_own_ignore_flags_unless_others_are_given():
    words = [box(0, 0, 30, 10), box(0, 50, 30, 10)]
    packed = Polygons.pack(words, ignore=[False, True])
    metric = HmeanIoU()
    metric.update(packed, packed)
    assert (metric.matched, metric.detections, metric.words) == (1, 1, 1)
    metric.reset()
    metric.update(words, packed, [False, False])
    assert (metric.matched, metric.detections, metric.words) == (2, 2, 2)


def test_all_forms_of_input_give_the_same_counts():
    words = [box(0, 0, 30, 10), box(5, 50, 30, 10)]
    forms = [
        words,
        np.stack(words).reshape(2, 8),
        np.stack(words).astype(np.float32),
        [points[None] for points in words],
        [points.reshape(-1).tolist() for points in words],
        torch.from_numpy(np.stack(words)),
        Polygons.pack(words),
    ]
    for form in forms:
        metric = HmeanIoU()
        metric.update(form, words)
        assert (metric.matched, metric.detections) == (2, 2)


def test_forward_gives_the_scores_of_its_page_and_keeps_the_sum():
    metric = HmeanIoU()
    word = [box(0, 0, 30, 10)]
    assert metric(word, word)["hmean"] == 1.0
    assert metric([], word)["hmean"] == 0.0
    assert metric.compute()["recall"] == 0.5
    assert pickle.loads(pickle.dumps(metric)).compute()["recall"] == 0.5
    metric.reset()
    assert metric.words == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([np.zeros((2, 2))], []), "det_polygons[0]"),
        (([], np.zeros((4, 3))), "gt_polygons[0]"),
        (([], np.zeros((1, 6, 3))), "gt_polygons[0]"),
        (([], [box(0, 0, 9, 9)], [True, False]), "gt_ignore"),
        (([box(0, 0, 9, 9), box(0, np.nan, 9, 9)], []), "det_polygons[1]"),
    ],
)
def test_bad_input_is_named(arguments, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        HmeanIoU().update(*arguments)


@pytest.mark.parametrize("name", ["iou_threshold", "ignore_threshold"])
def test_a_threshold_outside_of_its_range_is_refused(name):
    for value in (1.0, -0.1):
        with rejects(ConfigError, setting=f"HmeanIoU.{name}", value=value):
            HmeanIoU(**{name: value})
    with rejects(ConfigError, setting="HmeanIoU.also_at", value=1.5):
        HmeanIoU(also_at=[0.7, 1.5])


def areas_of(a, b, holes=()):
    """Shared area of ring 0 of `a` and ring 0 of `b`, rings `holes` of `a` cut out."""
    first, second = read_rings(a, "a").in_float64(), read_rings(b, "b").in_float64()
    hole_starts = np.zeros(len(first) + 1, dtype=np.int64)
    hole_starts[1:] = len(holes)
    pair = np.zeros((1, 2), dtype=np.int64)
    hole_rings = np.array(holes, dtype=np.int64)
    return shared_areas(first.vertices, first.starts, second.vertices, second.starts, pair, hole_rings, hole_starts)[0]


@pytest.mark.parametrize("seed", range(60))
def test_overlaps_of_any_polygons_are_those_of_shapely(seed):
    rng = np.random.default_rng(seed)
    # Whole coordinates bring shared edges, shared vertices and self-crossing outlines.
    a, b, c = (rng.integers(0, 12, (int(rng.integers(3, 8)), 2)).astype(np.float64) for _ in range(3))
    shapes = [shapely.make_valid(shapely.Polygon(points)) for points in (a, b, c)]
    assert areas_of([a], [b]) == pytest.approx(shapes[0].intersection(shapes[1]).area, abs=1e-9)
    cut = shapes[0].difference(shapes[2]).intersection(shapes[1]).area
    assert areas_of([a, c], [b], holes=[1]) == pytest.approx(cut, abs=1e-9)
    rings = read_rings([a, b], "rings")
    expected = [shapes[0].area, shapes[1].area]
    assert ring_areas(rings.vertices, rings.starts) == pytest.approx(expected, abs=1e-9)


def test_only_boxes_that_touch_become_pairs():
    a = np.array([[0, 0, 10, 10], [100, 100, 110, 110]], dtype=np.float64)
    b = np.array([[10, 10, 20, 20], [10.5, 0, 20, 5], [105, 90, 106, 120]], dtype=np.float64)
    assert touching_pairs(a, b).tolist() == [[0, 0], [1, 2]]
    everything = np.zeros((30, 4))
    assert len(touching_pairs(everything, everything)) == 900
