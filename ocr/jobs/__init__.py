"""What `ocr train`, `test`, `predict` and `sweep` compose from the configs and run."""
