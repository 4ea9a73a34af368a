"""Each part of a page's path, one thread, against what is usual for it; tests show that both give the same."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from benchmarks.harness import Data, Figure, Row, Target, benchmark, fastest, figure, interleave
from benchmarks.loaders import SIZE, pages, split_paths
from benchmarks.reference import (
    Array,
    MapPage,
    ReferenceDataset,
    network_like,
    reference_maps,
    shapely_counts,
    usual_loop,
)
from ocr.evaluation import CLEvalMetric, HmeanIoU
from ocr.evaluation.boxes import BoxesFromMap
from ocr.geometry.polygons import Polygons
from ocr.pipeline.decode import decode_pixels, read_header
from ocr.pipeline.targets import Targets
from ocr.tools.synth import encode_page, render_page

WORDS, SYNTHETIC, MEGAPIXELS = 105, 10, 1.5


class Part(NamedTuple):
    """The usual way, GlyphFeed's, and what both are given, one after the other."""

    name: str
    against: str
    usual: Callable[[Any], object]
    ours: Callable[[Any], object]
    given: Iterable[Any]
    goal: float
    """At least this many times as fast."""


@benchmark("path", table="results#path", rounds=5)
def path(data: Data) -> Iterator[Row | str]:
    """Each part of a page's path against what is usual, one thread."""
    for part in parts(data):
        given = list(part.given)
        contenders = {name: partial(seconds, run, given) for name, run in (("u", part.usual), ("o", part.ours))}
        best = {name: took / len(given) for name, took in fastest(interleave(contenders, data.rounds)).items()}
        faster = figure(best["u"] / best["o"], " x", Figure(best["o"], "s"), at_least=part.goal)
        yield Row(part.name, {"against": part.against, "it takes": Figure(best["u"], "s"), "GlyphFeed": faster})
    render = partial(render_page, 0, megapixels=(MEGAPIXELS, MEGAPIXELS), kind="receipt")
    took = min(seconds(lambda index: encode_page(render(index)), range(SYNTHETIC)) for _ in range(data.rounds))
    rate = Target(SYNTHETIC / took, " pages/s", at_least=10)
    yield Row(f"a synthetic receipt, {MEGAPIXELS} megapixels", {"GlyphFeed": rate})
    if importlib.util.find_spec("cleval") is None:
        yield "CLEval is not measured: pip install cleval."


def seconds(run: Callable[[Any], object], given: Iterable[Any]) -> float:
    """Of one pass."""
    start = time.perf_counter()
    for one in given:
        run(one)
    return time.perf_counter() - start


def parts(data: Data) -> Iterator[Part]:
    """Cold pages first; maps and boxes of the same pages; scores of one page with many words."""
    plain = ReferenceDataset(*split_paths(data.receipts, "val"), SIZE)
    floats, exact = (
        pages(data.receipts, form="float", image_loading_config={"scaled": scaled}) for scaled in ("auto", "off")
    )
    every, usual = range(len(plain)), "Pillow, Albumentations, NumPy"
    yield Part("a cold page", usual, plain.__getitem__, floats.__getitem__, every, 4.8)
    yield Part("- its pixels bit for bit: decode.scaled=off", usual, plain.__getitem__, exact.__getitem__, every, 3)
    encoded = [floats.source.read(index).encoded for index in every]
    yield Part("- its decoding", "Pillow", decode_with_pillow, decode, encoded, 2)
    at_cut = [floats.sample(index) for index in every]
    drawn, polygons = Targets(min_text_size=0), [page.polygons.select(~page.polygons.ignore) for page in at_cut]

    def classic(page: Polygons) -> object:
        return reference_maps(list(page), SIZE, SIZE)

    yield Part("its maps", "NumPy", classic, lambda page: drawn.draw(page, SIZE, SIZE), polygons, 20)
    maps = [
        MapPage(network_like(page.maps["prob_map"], np.random.default_rng((0, i))), page.inverse_matrix, page.shape)
        for i, page in enumerate(at_cut)
    ]
    for use_polygon, shape in ((True, "polygons"), (False, "rectangles")):
        rule = BoxesFromMap(unclip_ratio=1.5, use_polygon=use_polygon)
        loop = partial(usual_loop, boxes=rule)
        yield Part(f"its boxes, {shape}", "the published loop", loop, lambda page, rule=rule: rule(*page), maps, 5)
    yield from scores()


def decode_with_pillow(encoded: bytes) -> object:
    with Image.open(BytesIO(encoded)) as opened:
        return np.array(ImageOps.exif_transpose(opened).convert("RGB"))


def decode(encoded: bytes) -> object:
    return decode_pixels(encoded, read_header(encoded, "", 10**9), "", SIZE)


def scores() -> Iterator[Part]:
    """Of a page in two columns and what a detector finds: most words, some split, merged, missed or misread."""
    found, words, texts, letters, ignore = receipt_page()
    ours, hmean = CLEvalMetric(), HmeanIoU()
    loop = "a loop over shapely polygons"
    given = found, words, ignore
    yield Part("its H-mean", loop, lambda page: shapely_counts(*page), lambda page: hmean(*page), [given] * 4, 5)
    if importlib.util.find_spec("cleval"):
        from cleval import CLEvalMetric as Published

        published, whole, alone = (
            Published(),
            (found, words, texts, letters, ignore),
            (found, words, None, letters, ignore),
        )
        for name, page in (("CLEval, end to end", whole), ("CLEval, detection", alone)):
            yield Part(
                name, "the package cleval", lambda _: published(*whole), lambda page: ours(*page), [page] * 2, 20
            )


def receipt_page() -> tuple[Array, Array, list[str], list[str], list[bool]]:
    """Found words, words, their texts, and which are ignored."""
    rng = np.random.default_rng(0)
    lines = np.arange(WORDS) // 2
    x, y = 30 + np.arange(WORDS) % 2 * 330 + rng.uniform(0, 30, WORDS), 20 + lines * 24 + rng.uniform(0, 2, WORDS)
    width = rng.uniform(60, 260, WORDS)
    words = np.stack([x, y, x + width, y, x + width, y + 18, x, y + 18], axis=1)
    letters = ["".join(rng.choice(list("abcdefgh 0123456789"), max(1, int(w / 12)))) for w in width]
    near = words + rng.normal(0, 1.2, words.shape)
    halves = near[:: WORDS // 7]
    left, right = halves.copy(), halves.copy()
    left[:, [2, 4]] = right[:, [0, 6]] = (halves[:, [0, 6]] + halves[:, [2, 4]]) / 2
    merged = near[1::10].copy()
    merged[:, [0, 6]] -= 330
    kept = np.setdiff1d(np.arange(WORDS), np.r_[0 : WORDS : WORDS // 7, 3:WORDS:15])
    found = np.concatenate([near[kept], left, right, merged])
    texts = [letters[index] for index in kept] + ["abc 012"] * (2 * len(halves) + len(merged))
    ignore = (rng.random(WORDS) < 0.05).tolist()
    return found.astype(np.float32), words.astype(np.float32), texts, letters, ignore
