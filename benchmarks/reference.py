"""The plain pipeline that GlyphFeed is measured against, written as a careful user would write it today.

Pillow decodes, Albumentations letterboxes and normalises, NumPy draws the classic DBNet maps within each polygon's
padded bounding box. Nothing of `ocr` is used here, so that it can serve as an oracle too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import albumentations as A  # noqa: N812
import cv2
import numpy as np
import pyclipper
import shapely
import torch
from albumentations.pytorch import ToTensorV2
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, default_collate

Array = NDArray[Any]


def edge_distance(xs: Array, ys: Array, start: Array, end: Array) -> Array:
    """Distance of a grid of pixels to an edge, by the law of cosines, as DBNet's authors published it."""
    from_start = np.square(xs - start[0]) + np.square(ys - start[1])
    from_end = np.square(xs - end[0]) + np.square(ys - end[1])
    length = np.square(start[0] - end[0]) + np.square(start[1] - end[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = (length - from_start - from_end) / (2 * np.sqrt(from_start * from_end))
        square_sine = np.nan_to_num(1 - np.square(cosine))
        distance = np.sqrt(np.maximum(from_start * from_end * square_sine / length, 0))
    sharp = cosine < 0
    distance[sharp] = np.sqrt(np.minimum(from_start, from_end))[sharp]
    return distance


def shoelace(polygon: Array) -> tuple[float, float]:
    """Area and perimeter."""
    following = np.roll(polygon, -1, axis=0)
    area = abs(np.sum(polygon[:, 0] * following[:, 1] - polygon[:, 1] * following[:, 0])) / 2
    return float(area), float(np.linalg.norm(following - polygon, axis=1).sum())


def reference_maps(
    polygons: list[Array], width: int, height: int, shrink_ratio: float = 0.4, low: float = 0.3, high: float = 0.7
) -> tuple[Array, Array]:
    """Probability and threshold map, (H, W) float32 each."""
    prob_map = np.zeros((height, width), dtype=np.float32)
    band = np.zeros((height, width), dtype=np.float32)
    for points in polygons:
        polygon = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        area, perimeter = shoelace(polygon)
        if area <= 0:
            continue
        distance = area * (1 - shrink_ratio**2) / perimeter
        offset = pyclipper.PyclipperOffset()
        whole = np.asarray(points, dtype=np.float32).reshape(-1, 2).astype(np.int32)
        try:
            offset.AddPath(whole, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
        except pyclipper.ClipperException:
            continue
        pieces = offset.Execute(-distance)
        if not pieces:
            continue
        for piece in pieces:
            cv2.fillPoly(prob_map, [np.array(piece, dtype=np.int32)], 1.0)
        _raise_band(band, polygon, distance)
    return prob_map, band * (high - low) + low


def _raise_band(band: Array, polygon: Array, distance: float) -> None:
    height, width = band.shape
    left, top = np.maximum(np.floor(polygon.min(axis=0) - distance), 0).astype(int)
    right, bottom = np.minimum(np.ceil(polygon.max(axis=0) + distance), (width - 1, height - 1)).astype(int)
    if right < left or bottom < top:
        return
    xs, ys = np.meshgrid(np.arange(left, right + 1, dtype=np.float64), np.arange(top, bottom + 1, dtype=np.float64))
    nearest = np.full(xs.shape, np.inf)
    for i in range(len(polygon)):
        start, end = polygon[i], polygon[(i + 1) % len(polygon)]
        if not np.array_equal(start, end):
            np.minimum(nearest, edge_distance(xs, ys, start, end), out=nearest)
    window = band[top : bottom + 1, left : right + 1]
    np.maximum(window, (1 - np.clip(nearest / distance, 0, 1)).astype(np.float32), out=window)


def fixed_transform(size: int) -> A.Compose:
    """The letterbox of validation, normalised."""
    return _compose(_letterbox(size))


def random_transform(size: int) -> A.Compose:
    """The augmentation of configs/transforms/base.yaml, as far as Albumentations supports it.

    Rotation and scale, each on half of the pages, are one warp on three quarters of them, which spares it a pass over
    the pixels; its crop knows nothing of words.
    """
    steps = [
        *_letterbox(size),
        A.RandomResizedCrop((size, size), scale=(0.1, 1.0), p=0.5),
        A.HorizontalFlip(p=0.5),
        A.Affine(scale=(0.7, 1.4), rotate=(-10, 10), p=0.75),
        A.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0, p=0.5),
        A.GaussianBlur(blur_limit=0, sigma_limit=(0.2, 1.2), p=0.2),
        A.ImageCompression(quality_range=(40, 90), p=0.2),
    ]
    return _compose(steps)


def _letterbox(size: int) -> list[A.BasicTransform]:
    return [
        A.LongestMaxSize(max_size=size),
        A.PadIfNeeded(min_height=size, min_width=size, border_mode=cv2.BORDER_CONSTANT),
    ]


def _compose(steps: list[A.BasicTransform]) -> A.Compose:
    return A.Compose(
        [*steps, A.Normalize(), ToTensorV2()],
        keypoint_params=A.KeypointParams(format="xy", remove_invisible=False),
    )


class ReferenceDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Pillow, Albumentations and the maps above; items with the keys of `OCRDataset` that training needs.

    `keep_items` holds every item in a dictionary, which is one a worker process.
    """

    def __init__(
        self,
        image_path: Path,
        annotation_path: Path,
        size: int = 640,
        transform: A.Compose | None = None,
        keep_items: bool = False,
    ) -> None:
        pages = json.loads(annotation_path.read_text(encoding="utf-8"))["images"]
        self.image_path = image_path
        self.names = list(pages)
        self.words = [
            [np.array(word["points"], dtype=np.float32) for word in (page["words"] or {}).values()]
            for page in pages.values()
        ]
        self.transform = transform or fixed_transform(size)
        self.kept: dict[int, dict[str, Any]] | None = {} if keep_items else None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.kept is None:
            return self._make(index)
        if index not in self.kept:
            self.kept[index] = self._make(index)
        return self.kept[index]

    def _make(self, index: int) -> dict[str, Any]:
        with Image.open(self.image_path / self.names[index]) as opened:
            image = np.array(ImageOps.exif_transpose(opened).convert("RGB"))
        words = self.words[index]
        points = np.concatenate(words) if words else np.zeros((0, 2), dtype=np.float32)
        moved = self.transform(image=image, keypoints=points)
        height, width = moved["image"].shape[1:]
        vertices = np.asarray(moved["keypoints"], dtype=np.float32).reshape(-1, 2)
        polygons = np.split(vertices, np.cumsum([len(word) for word in words])[:-1]) if words else []
        polygons = [polygon for polygon in polygons if _is_on_page(polygon, width, height)]
        prob_map, thresh_map = reference_maps(polygons, width, height)
        return {
            "image": moved["image"],
            "polygons": [polygon[None] for polygon in polygons],
            "prob_map": torch.from_numpy(prob_map)[None],
            "thresh_map": torch.from_numpy(thresh_map)[None],
            "image_filename": self.names[index],
        }


def _is_on_page(polygon: Array, width: int, height: int) -> bool:
    low, high = polygon.min(axis=0), polygon.max(axis=0)
    return bool(low[0] < width and low[1] < height and high[0] >= 0 and high[1] >= 0)


def reference_collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Tensors stacked, in a worker process directly in shared memory; everything else as lists."""
    stacked = {name: default_collate([item[name] for item in items]) for name in ("image", "prob_map", "thresh_map")}
    return {
        "images": stacked["image"],
        "prob_maps": stacked["prob_map"],
        "thresh_maps": stacked["thresh_map"],
        "polygons": [item["polygons"] for item in items],
        "image_filename": [item["image_filename"] for item in items],
    }


def reference_loader(dataset: ReferenceDataset, workers: int, **settings: Any) -> DataLoader[dict[str, Any]]:
    """Torch's loader with persistent workers: neither their start nor the loss of their caches counts."""
    return DataLoader(
        dataset,
        num_workers=workers,
        collate_fn=reference_collate,
        persistent_workers=workers > 0,
        **settings,
    )


class Passes:
    """A loader with another order in every pass."""

    def __init__(self, loader: DataLoader[dict[str, Any]], batches: Any) -> None:
        self._loader, self._batches = loader, batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self._loader
        self._batches.set_epoch(self._batches.epoch + 1)


def compare_batches(theirs: Iterable[dict[str, Any]], ours: Iterable[Any]) -> str:
    """In which pages and pixels two loaders differ; a ValueError if shapes or types differ."""
    equal = pages = differing = 0
    gap = 0.0
    for batch, own in zip(theirs, ours, strict=True):
        for name in ("images", "prob_maps", "thresh_maps"):
            if (batch[name].shape, batch[name].dtype) != (own[name].shape, own[name].dtype):
                raise ValueError(f"{name}: {own[name].shape} {own[name].dtype}, the reference has {batch[name].shape}")
        pages += len(own["images"])
        equal += sum(map(torch.equal, batch["images"], own["images"]))
        differing += int((batch["prob_maps"] != own["prob_maps"]).sum())
        gap = max(gap, float((batch["thresh_maps"] - own["thresh_maps"]).abs().max()))
    return (
        f"{equal} of {pages} float pages equal the reference's, bit for bit; {differing} pixels of the probability "
        f"maps differ; threshold maps differ by at most {gap:.1e}"
    )


# -- boxes and scores

Boxes = list[tuple[Array, float]]


class MapPage(NamedTuple):
    """A map and the matrix from it to the source page."""

    prob_map: NDArray[np.float32]
    inverse_matrix: NDArray[np.float64]
    size: tuple[int, int]


def network_like(prob_map: Array, rng: np.random.Generator) -> NDArray[np.float32]:
    """A drawn map as a network would give it: soft edges, uneven level, noise, bridges between lines, false blobs."""
    height, width = prob_map.shape
    drawn = prob_map.copy()
    for y, x in rng.permutation(np.argwhere(drawn > 0))[:6]:
        cv2.line(drawn, (int(x), int(y)), (int(x), int(y) + int(rng.integers(4, 14))), 0.7, 1)
    for _ in range(25):
        centre, axes = rng.integers(0, (width, height)), rng.integers(1, 9, 2)
        cv2.ellipse(drawn, centre.tolist(), axes.tolist(), float(rng.uniform(0, 180)), 0, 360, rng.uniform(0.3, 1), -1)
    level = cv2.resize(rng.uniform(0.7, 1, (24, 24)).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    noise = cv2.GaussianBlur(rng.normal(0, 1, drawn.shape).astype(np.float32), (0, 0), 1.2)
    return np.clip(cv2.GaussianBlur(drawn, (0, 0), 1.0) * level + 0.12 * noise, 0, 1).astype(np.float32)


def usual_loop(page: MapPage, boxes: Any) -> Boxes:
    """The published post-processing, with the page's matrix in place of two scales."""
    bitmap = page.prob_map > boxes.thresh
    contours, _ = cv2.findContours((bitmap * 255).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    found = []
    for contour in contours:
        if boxes.use_polygon:
            points = cv2.approxPolyDP(contour, 0.002 * cv2.arcLength(contour, True), True).reshape(-1, 2)
            if len(points) < 4:
                continue
        else:
            points, side = mini_box(contour)
            if side < boxes.min_size:
                continue
        score = box_score_fast(page.prob_map, points)
        if score < boxes.box_thresh:
            continue
        # A bay that closes leaves several pieces. The published loop drops such a box; here the largest piece stays.
        box = np.array(max(unclip(points, boxes.unclip_ratio), key=pyclipper.Area, default=[[0, 0]]))
        corners, side = mini_box(box.astype(np.int32))
        if side < boxes.min_size + 2:
            continue
        box = box if boxes.use_polygon else corners
        moved = cv2.perspectiveTransform(box.reshape(-1, 1, 2).astype(np.float64), page.inverse_matrix).reshape(-1, 2)
        on_page = np.clip(moved, 0, page.size)
        if cv2.contourArea(on_page.astype(np.float32)) > 0:
            found.append((on_page, score))
    return found


def mini_box(contour: Array) -> tuple[Array, float]:
    """Corners of the smallest rectangle, top left first, and its shorter side."""
    rectangle = cv2.minAreaRect(contour)
    points = sorted(cv2.boxPoints(rectangle), key=lambda point: point[0])
    left, right = sorted(points[:2], key=lambda point: point[1]), sorted(points[2:], key=lambda point: point[1])
    # One rectangle in 28 has a corner at 348.99997 for 349, or a side of 2.9999995 for 3: cut to 348 the box would
    # shift by a pixel, and under 3 it would be dropped.
    return np.round([left[0], right[0], right[1], left[1]], 3), round(min(rectangle[1]), 3)


def box_score_fast(prob_map: Array, points: Array) -> float:
    """Mean of the map under a mask of the box."""
    height, width = prob_map.shape
    box = points.copy()
    left, right = np.clip([np.floor(box[:, 0].min()), np.ceil(box[:, 0].max())], 0, width - 1).astype(int)
    top, bottom = np.clip([np.floor(box[:, 1].min()), np.ceil(box[:, 1].max())], 0, height - 1).astype(int)
    mask = np.zeros((bottom - top + 1, right - left + 1), dtype=np.uint8)
    box[:, 0] -= left
    box[:, 1] -= top
    cv2.fillPoly(mask, box.reshape(1, -1, 2).astype(np.int32), 1)
    return float(cv2.mean(prob_map[top : bottom + 1, left : right + 1], mask)[0])


def unclip(points: Array, ratio: float) -> list[list[list[int]]]:
    """The box moved out by area * ratio / length."""
    polygon = shapely.Polygon(points)
    offset = pyclipper.PyclipperOffset()
    offset.AddPath(points, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    pieces: list[list[list[int]]] = offset.Execute(polygon.area * ratio / polygon.length)
    return pieces


def shapely_counts(dets: Array, gts: Array, ignore: list[bool]) -> tuple[int, int]:
    """Matches and counted detections by the protocol, as evaluation scripts do it: every pair is compared."""
    det_shapes = [shapely.Polygon(quad.reshape(4, 2)) for quad in dets]
    gt_shapes = [shapely.Polygon(quad.reshape(4, 2)) for quad in gts]
    ignored = [shape for shape, flag in zip(gt_shapes, ignore, strict=True) if flag]
    free = [all(det.intersection(shape).area <= 0.5 * det.area for shape in ignored) for det in det_shapes]
    counted, matched = sum(free), 0
    for gt in (shape for shape, flag in zip(gt_shapes, ignore, strict=True) if not flag):
        overlaps = [(gt.intersection(det).area, det.area) for det in det_shapes]
        for index, (shared, area) in enumerate(overlaps):
            if free[index] and shared > 0.5 * (gt.area + area - shared):
                free[index], matched = False, matched + 1
                break
    return matched, counted
