"""The commands of GlyphFeed that benchmarks run, each as a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Data
from ocr.errors import DataError
from ocr.jobs.run import quoted_override
from ocr.models.packaged import packaged_detector

OCR = [sys.executable, "-m", "ocr.cli"]


def ocr(command: str, *words: str, quiet: bool = False) -> None:
    """`ocr COMMAND WORDS...`."""
    if status := subprocess.run([*OCR, command, *words], stdout=subprocess.DEVNULL if quiet else None).returncode:
        raise DataError(f"ocr {command} ended with status {status}; its error is above", value=list(words))


def of_pages(split: str, images: Path, annotation: Path) -> list[str]:
    """Settings that make these the pages of a split."""
    given = {"image_path": images, "annotation_path": annotation}
    return [quoted_override(f"datasets.{split}_dataset.{key}", str(path.resolve())) for key, path in given.items()]


def inspect(weights: str | Path, images: Path, annotation: Path, *settings: str) -> dict[str, Any]:
    """What `ocr inspect` writes about a detector on these pages."""
    with tempfile.TemporaryDirectory(prefix="glyphfeed-inspect-") as out:
        places = [f"out={out}", f"hydra.run.dir={out}", f"cache.folder={out}/cache", "atlas=false"]
        chosen = [quoted_override("weights", str(weights)), *of_pages("test", images, annotation)]
        ocr("inspect", *chosen, *places, *settings, quiet=True)
        found: dict[str, Any] = json.loads((Path(out) / "inspection.json").read_text(encoding="utf-8"))
    return found


def exported(data: Data, weights: Path | str, to: str, precision: str) -> Path:
    """What `ocr export` writes, written now if it is not there or older than the weights."""
    name = "glyphfeed" if str(weights) == str(packaged_detector()) else "fine-tuned"
    out = data.runs / "exported" / f"{name}-{to}-{precision}"
    if not out.is_dir() or out.stat().st_mtime < Path(weights).stat().st_mtime:
        places = {"checkpoint_path": str(weights), "dataset_base_path": str(data.receipts.resolve()), "out": str(out)}
        chosen = [quoted_override(key, value) for key, value in places.items()]
        ocr("export", *chosen, f"format={to}", f"precision={precision}", quiet=True)
    return out


@contextmanager
def served(*words: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Port and process of `ocr serve`, which ends with the block."""
    with subprocess.Popen([*OCR, "serve", *words, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+) ", process.stdout.readline())
            if found is None:
                raise DataError("ocr serve did not start; its error is above", value=words)
            yield int(found[1]), process
        finally:
            process.terminate()
            process.communicate()  # Its last output too: a closed pipe would be another error.
