"""Annotation files: every format, asked for by its name and recognised by its content, and a large one as a stream."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from format_examples import CONTENTS, JSON, SUFFIXES, XML

from ocr.errors import AnnotationError
from ocr.formats import FORMATS, read_annotations
from ocr.formats.annotation import Page
from ocr.formats.json_stream import JsonStream
from ocr.formats.native import looks_native, stream_native
from ocr.formats.validate import to_polygons
from tests.campaign.cases import CrashError, Parser, register

XML_TOKENS = (b'<box label="text" xtl="', b"<polygon points=", b"<attribute name=", b"<image id=", b' points="1,1 2,2"')
ALSO = {
    "coco": [b'{"images":{"1":{"id":1,"file_name":"a.jpg"}},"annotations":[{"image_id":1,"bbox":[1,2,30,40]}]}'],
    "label_studio": [b'[{"id":1,"image":"a.jpg","label":[{"x":1,"y":2,"width":3,"height":4,"original_width":9}]}]'],
    "via": [b'{"_via_img_metadata":{"a.jpg1":{"filename":"a.jpg","regions":{}}},"_via_settings":{}}'],
    "ctw1500": [b"<Annotations><image><box height='9' left='1' top='2' width='8'><label>x</label></box></image>"],
    "total_text": [b"1,2,30,2,30,20,1,20,word\n"],
}


def check_pages(pages: dict[str, Page], where: str) -> bool:
    """Whether the words of all pages are polygons; AnnotationErrors must name the page."""
    for name, page in pages.items():
        try:
            polygons = to_polygons(page, f"{where}: {name}")
        except AnnotationError as error:
            if where not in str(error):
                raise CrashError(f"the error does not name the file: {error}") from error
            return False
        if not np.isfinite(polygons.vertices).all() or len(polygons) != len(page.words):
            raise CrashError(f"words that were not validated: {page}")
    return True


def parse(format: str, asked: str, data: bytes, folder: Path) -> bool:
    file = folder / f"a{SUFFIXES.get(format, '.txt')}"
    file.write_bytes(data)
    try:
        found = read_annotations(file, asked)
    except AnnotationError as error:
        if file.name not in str(error):
            raise CrashError(f"the error does not name the file: {error}") from error
        return False
    finally:
        file.unlink()
    return check_pages(found.pages, str(file))


def parse_stream(data: bytes, folder: Path) -> bool:
    """As a native JSON beyond 64 MB is read: its pages one by one."""
    file = folder / "a.json"
    file.write_bytes(data)
    try:
        return looks_native(file) and check_pages(dict(stream_native(file)), str(file))
    except AnnotationError as error:
        if file.name not in str(error):
            raise CrashError(f"the error does not name the file: {error}") from error
        return False
    finally:
        file.unlink()


def examples(*formats: str) -> list[bytes]:
    return [data for format in formats for data in (CONTENTS[format].encode(), *ALSO.get(format, []))]


def module_of(format: str) -> str:
    return f"ocr/formats/{FORMATS[format].parse.__module__.rpartition('.')[2]}.py"


for _format in FORMATS:
    _kind = "json" if _format in JSON else "xml" if _format in XML else "text"
    register(
        Parser(
            f"annotation-{_format.replace('_', '-')}",
            f"annotation files, {_format}",
            partial(examples, _format),
            partial(parse, _format, _format),
            ("ocr/formats/",),
            _kind,
            share=22,
            tokens=XML_TOKENS if _format in XML else (),
        )
    )
for _kind, _suffix, _formats in (
    ("json", "native", [*JSON]),
    ("xml", "cvat", [*XML]),
    ("text", "icdar2015", [format for format in FORMATS if format not in (*JSON, *XML)]),
):
    register(
        Parser(
            f"annotation-auto-{_kind}",
            f"annotation files whose format is recognised, {_kind}",
            partial(examples, *_formats),
            partial(parse, _suffix, "auto"),
            ("ocr/formats/",),
            _kind,
            share=40,
            tokens=XML_TOKENS if _kind == "xml" else (),
        )
    )
register(
    Parser(
        "annotation-stream",
        "native annotation, page by page",
        partial(examples, "native"),
        parse_stream,
        (JsonStream.__module__.replace(".", "/"), "ocr/formats/native"),
        "json",
        share=22,
    )
)
