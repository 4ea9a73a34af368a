"""The given import path of the Lightning module, which lives in `ocr.training`."""
