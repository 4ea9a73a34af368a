"""GlyphFeed itself, with its cache and without."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.common import Course, random_stages
from ocr import DBTransforms, Loader, OCRDataset
from ocr.pipeline.prefix import Letterbox

ABOUT = {
    "cached": {"title": "GlyphFeed", "reads": "letterboxed pages", "settings": {"cache": "auto"}},
    "uncached": {"title": "GlyphFeed, no cache", "reads": "image files", "settings": {"cache": "off"}},
}


def open_loader(course: Course, training: bool, **settings: Any) -> Loader:
    stages = [Letterbox(course.size), *(random_stages(course.size) if training else ())]
    transform = DBTransforms(stages, normalize="device")
    settings = {"image_loading_config": {"annotation_frame": "upright"}, "use_stored_maps": False} | settings
    dataset = OCRDataset(course.images, course.annotation, transform, cache_folder=course.store, **settings)
    return Loader(dataset, course.batch_size, course.workers, shuffle=training)
