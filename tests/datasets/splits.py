"""The synthetic pages as datasets of a folder, as shards, and from an HTTP server."""

import contextlib
import functools
import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ocr.datasets import DBTransforms, OCRDataset
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.page_index import content_digest
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip, TextAwareCrop
from ocr.shards.index import RAW, SampleRows, SampleRowsWriter, Shard, ShardIndex, StoredSample, shard_name
from ocr.shards.writer import TarWriter
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings

SIZE = 96
FIXED = DBTransforms([Letterbox(SIZE), Normalize()])
DEVICE = DBTransforms([Letterbox(SIZE), Normalize()], normalize="device")
RANDOM = DBTransforms([Letterbox(SIZE), TextAwareCrop(), RandomFlip(), ColourJitter(), Normalize()])


def folder(data: Path, split: str, transform: DBTransforms = FIXED, **settings: Any) -> OCRDataset:
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", transform, **settings)


def without_paths(batches: Any) -> list[Any]:
    """Batches of shards and of folders differ in the paths of their pages only."""
    return [{name: value for name, value in batch.items() if name != "image_path"} for batch in batches]


def batches(dataset: Any, size: int = 4, workers: int = 0, **settings: Any) -> list[Any]:
    return without_paths(Loader(dataset, size, workers, **settings))


def names(batches: Any) -> list[str]:
    return [name for batch in batches for name in batch["image_filename"]]


def converted(dataset: OCRDataset, out: Path, split: str = "val", **settings: Any) -> str:
    """The pattern of the shards that `ocr convert` makes of a split."""
    assert convert({split: dataset}, str(out), ConvertSettings(**settings)) == 0
    return f"{out}/{split}-*.tar"


def write_shards(dataset: OCRDataset, out: Path, split: str, per_shard: int = 3) -> Path:
    """Raw shards as they are specified, written by hand."""
    out.mkdir(parents=True, exist_ok=True)
    shards, writer = [], SampleRowsWriter()
    for number, first in enumerate(range(0, len(dataset), per_shard)):
        indices = range(first, min(first + per_shard, len(dataset)))
        with (out / shard_name(split, number)).open("wb") as stream:
            tar = TarWriter(stream)
            for index in indices:
                writer.append(_write_sample(tar, dataset, index, number))
            sha256 = tar.end()
            shards.append(Shard(shard_name(split, number), tar.size, sha256, len(indices)))
    index_ = ShardIndex(split, RAW, True, "", tuple(shards), SampleRows.of(writer.table({})))
    (out / f"{split}-index.json").write_text("".join(index_.json_parts()))
    return out


def _write_sample(tar: TarWriter, dataset: OCRDataset, index: int, shard: int) -> StoredSample:
    page, key = dataset.source.read(index), f"{index:08d}"
    noted = {
        "filename": page.filename,
        "annotated": True,
        "polygons": [polygon.tolist() for polygon in page.polygons],
        "ignore": page.polygons.ignore.tolist(),
        "texts": list(page.polygons.texts),
        "size": page.claimed_size,
    }
    members = tar.add(key, {"jpg": page.encoded, "json": json.dumps(noted).encode()})
    annotation = dataset.source.state(index).annotation.hex()
    return StoredSample(key, page.filename, shard, members, content_digest(page.encoded).hex(), annotation)


def npy(array: np.ndarray) -> bytes:
    saved = io.BytesIO()
    np.save(saved, array, allow_pickle=False)
    return saved.getvalue()


def write_tar(path: Path, samples: list[dict[str, Any]]) -> str:
    """A shard without an index; what each sample has by extension: bytes, an array, or anything JSON."""
    with path.open("wb") as stream:
        tar = TarWriter(stream)
        for number, sample in enumerate(samples):
            tar.add(f"{number:08d}", {extension: as_bytes(content) for extension, content in sample.items()})
        tar.end()
    return str(path)


def as_bytes(content: Any) -> bytes:
    """Bytes as they are, an array as .npy, anything else as JSON."""
    if isinstance(content, bytes):
        return content
    return npy(content) if isinstance(content, np.ndarray) else json.dumps(content).encode()


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and notes what is asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path.rpartition("/")[2])
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serve(place: Path, files: type[Files] = Files) -> Iterator[str]:
    handler = functools.partial(files, directory=str(place))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
