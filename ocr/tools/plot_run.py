"""The loss and the H-mean of a training run as a picture."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from ocr.atomic import replacing
from ocr.errors import ConfigError, DataError
from ocr.exit_status import one_line_errors

HMEAN, LOSS = "val/hmean", "train/loss"


def plot_run(run: Path, target: Path) -> None:
    """Draw the newest `csv/*/metrics.csv` of the folder of a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    logs = sorted(run.glob("csv/*/metrics.csv"))
    if not logs:
        raise DataError(
            f"{run}/csv has no metrics.csv. Pass the folder of a run of `ocr train` with its CSV logger on", path=run
        )
    hmean, loss = _values(logs[-1], HMEAN), _values(logs[-1], LOSS)
    if not hmean or not loss:
        raise DataError(
            f"{logs[-1]} has no {LOSS if hmean else HMEAN} yet: wait for the first validation",
            value=LOSS if hmean else HMEAN,
            path=logs[-1],
        )
    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    losses = axis.twinx()
    axis.plot(*zip(*hmean, strict=True), color="tab:green", marker="o")
    losses.plot(*zip(*loss, strict=True), color="tab:gray")
    axis.set_ylabel(HMEAN, color="tab:green")
    losses.set_ylabel(LOSS, color="tab:gray")
    axis.set(xlabel="epoch", ylim=(0, 1), title=f"best H-mean {max(value for _, value in hmean):.3f}")
    axis.grid(alpha=0.3)
    with replacing(target) as stream:
        figure.savefig(stream, format=target.suffix.lstrip(".") or "png", dpi=110)
    pyplot.close(figure)


def _values(log: Path, name: str) -> list[tuple[int, float]]:
    with log.open(newline="") as stream:
        return [(int(row["epoch"]), float(row[name])) for row in csv.DictReader(stream) if row.get(name)]


def main() -> None:
    """`python scripts/plot_run.py RUN PICTURE`."""
    with one_line_errors():
        if len(sys.argv) != 3:
            raise ConfigError(
                "pass the folder of a run and a picture: plot_run.py outputs/DAY/TIME curve.png", value=sys.argv[1:]
            )
        plot_run(Path(sys.argv[1]), Path(sys.argv[2]))
        print(f"drawn: {sys.argv[2]}")
