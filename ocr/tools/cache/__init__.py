"""`ocr cache`: list the stored caches, verify them, free space, and fill caches ahead of a training."""
