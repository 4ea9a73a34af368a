"""Draw the loss and the H-mean of a run over its minutes.

python scripts/plot_run.py outputs/DAY/TIME curve.png
"""

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run, target = Path(sys.argv[1]), Path(sys.argv[2])
    logs = sorted(run.glob("csv/*/metrics.csv"))
    if not logs:
        sys.exit(f"{run}/csv holds no metrics.csv: give the folder of a run of runners/train.py with its CSV logger on")
    rows = list(csv.DictReader(logs[-1].open()))
    epochs = {name: [(int(row["epoch"]), float(row[name])) for row in rows if row.get(name)] for name in NAMES}
    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    losses = axis.twinx()
    for name, drawn_on, colour in zip(NAMES, (axis, losses), ("tab:green", "tab:gray"), strict=True):
        drawn_on.plot(
            *zip(*epochs[name], strict=True), color=colour, marker="o" if drawn_on is axis else "", label=name
        )
        drawn_on.set_ylabel(name, color=colour)
    axis.set(xlabel="epoch", ylim=(0, 1), title=f"best H-mean {max(value for _, value in epochs['val/hmean']):.3f}")
    axis.grid(alpha=0.3)
    figure.savefig(target, dpi=110)
    print(f"drawn: {target}")


NAMES = ("val/hmean", "train/loss")

if __name__ == "__main__":
    main()
