"""`glyphfeed report`. Libraries that are slow to load are imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = ("glyphfeed report outputs/DAY/TIME", "glyphfeed report RUN_A RUN_B --out compared.html")
MAX_RUNS = 15
"""More lines than this look alike."""


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Output folders of glyphfeed train.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write runs as one HTML page.

    It needs no network, fits a phone and can be printed. A run is shown with its curves, hardest pages and settings;
    several are compared.
    """
    from ocr.atomic import refuse_missing_folder
    from ocr.errors import ConfigError
    from ocr.report.run_page import write_runs
    from ocr.report.runs import read_run

    given = {path.resolve(): path for path in runs}
    if len(given) > MAX_RUNS:
        raise ConfigError(
            f"{len(given)} runs, at most {MAX_RUNS} can be told apart in a chart. Pass fewer",
            setting="RUN",
            value=len(given),
        )
    refuse_missing_folder(out, "--out")
    write_runs([read_run(path) for path in given.values()], out)
    typer.echo(f"written: {out}")
