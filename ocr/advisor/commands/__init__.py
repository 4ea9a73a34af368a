"""The commands `ocr profile`, `ocr bench`, `ocr advise` and `ocr report`."""
