"""Annotation formats: readers for seven of them, and one writer."""

from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.native import write_native
from ocr.formats.read import FORMATS, read_annotations

__all__ = ["FORMATS", "Annotations", "Page", "Word", "read_annotations", "write_native"]
