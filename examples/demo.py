"""From nothing to a detector of your own in a few minutes: the commands of GlyphFeed, one after the other.

python examples/demo.py OUT

The pages are synthetic receipts whose labels are words. The bundled detector has learnt to find lines on receipts: a
minute of training teaches it words.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

console = Console(highlight=False, soft_wrap=True)
STEPS = {
    "synth {data} --train 64 --val 24 --units words --overwrite": "makes receipts with exact labels: {data}/images",
    "doctor {data} --html {out}/doctor.html": "looks for errors in images and labels: {out}/doctor.html",
    "preview {data} --out {out}/preview.png --split train": (
        "draws pages and maps as the model sees them: {out}/preview.png"
    ),
    "test weights=glyphfeed dataset_base_path={data} hydra.run.dir={out}/bundled": (
        "scores the bundled detector, which has learnt lines: {out}/log.txt"
    ),
    "train experiment=finetune recipe.steps=100 recipe.validations=2 dataset_base_path={data} output_dir={out}/run "
    "hydra.run.dir={out}/run": "teaches it words, from 64 pages: {out}/run",
    "predict {out}/run/checkpoints/best.ckpt {data}/images/val --out {out}/found --overwrite": (
        "finds the words of 24 other pages: {out}/found/drawn"
    ),
    "advise experiment=finetune dataset_base_path={data} json={out}/advice.json html={out}/advice.html": (
        "measures what would make training faster: {out}/advice.html"
    ),
}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    places = {"out": str(out), "data": str(out / "pages")}
    console.print(f"{len(STEPS)} commands; all that they print is in {out}/log.txt")
    printed = {}
    with (out / "log.txt").open("w", encoding="utf-8") as log:
        for command, about in STEPS.items():
            words = command.format(**places).split()
            printed[words[0]] = run(words, about.format(**places), log)
    before, (after, steps) = hmean(printed["test"]), trained(out / "run")
    console.print(f"\nH-mean: {before:.3f} with the bundled detector, {after:.3f} after {steps} steps on 64 pages")
    console.print(f"Found words, drawn: {out}/found/drawn")
    console.print(f"Advice: {advice(out / 'advice.json')}")


def run(words: list[str], about: str, log) -> str:
    """What a command prints; the demo ends if it fails."""
    log.write(f"$ glyphfeed {shlex.join(words)}\n")
    log.flush()
    started = time.monotonic()
    with console.status(f"{words[0]} {about}"):
        command = [sys.executable, "-m", "ocr", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
    log.write(done.stdout + "\n")
    if done.returncode:
        sys.exit(f"{done.stdout[-2000:]}\nglyphfeed {words[0]} failed: {log.name} has all of it")
    console.print(f"  glyphfeed {words[0]:8} {about} ({time.monotonic() - started:.0f} s)")
    return done.stdout


def hmean(printed: str) -> float:
    """The H-mean at an IoU of 0.5 in the table of `glyphfeed test`."""
    return float(re.search(r"IoU 0\.5 .*?([\d.]+) *│?$", printed, flags=re.MULTILINE)[1])


def trained(run: Path) -> tuple[float, int]:
    """H-mean and steps of the weights that training keeps."""
    from ocr.models.load import read_detector

    about = read_detector(run / "checkpoints" / "best.ckpt").settings.provenance
    return about.scores["hmean"], about.steps


def advice(file: Path) -> str:
    """The verdict."""
    return json.loads(file.read_text(encoding="utf-8"))["sentence"]


if __name__ == "__main__":
    main()
