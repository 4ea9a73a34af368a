"""Annotation formats: one reader for seven ways to write down where the text is, and one writer."""

from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.native import write_native
from ocr.formats.read import FORMATS, read_annotations

__all__ = ["FORMATS", "Annotations", "Page", "Word", "read_annotations", "write_native"]
