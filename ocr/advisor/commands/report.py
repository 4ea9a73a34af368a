"""`ocr report`. Libraries that are slow to load are imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT.json", help="Files that ocr profile, bench or advise wrote with --json."),
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write results as one HTML page that needs no network, fits a phone and can be printed.

    Several results of any kind share a page: where the time goes, what would help, and how good predictions were.
    """
    from ocr.advisor.report.html_page import write_report
    from ocr.advisor.report.result_file import read_result
    from ocr.errors import ConfigError

    if out.resolve() in {path.resolve() for path in results}:
        raise ConfigError(
            f"--out {out} is one of the results and would be overwritten. Give another name: --out report.html"
        )
    write_report([read_result(path) for path in results], out)
    typer.echo(f"written: {out}")
