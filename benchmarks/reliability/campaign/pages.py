"""Tiny pages, caches, shards, maps and models that the classes damage; what is expensive is made once per process."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.reliability.campaign.cases import Case, FindingError
from ocr.cache.store import close_store
from ocr.datasets import DBTransforms, OCRDataset
from ocr.formats.maps import write_maps
from ocr.models.settings import DetectorSettings
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import ON_DISK
from ocr.tools.convert.convert import convert_split
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import IndexReceipts, done_file, read_index, write_done

SIDE, MAX_PIXELS = 64, 1_000_000
# More than one dot, folders, quotes, brackets, letters of other alphabets, the key of another page, several codecs.
NAMES = ("b.jpg", "01.bmp", "2024/05/B.JPG", "page.1.of.2.jpeg", "04.bmp", "it's [a] bill, 50 %.png", "영수증/ü.jpg")
NAMES += ("00000000.png", "a.jpg", "09.png", "10.jpg", "11.png")
SHARDS: dict[str, dict[str, Any]] = {"raw": {}, "ready": {"ready": True}}
SHARD, INDEX = "val-000000.tar", "val-index.json"
RECEIPT = done_file(Path(SHARD)).name
TINY = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
SETTINGS = DetectorSettings(
    TINY,
    letterbox={"size": SIDE, "shape": "square"},
    normalization={"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]},
    targets={"shrink_ratio": 0.4},
    boxes={"thresh": 0.5, "box_thresh": 0.5, "min_size": 1, "unclip_ratio": 1.5, "use_polygon": False},
)


def noise(height: int = 40, width: int = 48, channels: int = 3) -> np.ndarray:
    """A small page, the same each time."""
    return np.random.default_rng(height).integers(0, 256, (height, width, channels), dtype=np.uint8)


def write_pages(data: Path, count: int) -> Path:
    """Noise with two words a page; every third is EXIF-rotated, the sixth has more text than a cache has room for."""
    rng = np.random.default_rng(count)
    pages = {}
    for number, name in enumerate(NAMES[:count]):
        file = data / "images" / "val" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(50, 90, 2).tolist()
        exif = Image.Exif()
        exif[0x0112] = 6 if number % 3 == 1 else 1
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, exif=exif)
        words = {}
        for word, (x, y) in enumerate(rng.uniform(2, 20, (2, 2)).tolist()):
            points = [[x, y], [x + 18, y], [x + 18, y + 11.3], [x, y + 11.3]]
            text = "half a pair \ud83d" if number == word else f"word {word}, 5 €" if number != 5 else "long " * 14_000
            words[f"{word:04d}"] = {"points": points, "illegibility": word == number % 4, "transcription": text}
        pages[name] = {"words": words}
    write_annotation(data, pages)
    return data


def read_annotation(data: Path) -> dict[str, Any]:
    pages: dict[str, Any] = json.loads((data / "jsons" / "val.json").read_text())["images"]
    return pages


def write_annotation(data: Path, pages: dict[str, Any]) -> None:
    (data / "jsons").mkdir(exist_ok=True)
    (data / "jsons" / "val.json").write_text(json.dumps({"images": pages}))


def edit(data: Path, rng: Random) -> None:
    """Another picture, other pixels in as many bytes and as old as before, or another word."""
    action, name = rng.randrange(4), rng.choice(sorted(read_annotation(data)))
    if action == 0:
        repaint(data / "images" / "val" / rng.choice(("01.bmp", "04.bmp")))
    elif action == 1:
        new = noise(rng.randrange(40, 90), rng.randrange(40, 90))
        Image.fromarray(new).save(data / f"new{Path(name).suffix}")
        (data / f"new{Path(name).suffix}").replace(data / "images" / "val" / name)
    else:
        annotation = read_annotation(data)
        word = annotation[name]["words"]["0001"]
        word["points"] = [[x + 1, y] for x, y in word["points"]] if action == 2 else word["points"][:3]
        write_annotation(data, annotation)


def repaint(page: Path) -> None:
    """Other pixels in as many bytes (of a BMP), and the file as old as it was."""
    before, encoded = page.stat(), bytearray(page.read_bytes())
    encoded[-90:-10] = bytes(255 - value for value in encoded[-90:-10])
    page.write_bytes(encoded)
    os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns))


def transforms(normalize: str = "device") -> DBTransforms:
    return DBTransforms([Letterbox(SIDE), Normalize()], normalize=normalize)


def open_pages(data: Path, cached: Path | None = None, **settings: Any) -> OCRDataset:
    """The pages, cached where a folder is given for that."""
    if cached is not None:
        settings = {"cache": "auto", "cache_folder": cached} | settings
    stages = transforms(settings.pop("normalize", "host"))
    return OCRDataset(data / "images" / "val", data / "jsons" / "val.json", stages, **settings)


def items(dataset: Any) -> list[Any]:
    """Without the place of the file, which differs between a folder and its shards."""
    found = (dataset[index] for index in range(len(dataset)))
    return [None if one is None else {key: one[key] for key in one if key != "image_path"} for one in found]


def outcomes(dataset: Any) -> tuple[int, int, int]:
    """Hits, misses and invalid ones of the epoch so far."""
    totals = dataset.ledger.totals()
    return totals["cache_hits"], totals["cache_misses"], totals["cache_invalid"]


@dataclass(frozen=True)
class Prepared:
    """Pages, folders that were made of them, and the samples without a cache."""

    pages: Path
    made: dict[str, Path]
    expected: list[Any]


def pages_only(folder: Path) -> Prepared:
    pages = write_pages(folder / "pages", 12)
    return Prepared(pages, {}, items(open_pages(pages)))


def with_cache(folder: Path) -> Prepared:
    pages, cache = write_pages(folder / "pages", 6), folder / "cache"
    open_pages(pages, cache).fill_cache(threads=1)
    close_store(cache)
    return Prepared(pages, {"cache": cache}, items(open_pages(pages)))


def read_cache(case: Case, dataset: OCRDataset, expected: list[Any] | None = None, is_full: bool = False) -> None:
    """An epoch of a cached dataset: every sample is right, and counted; then the store is closed."""
    expected = case.prepared.expected if expected is None else expected
    case.compare(items(dataset), expected)
    hits, misses, invalid = outcomes(dataset)
    if hits + misses + invalid != len(expected) or (is_full and hits != len(expected)):
        raise FindingError("silent skip", f"{hits} hits, {misses} misses, {invalid} invalid of {len(expected)}")
    case.counts["counted"] += misses + invalid
    assert dataset.cache is not None
    close_store(dataset.cache.root)


def read_twice(case: Case, pages: Path, cached: Path, expected: list[Any] | None = None) -> None:
    """The first run makes what it does not find, the second one finds everything."""
    for is_full in (False, True):
        read_cache(case, open_pages(pages, cached), expected, is_full)


def convert(pages: Path, out: Path, workers: int = 1, **settings: Any) -> Path:
    """Shards of the pages."""
    wanted = ConvertSettings(workers=workers, **{"samples_per_shard": 2} | settings)
    dataset = open_pages(pages, normalize="device")
    convert_split(make_plan(dataset, "val", out, wanted), wanted, show_progress=False)
    return out


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, hidden files included."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@cache
def shard_bytes(kind: str) -> dict[str, bytes]:
    """Shard, index and receipt of two pages."""
    with tempfile.TemporaryDirectory() as folder:
        pages = write_pages(Path(folder) / "pages", 2)
        out = convert(pages, Path(folder) / "out", **SHARDS[kind])
        index = read_index(out / INDEX)
        assert index is not None
        # A conversion that is not finished has a receipt of each shard in place of the index.
        write_done(out / SHARD, IndexReceipts(index)[0])
        return files_of(out)


@cache
def map_bytes(compress: bool) -> bytes:
    """A file of stored maps."""
    maps = {name: np.zeros((24, 32), dtype) for name, dtype in ON_DISK.items()}
    maps[next(iter(maps))][4:9, 3:20] = 1
    with tempfile.TemporaryDirectory() as folder:
        write_maps(Path(folder) / "a.npz", maps, "a fingerprint", compress)
        return (Path(folder) / "a.npz").read_bytes()


def encoded(format: str, *pages: np.ndarray, mode: str = "RGB", **options: Any) -> bytes:
    """Small pages in some format."""
    first, *others = [Image.fromarray(page).convert(mode) for page in pages or (noise(),)]
    stream = io.BytesIO()
    first.save(stream, format, **options, **({"save_all": True, "append_images": others} if others else {}))
    return stream.getvalue()


@cache
def images() -> dict[str, Sequence[bytes]]:
    """Images of all kinds of every codec."""
    turned = Image.Exif()
    turned[0x0112] = 6
    deep, other = io.BytesIO(), 255 - noise()
    Image.fromarray(noise(channels=1)[:, :, 0].astype(np.uint16) << 8).save(deep, "PNG")
    plain = b"P2\n# text\n4 4\n255\n" + b" ".join(b"%d" % value for value in range(16))
    kinds: dict[str, Sequence[dict[str, Any]]] = {
        "JPEG": [{"exif": turned}, {"mode": "L"}, {"mode": "CMYK"}, {"progressive": True}, {"restart_marker_rows": 1}],
        "PNG": [{"exif": turned}, {"mode": "P"}, {"mode": "RGBA"}, {"mode": "1"}],
        "WEBP": [{}, {"lossless": True, "exif": turned}, {"mode": "RGBA"}],
        "TIFF": [{}, {"mode": "1", "compression": "group4"}, {"mode": "L", "tiffinfo": {274: 6}}, {"mode": "P"}]
        + [{"compression": name} for name in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")]
        + [{"big_tiff": True}],
        "BMP": [{}, {"mode": "P"}, {"mode": "1"}, {"mode": "RGBA"}],
        "GIF": [{}, {"mode": "L"}],
        "JPEG2000": [{}, {"mode": "L"}, {"no_jp2": True}],
        "PPM": [{}, {"mode": "L"}, {"mode": "1"}],
    }
    found = {name.lower(): [encoded(name, **options) for options in each] for name, each in kinds.items()}
    found["png"].append(deep.getvalue())
    found["ppm"] += [plain, plain.replace(b"P2", b"P1")]
    for animated in ("webp", "gif"):
        found[animated].append(encoded(animated.upper(), noise(), other))
    return found
