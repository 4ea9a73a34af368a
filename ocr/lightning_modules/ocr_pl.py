"""The given import path of `OCRPLModule`."""

from ocr.training.module import OCRPLModule as OCRPLModule
