"""The bundled detector, found without loading torch."""

from __future__ import annotations

from pathlib import Path

from ocr.errors import ConfigError

BUNDLED = "glyphfeed"
"""How users name it."""
PACKAGED = Path(__file__).with_name("data") / "glyphfeed.safetensors"


def packaged_detector() -> Path:
    """The file of the bundled detector."""
    if not PACKAGED.is_file():
        raise ConfigError(
            f"weights=glyphfeed: this installation has no {PACKAGED.name}. Set a file that `ocr train` wrote: "
            "checkpoint_path=.../best.ckpt",
            setting="weights",
            path=PACKAGED,
        )
    return PACKAGED
