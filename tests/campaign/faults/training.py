"""Kills of a training: its checkpoint is whole, and the resumed run has the losses of one without the break."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.campaign.cases import Case, WrongSampleError, fault
from tests.campaign.compared import Child, killed_after

EPOCHS = 3


def train(data: Path, out: Path, log: Path, resume: Path | None) -> None:
    """A tiny training; every loss is logged at once."""
    import lightning
    from test_training import fit, settings

    class Logged(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            with log.open("a") as stream:
                stream.write(
                    json.dumps([trainer.global_step, float(outputs["loss"]), list(batch["image_filename"])]) + "\n"
                )

    config = settings(data, out, f"trainer.max_epochs={EPOCHS}", f"cache.folder={out}/cache")
    fit(config, Logged(), resume)  # type: ignore[arg-type]


def read_log(log: Path) -> dict[int, Any]:
    """Loss and pages of each step; the last line of a step counts, and part of a line is left out."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = {}
    for line in lines:
        try:
            step, loss, names = json.loads(line)
        except ValueError:
            continue
        found[step] = (loss, names)
    return found


def prepare(folder: Path) -> dict[str, Any]:
    from ocr.tools.synth import synthesize

    data = folder / "data"
    synthesize(data, train=6, val=2, seed=3, megapixels=(0.1, 0.2), workers=1, show_progress=False)
    case = Case(None, folder, None)  # type: ignore[arg-type]
    Child(case, train, data, folder / "whole", folder / "log", None).wait()
    return {"data": data, "losses": read_log(folder / "log")}


@fault("kill-train", "a training is killed, and resumed", share=8, prepare=prepare)
def kill_train(case: Case) -> None:
    out, log, expected = case.folder / "out", case.folder / "log", case.prepared["losses"]
    killed_after(case, case.rng.uniform(0.5, 6.0), train, case.prepared["data"], out, log, None)
    last = out / "checkpoints" / "last.ckpt"
    log.unlink(missing_ok=True)
    Child(case, train, case.prepared["data"], out, log, last if last.exists() else None).wait()
    resumed = read_log(log)
    if set(resumed) and max(resumed) != max(expected):
        raise WrongSampleError(f"{max(resumed)} steps instead of {max(expected)}")
    for step, found in resumed.items():
        if found != expected[step]:
            raise WrongSampleError(f"step {step}: {found} instead of {expected[step]}")
    case.tally.orders += 1
    case.tally.samples += sum(len(names) for _, names in resumed.values())
    for partial in out.rglob("*.partial"):
        partial.unlink()
    shutil.rmtree(out)
