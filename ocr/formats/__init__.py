"""Annotation formats: read, and written for labelling tools and other detectors."""

from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.native import write_native
from ocr.formats.read import read_annotations
from ocr.formats.registry import FORMATS
from ocr.formats.write import write_annotations

__all__ = ["FORMATS", "Annotations", "Page", "Word", "read_annotations", "write_annotations", "write_native"]
