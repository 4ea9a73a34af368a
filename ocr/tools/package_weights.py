"""Put a trained detector into the package, as `make weights` does: python -m ocr.tools.package_weights best.ckpt."""

from __future__ import annotations

import sys
from dataclasses import replace

from ocr.errors import ConfigError
from ocr.models.load import load_detector, save_detector
from ocr.models.packaged import PACKAGED
from ocr.units import format_bytes

MAX_BYTES = 5_000_000


def main(checkpoint: str) -> None:
    """Write the weights in half precision, with the command that made them."""
    detector, settings = load_detector(checkpoint)
    PACKAGED.parent.mkdir(exist_ok=True)
    provenance = replace(settings.provenance, command="make weights")
    save_detector(PACKAGED, detector, replace(settings, provenance=provenance))
    size = PACKAGED.stat().st_size
    if size > MAX_BYTES:
        PACKAGED.unlink()
        raise ConfigError(
            f"{checkpoint}: {format_bytes(size)} of weights, and the package has room for 5 MB",
            value=size,
            path=checkpoint,
        )
    print(f"{PACKAGED.name}: {format_bytes(size)}, {provenance}")


if __name__ == "__main__":
    main(sys.argv[1])
