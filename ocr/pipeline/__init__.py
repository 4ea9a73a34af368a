"""The path of a page, one file a stage:

    source -> decode -> prefix -> | -> suffix -> targets -> batch -> device

Everything left of the cut `|` is fixed (same page in, same page out), the suffix is random, and all of its
randomness is `(seed, epoch, index)`.
"""

STAGES = ("source", "decode", "prefix", "|", "suffix", "targets", "batch", "device")
