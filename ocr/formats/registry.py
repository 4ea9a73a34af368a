"""All annotation formats: how each is recognised, read and written. A new format is one file and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ocr.formats.alto import read_alto, sniff_alto, write_alto_page
from ocr.formats.annotation import Page
from ocr.formats.coco import coco_categories, read_coco, sniff_coco, write_coco
from ocr.formats.curved_text import parse_ctw1500, parse_total_text
from ocr.formats.cvat import cvat_categories, read_cvat, sniff_cvat, write_cvat
from ocr.formats.detectors import (
    doctr_categories,
    read_doctr,
    read_mmocr,
    read_paddle,
    sniff_doctr,
    sniff_mmocr,
    sniff_paddle,
    write_mmocr,
    write_paddle,
)
from ocr.formats.document_sets import (
    read_cord,
    read_funsd,
    read_wildreceipt,
    sniff_cord,
    sniff_funsd,
    sniff_wildreceipt,
)
from ocr.formats.export import Export
from ocr.formats.icdar import parse_icdar2013, parse_icdar2015, parse_td500
from ocr.formats.label_studio import (
    label_studio_categories,
    read_label_studio,
    sniff_label_studio,
    write_label_studio,
)
from ocr.formats.labelme import labelme_categories, read_labelme, sniff_labelme, write_labelme_page
from ocr.formats.native import native_text, read_native, sniff_native
from ocr.formats.page_builder import PageBuilder, lines_reader
from ocr.formats.page_xml import read_page_xml, sniff_page_xml
from ocr.formats.pascal_voc import read_voc, sniff_voc, voc_categories, write_voc_page
from ocr.formats.scene_text_sets import (
    read_hiertext,
    read_lsvt,
    read_rects,
    sniff_hiertext,
    sniff_lsvt,
    sniff_rects,
)
from ocr.formats.via import read_via, sniff_via, via_categories, write_via
from ocr.formats.yolo import read_yolo, write_data_file, write_yolo_page, yolo_categories


@dataclass(frozen=True, slots=True)
class Format:
    """One format: how to tell it, read it and write it."""

    about: str
    read: Callable[[PageBuilder], None]
    content: Literal["text", "json", "xml"] = "text"
    """What the file holds: the reader gets the value of JSON and the first element of XML besides the text."""
    sniff: Callable[[Any], bool] | None = None
    """Whether a JSON value, the name of an XML's first element, or a whole text is of this format; None: its lines are
    compared with other formats, in `ocr.formats.detect`."""
    suffixes: tuple[str, ...] = ()
    """Of a format with one file per image: how their names end in a folder."""
    categories: Callable[[PageBuilder], Iterable[str]] | None = None
    """The categories in a file, for formats that have some which are not text."""
    write: Callable[[Export], Iterator[str]] | None = None
    """The parts of the one file with all pages."""
    write_page: Callable[[str, Page, Export], str] | None = None
    """The file of one page, of a format with one file per image."""
    write_more: Callable[[Export], tuple[Path, str]] | None = None
    """A file that is not a page's, and its content."""
    lacks: tuple[str, ...] = ()
    """The fields of a word that are lost when it is written."""
    labels_may_be_texts: bool = False
    """Whether people write texts where the format has categories."""
    unlabelled_are_empty: bool = False
    """Whether an image without a file is one without text."""


