"""`ocr cache`: what is kept of which dataset, whether it is whole, how room is made, and caches filled ahead."""
