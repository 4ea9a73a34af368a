"""Small pages with all that makes a conversion difficult, and the few lines that convert them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ocr.datasets import DBTransforms, OCRDataset
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.tools.convert.convert import Converted, Verified, convert_split, verify_split
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.settings import ConvertSettings

SIDE = 64
# Upper case, folders, more than one dot, quotes, brackets, letters of other alphabets, and the key of another page.
NAMES = (
    "b.jpg",
    "2024/05/B.JPG",
    "page.1.of.2.jpeg",
    "it's [a] bill, 50 %.png",
    "영수증/ü.jpg",
    "00000000.png",
    "a.jpg",
)
TEXTS = ("total", None, "half a pair \ud83d", 'quoted "text"', "5 €")


def write_pages(data: Path, names: tuple[str, ...] = NAMES, split: str = "val") -> Path:
    """Noise with two words a page; every third is EXIF-rotated. The order of the annotation is none of the names'."""
    rng = np.random.default_rng(len(names))
    pages = {}
    for number, name in enumerate(names):
        file = data / "images" / split / name
        file.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(50, 90, 2).tolist()
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6 if number % 3 == 1 else 1
        image.save(file, exif=exif)
        words = {}
        for word, (x, y) in enumerate(rng.uniform(2, 20, (2, 2)).tolist()):
            points = [[x, y], [x + 18, y], [x + 18, y + 11.3], [x, y + 11.3]]
            text = TEXTS[(number + word) % len(TEXTS)]
            words[f"{word:04d}"] = {"points": points, "illegibility": word == number % 4}
            words[f"{word:04d}"] |= {"transcription": text} if text is not None else {}
        pages[name] = {"words": words}
    write_annotation(data, pages, split)
    return data


def read_annotation(data: Path, split: str = "val") -> dict[str, Any]:
    pages: dict[str, Any] = json.loads((data / "jsons" / f"{split}.json").read_text())["images"]
    return pages


def write_annotation(data: Path, pages: dict[str, Any], split: str = "val") -> None:
    (data / "jsons").mkdir(exist_ok=True)
    (data / "jsons" / f"{split}.json").write_text(json.dumps({"images": pages}))


def page_file(data: Path, number: int) -> Path:
    return data / "images" / "val" / NAMES[number]


def edit_page(data: Path, number: int) -> None:
    """Other pixels under the same name."""
    with Image.open(page_file(data, number)) as image:
        image.transpose(Image.Transpose.ROTATE_180).save(page_file(data, number))


def edit_word(data: Path, number: int) -> None:
    """One coordinate, in its third decimal."""
    pages = read_annotation(data)
    pages[NAMES[number]]["words"]["0001"]["points"][0][0] += 0.001
    write_annotation(data, pages)


def transforms(size: int = SIDE) -> DBTransforms:
    return DBTransforms([Letterbox(size), Normalize()], normalize="device")


def open_pages(data: Path, size: int = SIDE, **settings: Any) -> OCRDataset:
    return OCRDataset(data / "images" / "val", data / "jsons" / "val.json", transforms(size), **settings)


def convert(data: Path, out: Path, size: int = SIDE, on_bad_sample: str = "raise", **settings: Any) -> Converted:
    dataset, wanted = open_pages(data, size, on_bad_sample=on_bad_sample), ConvertSettings(**settings)
    return convert_split(make_plan(dataset, "val", out, wanted), wanted, show_progress=False)


def verify(data: Path, out: Path, size: int = SIDE, **settings: Any) -> Verified:
    return verify_split(open_pages(data, size), "val", out, ConvertSettings(**settings), show_progress=False)


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, hidden files included."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