_OUTLINES_ONLY = ("text", "language", "orientation", "note")
FORMATS = {
    "native": Format(
        'one JSON file: {"images": {"a.jpg": {"words": {"0001": {"points": [[x, y], ...]}}}}}',
        read_native,
        "json",
        sniff_native,
        write=lambda export: native_text(export.pages, export.scores),
    ),
    "icdar2015": Format(
        "a text file an image: x1,y1,x2,y2,x3,y3,x4,y4,text", lines_reader(parse_icdar2015), suffixes=(".txt",)
    ),
    "icdar2013": Format(
        'a text file an image: left, top, right, bottom, "text"', lines_reader(parse_icdar2013), suffixes=(".txt",)
    ),
    "total_text": Format(
        "a text file an image: x: [[...]], y: [[...]], ornt: [...], transcriptions: [...]",
        lines_reader(parse_total_text),
        suffixes=(".txt",),
    ),
    "ctw1500": Format(
        "an XML or text file an image: x1,y1,...,x14,y14,####text",
        lines_reader(parse_ctw1500),
        suffixes=(".txt", ".xml"),
    ),
    "coco": Format(
        "one JSON file with polygon segmentation, COCO-Text and TextOCR included",
        read_coco,
        "json",
        sniff_coco,
        categories=coco_categories,
        write=write_coco,
    ),
    "paddle": Format(
        "one text file: path<TAB>[{...}, ...], as PaddleOCR has it",
        read_paddle,
        sniff=sniff_paddle,
        write=write_paddle,
        lacks=("language", "orientation", "note"),
    ),
    "yolo": Format(
        "a text file an image: class and shares of the page, of ultralytics, boxes and polygons; classes in data.yaml",
        read_yolo,
        suffixes=(".txt",),
        categories=yolo_categories,
        write_page=write_yolo_page,
        write_more=write_data_file,
        lacks=_OUTLINES_ONLY,
        unlabelled_are_empty=True,
    ),
    "label_studio": Format(
        "one JSON file: the tasks that Label Studio exports",
        read_label_studio,
        "json",
        sniff_label_studio,
        categories=label_studio_categories,
        write=write_label_studio,
    ),
    "cvat": Format(
        "one XML file: CVAT for images 1.1",
        read_cvat,
        "xml",
        sniff_cvat,
        categories=cvat_categories,
        write=write_cvat,
    ),
    "labelme": Format(
        "a JSON file an image: LabelMe, X-AnyLabeling",
        read_labelme,
        "json",
        sniff_labelme,
        suffixes=(".json",),
        categories=labelme_categories,
        write_page=write_labelme_page,
        labels_may_be_texts=True,
    ),
    "via": Format(
        "one JSON file: VGG Image Annotator 1 and 2",
        read_via,
        "json",
        sniff_via,
        categories=via_categories,
        write=write_via,
    ),
    "mmocr": Format(
        "one JSON file: MMOCR 1.x, data_list",
        read_mmocr,
        "json",
        sniff_mmocr,
        write=write_mmocr,
        lacks=("language", "orientation", "note"),
    ),
    "lsvt": Format("one JSON file: LSVT and ArT", read_lsvt, "json", sniff_lsvt),
    "rects": Format(
        "a JSON file an image: ReCTS, lines and chars", read_rects, "json", sniff_rects, suffixes=(".json",)
    ),
    "doctr": Format("one JSON file: polygons by image", read_doctr, "json", sniff_doctr, categories=doctr_categories),
    "funsd": Format("a JSON file an image: form[].words[].box", read_funsd, "json", sniff_funsd, suffixes=(".json",)),
    "cord": Format(
        "a JSON file an image: valid_line[].words[].quad", read_cord, "json", sniff_cord, suffixes=(".json",)
    ),
    "wildreceipt": Format("one text file: a JSON object per line", read_wildreceipt, sniff=sniff_wildreceipt),
    "hiertext": Format("one JSON file: paragraphs, lines and words", read_hiertext, "json", sniff_hiertext),
    "page_xml": Format("an XML file an image: PAGE", read_page_xml, "xml", sniff_page_xml, suffixes=(".xml",)),
    "alto": Format(
        "an XML file an image: ALTO 2 to 4, in pixels, mm10 or inch1200",
        read_alto,
        "xml",
        sniff_alto,
        suffixes=(".xml",),
        write_page=write_alto_page,
        lacks=("orientation", "note"),
    ),
    "td500": Format(
        "a text file an image: index difficult x y width height angle",
        lines_reader(parse_td500),
        suffixes=(".gt", ".txt"),
    ),
    "pascal_voc": Format(
        "an XML file an image: Pascal VOC",
        read_voc,
        "xml",
        sniff_voc,
        suffixes=(".xml",),
        categories=voc_categories,
        write_page=write_voc_page,
        lacks=_OUTLINES_ONLY,
    ),
}
