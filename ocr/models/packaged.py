"""The bundled detector, found without loading torch."""

from __future__ import annotations

from pathlib import Path

from ocr.errors import ConfigError

BUNDLED = "glyphfeed"
"""The name of that detector wherever a MODEL is asked for."""
PACKAGED = Path(__file__).with_name("data") / "glyphfeed.safetensors"


def packaged_detector() -> Path:
    """The file of the bundled detector."""
    if not PACKAGED.is_file():
        raise ConfigError(
            f"weights=glyphfeed, but {PACKAGED.name} is not installed. Set a file that `glyphfeed train` wrote: "
            "checkpoint_path=.../best.ckpt",
            setting="weights",
            path=PACKAGED,
        )
    return PACKAGED


def named_detector(model: str) -> Path:
    """What MODEL names: `glyphfeed`, a checkpoint, an exported model or its folder."""
    return packaged_detector() if model == BUNDLED else Path(model)
