"""Tests, in the layout of ocr/; campaign/ is a program of its own."""
