"""Pictures of results for the documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocr.atomic import replacing


@contextmanager
def picture(
    target: Path, rows: int = 1, columns: int = 1, dpi: int = 110, **settings: Any
) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, which are a PNG once they are drawn: all or nothing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, layout="constrained", **settings)
    try:
        yield figure, axes
        with replacing(target) as stream:
            figure.savefig(stream, format="png", dpi=dpi)
    finally:
        pyplot.close(figure)
