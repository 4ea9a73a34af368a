"""All annotation formats: how each is recognised, parsed and written. A new format is one file and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ocr.formats.annotation import Page, Word
from ocr.formats.categories import Categories, choose_categories
from ocr.formats.coco import coco_categories, is_coco, parse_coco, write_coco
from ocr.formats.cord import is_cord, parse_cord
from ocr.formats.ctw1500 import parse_ctw1500
from ocr.formats.cvat import cvat_categories, parse_cvat, write_cvat
from ocr.formats.doctr import doctr_categories, is_doctr, parse_doctr
from ocr.formats.document import Document
from ocr.formats.export import Export
from ocr.formats.funsd import is_funsd, parse_funsd
from ocr.formats.hiertext import is_hiertext, parse_hiertext
from ocr.formats.icdar import parse_icdar2013, parse_icdar2015
from ocr.formats.label_studio import is_label_studio, label_studio_categories, parse_label_studio, write_label_studio
from ocr.formats.labelme import is_labelme, labelme_categories, parse_labelme, write_labelme_page
from ocr.formats.lsvt import is_lsvt, parse_lsvt
from ocr.formats.mmocr import is_mmocr, parse_mmocr, write_mmocr
from ocr.formats.native import is_native, native_text, parse_native
from ocr.formats.paddle import parse_paddle, write_paddle
from ocr.formats.page_xml import parse_page_xml
from ocr.formats.pascal_voc import parse_voc, voc_categories, write_voc_page
from ocr.formats.rects import is_rects, parse_rects
from ocr.formats.td500 import parse_td500
from ocr.formats.total_text import parse_total_text
from ocr.formats.via import is_via, parse_via, via_categories, write_via
from ocr.formats.wildreceipt import parse_wildreceipt
from ocr.formats.xml_tree import looks_like_xml


@dataclass(frozen=True, slots=True)
class Format:
    """What is known of a format."""

    about: str
    parse: Callable[[Document], dict[str, Page]]
    content: Literal["text", "json", "xml"] = "text"
    """What the parser is given besides the text: the value of JSON, the first element of XML."""
    suffixes: tuple[str, ...] = ()
    """Of a format with one file per image: how their names end in a folder."""
    recognise: Callable[[Any], bool] | None = None
    """Whether a JSON value is of this format; text and XML are recognised by `ocr.formats.detect`."""
    categories: Callable[[Any], Iterable[str]] | None = None
    """The categories in a JSON value or XML element, for formats that have some which are not text."""
    write: Callable[[Export], Iterator[str]] | None = None
    """The parts of the one file with all pages."""
    write_page: Callable[[str, Page, Export], str] | None = None
    """The file of one page, of a format with one file per image."""
    lacks: tuple[str, ...] = ()
    """The fields of a word that are lost when it is written."""
    labels_may_be_texts: bool = False
    """Whether people write texts where the format has categories."""

    def categories_in(self, root: Any) -> list[str]:
        """The categories in the content of a file."""
        return [] if self.categories is None else list(self.categories(root))

    def choose(self, known: list[str], where: str, wanted: str | Sequence[str], notes: list[str]) -> Categories:
        """Which of the categories that all files have are read."""
        if self.categories is None:
            return Categories()
        return choose_categories(known, where, wanted, notes, self.labels_may_be_texts)


def _page_of_lines(parse: Callable[[str, str], tuple[Word, ...]]) -> Callable[[Document], dict[str, Page]]:
    def parse_document(document: Document) -> dict[str, Page]:
        words = parse(document.text, document.where)
        # There is nothing in a single point to draw or to ignore.
        unit = "word" if looks_like_xml(document.text) else "line"
        document.notes.extend(
            f"{document.where}, {unit} {int(word.key)}: skipped, it has one point, and a polygon needs three"
            for word in words
            if len(word.points) == 1
        )
        page = Page(tuple([word for word in words if len(word.points) != 1]))
        return {document.names.of_label(document.path): page}

    return parse_document


FORMATS = {
    "native": Format(
        'one JSON file: {"images": {"a.jpg": {"words": {"0001": {"points": [[x, y], ...]}}}}}',
        parse_native,
        "json",
        recognise=is_native,
        write=lambda export: native_text(export.pages, export.scores),
    ),
    "icdar2015": Format(
        "a text file an image: x1,y1,x2,y2,x3,y3,x4,y4,text", _page_of_lines(parse_icdar2015), suffixes=(".txt",)
    ),
    "icdar2013": Format(
        'a text file an image: left, top, right, bottom, "text"', _page_of_lines(parse_icdar2013), suffixes=(".txt",)
    ),
    "total_text": Format(
        "a text file an image: x: [[...]], y: [[...]], ornt: [...], transcriptions: [...]",
        _page_of_lines(parse_total_text),
        suffixes=(".txt",),
    ),
    "ctw1500": Format(
        "an XML or text file an image: x1,y1,...,x14,y14,####text",
        _page_of_lines(parse_ctw1500),
        suffixes=(".txt", ".xml"),
    ),
    "coco": Format(
        "one JSON file with polygon segmentation, COCO-Text and TextOCR included",
        parse_coco,
        "json",
        recognise=is_coco,
        categories=coco_categories,
        write=write_coco,
    ),
    "paddle": Format(
        "one text file: path<TAB>[{...}, ...], as PaddleOCR has it",
        parse_paddle,
        write=write_paddle,
        lacks=("language", "orientation", "note"),
    ),
    "label_studio": Format(
        "one JSON file: the tasks that Label Studio exports",
        parse_label_studio,
        "json",
        recognise=is_label_studio,
        categories=label_studio_categories,
        write=write_label_studio,
    ),
    "cvat": Format(
        "one XML file: CVAT for images 1.1", parse_cvat, "xml", categories=cvat_categories, write=write_cvat
    ),
    "labelme": Format(
        "a JSON file an image: LabelMe, X-AnyLabeling",
        parse_labelme,
        "json",
        suffixes=(".json",),
        recognise=is_labelme,
        categories=labelme_categories,
        write_page=write_labelme_page,
        labels_may_be_texts=True,
    ),
    "via": Format(
        "one JSON file: VGG Image Annotator 1 and 2",
        parse_via,
        "json",
        recognise=is_via,
        categories=via_categories,
        write=write_via,
    ),
    "mmocr": Format(
        "one JSON file: MMOCR 1.x, data_list",
        parse_mmocr,
        "json",
        recognise=is_mmocr,
        write=write_mmocr,
        lacks=("language", "orientation", "note"),
    ),
    "lsvt": Format("one JSON file: LSVT and ArT", parse_lsvt, "json", recognise=is_lsvt),
    "rects": Format(
        "a JSON file an image: ReCTS, lines and chars", parse_rects, "json", suffixes=(".json",), recognise=is_rects
    ),
    "doctr": Format(
        "one JSON file: polygons by image", parse_doctr, "json", recognise=is_doctr, categories=doctr_categories
    ),
    "funsd": Format(
        "a JSON file an image: form[].words[].box", parse_funsd, "json", suffixes=(".json",), recognise=is_funsd
    ),
    "cord": Format(
        "a JSON file an image: valid_line[].words[].quad", parse_cord, "json", suffixes=(".json",), recognise=is_cord
    ),
    "wildreceipt": Format("one text file: a JSON object per line", parse_wildreceipt),
    "hiertext": Format("one JSON file: paragraphs, lines and words", parse_hiertext, "json", recognise=is_hiertext),
    "page_xml": Format("an XML file an image: PAGE", parse_page_xml, "xml", suffixes=(".xml",)),
    "td500": Format(
        "a text file an image: index difficult x y width height angle",
        _page_of_lines(parse_td500),
        suffixes=(".gt", ".txt"),
    ),
    "pascal_voc": Format(
        "an XML file an image: Pascal VOC",
        parse_voc,
        "xml",
        suffixes=(".xml",),
        categories=voc_categories,
        write_page=write_voc_page,
        lacks=("text", "language", "orientation", "note"),
    ),
}
