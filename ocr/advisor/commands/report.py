"""`ocr report`. Libraries that are slow to load are imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = (
    "ocr report outputs/DAY/TIME",
    "ocr report RUN_A RUN_B --out compared.html",
    "ocr report advice.json --trace trace.json",
    "ocr report bench.json profile.json",
)
MAX_RUNS = 15
"""More lines than this cannot be told apart."""


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|RESULT.json...",
            help="Folders that ocr train wrote, and files that ocr profile, bench or advise wrote with --json.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the timelines here too, for Perfetto or chrome://tracing."),
    ] = None,
) -> None:
    """Write runs and results as one HTML page that needs no network, fits a phone and can be printed.

    A run is shown with its curves, hardest pages and settings; several are compared. Results of any kind share the
    page: where the time goes, one epoch by thread, what would help, and how good predictions were.
    """
    from ocr.advisor.report.chrome_trace import write_trace
    from ocr.advisor.report.html_page import write_report
    from ocr.advisor.report.result_file import read_result
    from ocr.advisor.report.run_folder import read_run
    from ocr.errors import ConfigError

    given = {path.resolve(): path for path in results}
    for option, path in (("--out", out), ("--trace", trace)):
        if path is not None and path.resolve() in given:
            raise ConfigError(
                f"{option} {path} is one of the results and would be overwritten. Give another name: --out report.html",
                setting=option,
                value=path,
            )
    runs = [path for path in given.values() if path.is_dir()]
    if len(runs) > MAX_RUNS:
        raise ConfigError(
            f"{len(runs)} runs are given, but lines of more than {MAX_RUNS} look alike. Give fewer", value=len(runs)
        )
    found = [read_run(path) if path in runs else read_result(path) for path in given.values()]
    if trace is not None:
        write_trace(found, trace)
    write_report(found, out)
    for path in filter(None, (out, trace)):
        typer.echo(f"written: {path}")
