"""The path of a page, one file per stage:

    source -> decode -> prefix -> | cache | -> suffix -> targets -> batch -> device

Everything up to the cut `| cache |` is fixed (same page in, same page out) and kept by `ocr.cache`; the suffix is
random, and all of its randomness is `(seed, epoch, index)`. `ocr.Loader` makes the batches.
"""

STAGES = ("source", "decode", "prefix", "cache", "suffix", "targets", "batch", "device")
