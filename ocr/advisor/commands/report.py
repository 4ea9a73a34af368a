"""The command `ocr report`. What takes time to load is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT.json", help="What ocr profile, bench or advise wrote with --json."),
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Draw results as one HTML page that opens from disk, on a phone and in print.

    Several results, also of several kinds, share a page: where the time goes, what would help, what came true.
    """
    from ocr.advisor.report.html_page import write_report
    from ocr.advisor.report.result_file import read_result
    from ocr.errors import ConfigError

    if out.resolve() in {path.resolve() for path in results}:
        raise ConfigError(
            f"--out {out} is one of the results, which would be lost. Give another name: --out report.html"
        )
    write_report([read_result(path) for path in results], out)
    typer.echo(f"drawn: {out}")
