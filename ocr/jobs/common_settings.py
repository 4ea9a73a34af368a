"""The settings that `glyphfeed train --help` lists: values and comments of the config files, read as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
GROUPS = ("model", "experiment", "data", "logger")
LOADER = "dataloaders.train_dataloader"
FILES = {
    "train.yaml": "",
    "data/common.yaml": "",
    "data/split/loader.yaml": f"{LOADER}.",
    "model/base.yaml": "",
    "trainer/default.yaml": "trainer.",
    "transforms/base.yaml": "transforms.",
    "callbacks/default.yaml": "callbacks.",
}
"""Where a file stands in the config."""
COMMON = (
    *("dataset_base_path", *GROUPS, "checkpoint_path", "weights", "resume", "teacher", "transforms.size"),
    *("model.encoder", "targets.shrink_ratio", f"{LOADER}.batch_size", "data.num_workers", "data.cache", "use_dali"),
    *("optimizer.lr", "trainer.max_epochs", "trainer.check_val_every_n_epoch", "trainer.accelerator"),
    *("trainer.devices", "trainer.precision", "callbacks.early_stopping.patience", "compile_model", "seed"),
)
LINE = re.compile(r"^(\s*)(?:- )?(\w+):\s*(.*?)\s*(?:# (.*))?$")


def common_settings() -> Iterator[tuple[str, str, str]]:
    """Setting, default and what it is; of a group, its files."""
    known: dict[str, tuple[str, str]] = {}
    for file, prefix in FILES.items():
        for key, value, about in _explained((CONFIGS / file).read_text(encoding="utf-8")):
            known.setdefault(prefix + key, (value, about))
    for key in COMMON:
        if key in GROUPS:
            files = sorted(file.stem for file in (CONFIGS / key).glob("*.yaml") if file.stem not in ("common", "tuned"))
            yield key, known[f"defaults.{key}"][0].replace(" ", ""), ", ".join(files)
        else:
            yield key, *known[key]


def _explained(text: str) -> Iterator[tuple[str, str, str]]:
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if found := LINE.match(line):
            indent, name, value, about = len(found[1]), found[2], found[3], found[4] or ""
            path = [(depth, above) for depth, above in path if depth < indent] + [(indent, name)]
            yield ".".join(above for _, above in path), value, about
