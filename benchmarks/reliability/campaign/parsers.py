"""Every parser of files that others write: how it is called, with which examples, and what its answer must be."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reliability.campaign.cases import CLASSES, FindingError, Parser
from benchmarks.reliability.campaign.pages import (
    INDEX,
    MAX_PIXELS,
    RECEIPT,
    SETTINGS,
    SHARD,
    SHARDS,
    TINY,
    encoded,
    images,
    map_bytes,
    noise,
    shard_bytes,
)
from ocr.deploy.detector import Detector
from ocr.deploy.inputs import pages_of
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.prediction_log import NAME as LOG
from ocr.deploy.prediction_log import PredictionLog
from ocr.deploy.runtimes import Model
from ocr.deploy.runtimes.tensorrt_runtime import pack, unpack
from ocr.formats import read_annotations
from ocr.formats.annotation import Page
from ocr.formats.maps import read_fingerprint, read_maps
from ocr.formats.native import looks_native, stream_native
from ocr.formats.validate import to_polygons
from ocr.models.load import read_detector, save_detector
from ocr.models.weights import read_weights
from ocr.pipeline.decode import Decode, check_pixel_count, size_in_header
from ocr.pipeline.dense import DensePage
from ocr.pipeline.sample import NO_POLYGONS, Sample
from ocr.pipeline.targets import ON_DISK
from ocr.report.runs import read_run
from ocr.shards.source import ShardSource, open_shards
from ocr.shards.storage import Storage
from ocr.shards.writer import TarWriter
from ocr.tools.convert.shard_receipt import ShardReceipt

TOKENS: dict[str, tuple[bytes, ...]] = {
    "xml": (b'<box label="text" xtl="', b"<polygon points=", b"<attribute name=", b"<image id=", b' points="1,1 2,2"'),
    "npy": (
        *(b"'descr': '<f4'", b"'|O'", b"'shape': (-1, 2)", b"(1,)", b"True", b"\x93NUMPY", b"'<U9'", b"(" * 300),
        *(b"'shape': (99999999999,)", b"[('a', '<i4')]", b"#", b"'''", b"\\", b"-" * 3000, b"1e9"),
    ),
    "zip": (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"\x0e\x00", b"\x0c\x00", b"\x5d\x00", b".npy"),
    "jpeg": (b"\xff\xd8", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xdb", b"\xff\xda", b"\xff\xe1", b"\xff\xd9"),
    "png": (b"IHDR", b"IDAT", b"PLTE", b"tRNS", b"iCCP", b"eXIf", b"zTXt", b"acTL", b"fcTL", b"IEND"),
    "webp": (b"VP8X", b"VP8L", b"VP8 ", b"ALPH", b"ANIM", b"ANMF", b"EXIF"),
    "tiff": (b"\0\x01\x03\0", b"\x01\x01\x04\0", b"\x12\x01\x03\0", b"MM\0*", b"II+\0", b"\x42\x01", b"\x44\x01"),
    "jpeg2000": (b"\xff\x4f\xff\x51", b"\xff\x52", b"\xff\x5c", b"\xff\x90", b"jp2h", b"ihdr", b"colr", b"jp2c"),
    "pdf": (b"/Page", b"/Kids", b"/Count 99999", b"/MediaBox [0 0 1e9 1e9]", b"stream", b"endobj", b"/Length", b"xref"),
}


def must(is_right: bool, why: str) -> None:
    if not is_right:
        raise FindingError("crash", why)


# -- annotations: every format by its name and recognised, and a large native file page by page

ANNOTATIONS: dict[str, list[str]] = json.loads(Path(__file__).with_name("annotations.json").read_text("utf-8"))


def kind_of(format: str) -> str:
    """Of a format; wildreceipt has a line of JSON per page."""
    first = "" if format == "wildreceipt" else ANNOTATIONS[format][0][0]
    return {"{": "json", "[": "json", "<": "xml"}.get(first, "text")


def suffix_of(format: str) -> str:
    return ".gt" if format == "td500" else {"json": ".json", "xml": ".xml", "text": ".txt"}[kind_of(format)]


def check_pages(pages: dict[str, Page], where: Path) -> None:
    for name, page in pages.items():
        polygons = to_polygons(page, f"{where}: {name}")
        must(bool(np.isfinite(polygons.vertices).all()) and len(polygons) == len(page.words), f"not checked: {page}")


def parse_annotation(asked: str, path: Path) -> None:
    check_pages(read_annotations(path, asked).pages, path)


def parse_stream(path: Path) -> bool:
    """As a native JSON beyond 64 MB is read."""
    if looks_native(path):
        check_pages(dict(stream_native(path)), path)
        return True
    return False


def annotations(*formats: str) -> list[bytes]:
    return [text.encode() for format in formats for text in ANNOTATIONS[format]]


# -- shards, and receipts of a conversion


def read_all(source: ShardSource) -> None:
    """Ask everything about every sample that a dataset asks."""
    for index in range(len(source)):
        page = source.read(index)
        source.state(index), source.size(index, MAX_PIXELS)
        must(bool(np.isfinite(page.polygons.vertices).all()), "polygons that are not finite")
        if page.lazy is not None:
            check_pixel_count(page.lazy.size, page.path, MAX_PIXELS)
            page.unpacked()


def parse_index(kind: str, path: Path) -> None:
    shard = path.with_name(SHARD)
    if not shard.exists():
        shard.write_bytes(shard_bytes(kind)[SHARD])
    read_all(open_shards([str(shard)], Storage(path.with_name("kept"))))


def parse_tar(path: Path) -> None:
    read_all(open_shards([str(path)], Storage(path.with_name("kept"))))


@cache
def members(kind: str) -> dict[str, bytes]:
    """Extension and bytes of the members of the first sample."""
    with tarfile.open(fileobj=io.BytesIO(shard_bytes(kind)[SHARD])) as tar:
        first = [one for one in tar if one.name.startswith("00000000.")]
        return {one.name.partition(".")[2]: tar.extractfile(one).read() for one in first}  # type: ignore[union-attr]


def member(kind: str, name: str) -> list[bytes]:
    return [members(kind)[name]]


def shard_files(name: str, kinds: Iterable[str] = SHARDS) -> list[bytes]:
    return [shard_bytes(kind)[name] for kind in kinds]


def parse_member(kind: str, extension: str, path: Path) -> None:
    """A shard without an index, one of whose members is damaged."""
    damaged = members(kind) | {extension: path.read_bytes()}
    path.with_name(SHARD).write_bytes(tar_of(damaged))
    parse_tar(path.with_name(SHARD))


def tar_of(*samples: dict[str, bytes]) -> bytes:
    """A shard of samples: bytes by extension."""
    stream = io.BytesIO()
    tar = TarWriter(stream)
    for number, sample in enumerate(samples):
        tar.add(f"{number:08d}", sample)
    tar.end()
    return stream.getvalue()


def tar_examples() -> list[bytes]:
    page = {"jpg": encoded("JPEG"), "json": b'{"polygons": [[[1, 2], [9, 2], [9, 8]]]}'}
    return [tar_of(page, page), *shard_files(SHARD)]


def parse_receipt(path: Path) -> bool:
    receipt = ShardReceipt.from_json(path.read_bytes())
    return receipt is not None and bool(receipt.to_json())


# -- what is kept between runs


def parse_dense(path: Path) -> None:
    page = DensePage(np.frombuffer(path.read_bytes(), np.uint8))
    page.check()
    # A blank page of any size takes a few bytes: whoever unpacks one asks for its size before.
    check_pixel_count(page.size, "page", MAX_PIXELS)
    must(page.pixels().shape[1::-1] == page.size, "a page of another size than it says")


def dense_examples() -> list[bytes]:
    framed = np.zeros((60, 50, 3), np.uint8)
    framed[3:40, 2:44] = noise(37, 42)
    gray = np.repeat(noise(30, 30, 1), 3, axis=2)
    return [DensePage.pack(page).data.tobytes() for page in (noise(), framed, gray)]


# -- stored maps


def parse_maps(path: Path) -> None:
    read_fingerprint(path)
    _, found = read_maps(path, ON_DISK, size=(32, 24))
    read_maps(path, ON_DISK)
    must(found is not None and all(found[name].shape == (24, 32) for name in ON_DISK), f"{found}")


# -- images and PDFs

decode = Decode(max_pixels=MAX_PIXELS)


def parse_image(path: Path) -> None:
    data = path.read_bytes()
    page = decode(Sample(0, path.name, str(path), NO_POLYGONS, annotated=False, encoded=data))
    is_page = page.image.ndim == 3 and page.image.shape[2] == 3 and page.image.dtype == np.uint8
    must(is_page and page.image.shape[1::-1] == page.shape, f"{page.image.shape} of a page of {page.shape}")
    told = size_in_header(io.BytesIO(data), str(path), MAX_PIXELS)
    must(told == page.shape, f"{told} in the header of a page of {page.shape}")


def parse_pdf(path: Path) -> None:
    for _, page in zip(range(3), pages_of(path), strict=False):
        height, width = page.read(decode).image.shape[:2]
        must(height * width <= MAX_PIXELS, f"{width} x {height} pixels")


# -- models


@cache
def model_bytes(name: str) -> list[bytes]:
    """A detector with as little in it as there can be, so that most changes are changes of its head."""
    tiny = torch.nn.Linear(2, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if name.endswith("ckpt"):
            weights = {f"model.{key}": value for key, value in tiny.state_dict().items()}
            torch.save({"state_dict": weights, "architecture": TINY, "detector": SETTINGS.to_dict()}, path)
        else:
            save_detector(path, tiny, SETTINGS)  # type: ignore[arg-type]
        return [path.read_bytes()]


def parse_model(path: Path) -> None:
    stored = read_detector(path, "model")
    if stored.settings is not None:
        stored.settings.to_json()
    read_weights(path)


def parse_settings(path: Path) -> None:
    """Everything that a Detector makes of the settings of a file."""
    export = json.dumps({"format": "onnx", "precision": "fp32", "check": {}, "versions": {}})
    metadata = {"glyphfeed": path.read_bytes().decode(errors="replace"), "glyphfeed.export": export}
    Detector(Model(lambda pages: pages, ModelInfo.from_metadata(metadata, "a.onnx")))  # type: ignore[arg-type,return-value]


# -- what commands read again: the config and the figures of a run, and the log of `predict`

RUN = {
    "csv/version_0/metrics.csv": b"epoch,step,train/loss,val/hmean,seconds/data_wait\n0,3,1.5,,\n0,3,,0.5,0.1\n",
    ".hydra/config.yaml": b"trainer:\n  max_epochs: 3\ndataset_base_path: ${oc.env:HOME}\nsizes: [1, 2]\n",
}
FOUND_WITH = {"checkpoint": "abc", "size": 640}


def parse_run(name: str, path: Path) -> None:
    run = Path(str(path).removesuffix(f"/{name}"))
    for other in RUN.keys() - {name}:
        (run / other).parent.mkdir(parents=True, exist_ok=True)
        (run / other).write_bytes(RUN[other])
    read_run(run)


def log_example() -> list[bytes]:
    pages = [{"name": f"{at}.jpg", "stamp": [1, at], "words": {"0001": {"points": [[1, 2]]}}} for at in range(3)]
    return [b"".join(json.dumps(line).encode() + b"\n" for line in (FOUND_WITH, *pages))]


def parse_log(path: Path) -> None:
    with PredictionLog(path.parent, FOUND_WITH) as log:
        for name, _ in log.pages():
            log.has(name, [1, 1])


# -- the table

Examples = Callable[[], Sequence[bytes]]


def add(name: str, about: str, file: str, examples: Examples, parse: Callable[[Path], Any], **more: Any) -> None:
    name = name.replace("_", "-")
    CLASSES[name] = Parser(name, about, examples, parse, file, **more)


for _name in ANNOTATIONS:
    _more = {"kind": kind_of(_name), "share": 22, "tokens": TOKENS.get(kind_of(_name), ())}
    _calls = partial(annotations, _name), partial(parse_annotation, _name)
    add(f"annotation-{_name}", f"annotation files, {_name}", f"a{suffix_of(_name)}", *_calls, **_more)
for _kind, _suffix in {"json": "json", "xml": "xml", "text": "txt"}.items():
    _more = {"kind": _kind, "share": 40, "tokens": TOKENS.get(_kind, ())}
    _all = partial(annotations, *(name for name in ANNOTATIONS if kind_of(name) == _kind))
    _about = f"annotation files whose format is recognised, {_kind}"
    add(f"annotation-auto-{_kind}", _about, f"a.{_suffix}", _all, partial(parse_annotation, "auto"), **_more)
_native = partial(annotations, "native")
add("annotation-stream", "native annotation, page by page", "a.json", _native, parse_stream, kind="json", share=22)

for _kind in SHARDS:
    _calls = partial(shard_files, INDEX, [_kind]), partial(parse_index, _kind)
    add(f"shard-index-{_kind}", f"index of {_kind} shards", INDEX, *_calls, kind="json", named="FOLDER")
    for _name in {"raw": ["json"], "ready": ["json", "image.npy"]}[_kind]:
        _is_json = _name == "json"
        _about = f"JSON in {_kind} shards" if _is_json else f"arrays in {_kind} shards, {_name}"
        _more = {"kind": "json"} if _is_json else {"tokens": TOKENS["npy"]}
        _calls = partial(member, _kind, _name), partial(parse_member, _kind, _name)
        add(f"shard-{_kind}-{_name.partition('.')[0]}", _about, "member", *_calls, named=SHARD, **_more)
add("shard-tar", "tar files without an index", SHARD, tar_examples, parse_tar, share=30)
add("shard-receipt", "receipts of a conversion", RECEIPT, partial(shard_files, RECEIPT), parse_receipt, kind="json")

add("cache-dense-page", "dense pages", "page", dense_examples, parse_dense, share=30, named=None)

_archives = lambda: [map_bytes(False), map_bytes(True)]  # noqa: E731
add("maps-file", "files of stored maps", "a.npz", _archives, parse_maps, share=40, tokens=TOKENS["zip"])

for _name in images():
    _calls = partial(images().__getitem__, _name), parse_image
    add(f"image-{_name}", f"images, {_name}", f"a.{_name}", *_calls, share=40, tokens=TOKENS.get(_name, ()))
_pdfs = lambda: [encoded("PDF", noise(60, 80)), encoded("PDF", noise(30, 20), noise(20, 30))]  # noqa: E731
add("pdf", "PDFs", "a.pdf", _pdfs, parse_pdf, share=15, tokens=TOKENS["pdf"], needs=("pypdfium2",))

for _name in ("safetensors", "ckpt"):
    add(f"model-{_name}", f"detector files, .{_name}", f"a.{_name}", partial(model_bytes, f"a.{_name}"), parse_model)
_texts, _heads = lambda: [SETTINGS.to_json().encode()], lambda: [pack(ModelInfo(SETTINGS, "tensorrt"), b"engine")]
add("model-settings", "settings in a model file", "a.onnx", _texts, parse_settings, kind="json")
add(
    "model-engine",
    "head of a TensorRT engine",
    "a.engine",
    _heads,
    lambda path: unpack(path.read_bytes(), path.name),
    share=15,
)

for _name in RUN:
    _calls = lambda name=_name: [RUN[name]], partial(parse_run, _name)
    add(f"run-{Path(_name).stem}", f"a run, {Path(_name).name}", f"run/{_name}", *_calls, kind="text", named="run")
add("prediction-log", "the log of predictions", LOG, log_example, parse_log, kind="text", named="FOLDER")
