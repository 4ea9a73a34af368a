"""What a user reads about stages that cannot work and pages that cannot be read, and how a dataset shows its path."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import GlyphFeedError
from ocr.pipeline.decode import Decode
from ocr.pipeline.dense import DensePage
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, JpegNoise, RandomRotate, TextAwareCrop
from ocr.pipeline.targets import Targets

SQUARE = [[2, 2], [20, 2], [20, 12], [2, 12]]


def encoded(width: int, height: int, format: str = "JPEG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(stream, format)
    return stream.getvalue()


def error_of(call: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    with pytest.raises(GlyphFeedError) as caught:
        call(*arguments, **settings)
    return str(caught.value)


@pytest.fixture
def open_data(tmp_path):
    """Opens a dataset of one folder whose pages have these contents, and these words."""
    (tmp_path / "images").mkdir()

    def open_with(contents: dict[str, bytes], words: dict[str, Any] | None = None, **settings: Any) -> OCRDataset:
        for name, content in contents.items():
            (tmp_path / "images" / name).write_bytes(content)
        pages = {name: {"words": {}} for name in contents} if words is None else words
        (tmp_path / "pages.json").write_text(json.dumps({"images": pages}))
        transform = settings.pop("transform", DBTransforms([Letterbox(64), Normalize()]))
        return OCRDataset(tmp_path / "images", tmp_path / "pages.json", transform, **settings)

    return open_with


def test_the_wording_of_errors_of_stages_and_pages(tmp_path, open_data, snapshot):
    whole = encoded(60, 40)
    contents = {
        "empty.jpg": b"",
        "cut.jpg": whole[:-30],
        "text.jpg": b"<html>404</html>",
        "tiny.jpg": encoded(2, 500),
    }
    labelled = error_of(open_data, {"a.jpg": whole}, unlabelled_path=tmp_path / "images")
    broken = open_data(contents)
    limited = open_data({"large.jpg": whole}, image_loading_config={"max_pixels": 1000})
    texts = [
        error_of(Letterbox, 640.5),
        error_of(Letterbox, position="centre"),
        error_of(Normalize, mean=(0.5, 0.5)),
        error_of(Targets, thresh_min=0.7, thresh_max=0.3),
        error_of(JpegNoise, worst=90, best=40),
        error_of(RandomRotate, degrees=200),
        error_of(Decode, scaled="fast"),
        error_of(DensePage(np.zeros(3, np.uint8)).pixels),
        *(error_of(broken.__getitem__, index) for index in range(len(broken))),
        error_of(limited.__getitem__, 0),
        error_of(open_data, {}, {"gone.jpg": {"words": {}}}),
        error_of(open_data, {"a.jpg": whole}, {"../a.jpg": {"words": {}}}),
        error_of(open_data, {"a.jpg": whole}, {"a.jpg": {"words": {"1": {"points": [[1, 2]]}}}}),
        error_of(open_data, {"a.jpg": whole}, on_bad_sample="ignore"),
        labelled,
        error_of(OCRDataset, tmp_path / "nowhere", None, DBTransforms([])),
    ]
    snapshot("pipeline_errors", "\n".join(texts))


def test_the_wording_of_the_path_that_printing_a_dataset_shows(tmp_path, open_data, snapshot):
    steps = [Letterbox(64), TextAwareCrop(), RandomRotate(), ColourJitter(), Normalize()]
    snapshot("path", f"{open_data({'a.jpg': encoded(60, 40)}, transform=DBTransforms(steps))!r}")
