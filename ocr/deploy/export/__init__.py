"""`ocr export`: a checkpoint as a file for another runtime, proven before it is written."""
