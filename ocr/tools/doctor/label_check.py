"""The part of `ocr doctor` that asks detectors about labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ocr.errors import ConfigError
from ocr.formats.tasks import check_tasks
from ocr.tools.doctor.findings import Report


def check_options(model: str | None, folds: int | None, tasks: str | None, out: Path | None) -> None:
    """Refuse options that do not fit together, before anything is read."""
    if model is not None and folds is not None:
        raise ConfigError(
            "--model and --folds exclude each other: --folds trains its own detectors, from the bundled one",
            setting="--folds",
            value=folds,
        )
    if tasks is None and out is not None:
        raise ConfigError(
            f"--out {out} is for --tasks, which says in what format: --tasks label_studio", setting="--out", value=out
        )
    if tasks is not None:
        if model is None and folds is None:
            raise ConfigError(
                f"--tasks {tasks}: suspects come from a detector. Add --model glyphfeed, or --folds 3",
                setting="--tasks",
                value=tasks,
            )
        check_tasks(tasks, out)
    if model is not None:
        from ocr.tools.doctor.labels import model_path

        model_path(model)


def check_labels(
    report: Report, model: str | None, folds: int | None, work: Path, settings: Sequence[str], console: Console
) -> Report:
    """The report with the labels that a model, or detectors of other folds, contradict."""
    from ocr.tools.doctor.labels import LabelChecker, add_suspects, model_path, readable_pages

    if folds is None:
        assert model is not None
        checkers = [LabelChecker(model_path(model), {split.name: readable_pages(split) for split in report.splits})]
    else:
        from ocr.tools.doctor.folds import cross_fit

        checkers = cross_fit(report, folds, work, settings, console)
    return add_suspects(report, checkers, Console(stderr=True))
