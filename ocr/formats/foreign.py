"""The names of annotation formats that are not read, and why: an answer for files that fit no known format."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from xml.etree import ElementTree

from ocr.formats.lines import leading_numbers

_ARCHIVE = "Archives are not read. Unpack it, and set annotation_path to its contents"
SUFFIXES = {
    ".mat": "Matlab files are not supported. Use the text files of the dataset",
    ".csv": "Tables are not read. Convert it to the native JSON (docs/data.md shows it)",
    **dict.fromkeys((".zip", ".tar", ".gz", ".tgz", ".rar", ".7z"), _ARCHIVE),
    **dict.fromkeys((".pkl", ".npz", ".npy"), "Python binaries are not read. Convert it to the native JSON"),
}
"""File suffixes that get an answer of their own."""


def answer_by_suffix(path: PurePath) -> str | None:
    """What to do about a file of a kind that is never read; None if its name says nothing.

    >>> answer_by_suffix(PurePath("gt.mat")).split(".")[0]
    'Matlab files are not supported'
    """
    return SUFFIXES.get(path.suffix.lower())


def name_of_xml(root: ElementTree.Element) -> str | None:
    """The format of an XML file that is not of CTW1500: one that has a reader of its own, or one that is not read."""
    tags = {element.tag for element in root.iter()}
    if "bndbox" in tags:
        return "Pascal VOC (pascal_voc)"
    if root.tag == "annotation" and {"object", "polygon"} <= tags:
        return "the XML of the first LabelMe"
    if "taggedRectangle" in tags or root.tag == "tagset":
        return "SVT or ICDAR-2003"
    if root.tag == "annotations" and tags & {"image", "track", "version", "meta"}:
        return "CVAT (cvat)"
    known = {"PcGts": "PAGE (page_xml)", "alto": "ALTO (alto)", "html": "hOCR", "annotation": "Pascal VOC (pascal_voc)"}
    return known.get(root.tag)


def name_of_json(root: Any) -> str | None:
    """The format of a JSON file, if it is a public one that is not read."""
    entry = root[0] if isinstance(root, list) and root else root
    if not isinstance(entry, dict):
        return None
    if {"attribute", "file", "metadata", "view"} <= entry.keys():
        return "VGG Image Annotator 3 (export the annotations with version 2)"
    if isinstance(root, list) and {"annotation_id", "annotator"} & entry.keys():
        return "Label Studio's JSON-MIN (export JSON)"
    if "objects" in entry and "size" in entry:
        return "Supervisely"
    if "Blocks" in entry:
        return "Amazon Textract"
    return "MMOCR 0.x" if "file_name" in entry and "annotations" in entry else None


def refusals(line: str) -> str:
    """How a line of text begins, and how each known format does, for the message about a foreign file."""
    count = len(leading_numbers(line)[0])
    return (
        f"begins with {count} numbers between commas. Expected icdar2013: 4; icdar2015: 8; total_text: 6 or more, "
        "or x: [[...]]; ctw1500: 32, or 6 or more before ####, or XML; paddle: a path, a tab and a JSON list; "
        "others: JSON or XML"
    )
