"""The loaders that table.py compares: one file each, run in an environment that has its packages.

A file has `ABOUT`, which is read without importing the file; `open_loader(course, training, **settings)`, an iterable
of batches whose every pass is an epoch; and, if there is something to do once before, `prepare(course)`. A loader with
`state_dict` and `load_state_dict` is tried for resuming.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS, MARK = "glyphfeed", "\x1e"
"""The file of GlyphFeed itself, and the beginning of what a process tells, since libraries print too."""
SPLIT = "pages"
"""The split that table.py writes, for training and validation alike."""
ENVIRONMENT = {
    # Glibc's thresholds as `ocr.malloc` sets them, for workers that are started as new processes too.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    **dict.fromkeys(("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "DO_NOT_TRACK"), "1"),
    "NO_ALBUMENTATIONS_UPDATE": "1",
    # Compiled modules are kept, whatever this process was started with: else each start would compile ours again.
    "PYTHONDONTWRITEBYTECODE": "",
}


@dataclass(frozen=True)
class Course:
    """The pages, and how they are read: the same for every peer."""

    data: str
    folder: str
    """The peer's own, where it keeps what it likes."""
    size: int = 640
    batch_size: int = 16
    workers: int = 2

    @property
    def images(self) -> Path:
        return Path(self.data) / "images" / SPLIT

    @property
    def annotation(self) -> Path:
        return Path(self.data) / "jsons" / f"{SPLIT}.json"

    @property
    def store(self) -> Path:
        return Path(self.folder)


@dataclass(frozen=True)
class Peer:
    """What is known of a loader without importing it: an entry of `ABOUT`, and its file."""

    module: str
    prepares: bool
    """Whether its file has `prepare`."""
    title: str
    reads: str
    """What each epoch starts from."""
    packages: tuple[str, ...] = ()
    """What pip installs if this environment lacks it."""
    settings: dict[str, Any] = field(default_factory=dict)
    hint: str = ""
    """What else the system needs."""


def read_peers() -> dict[str, Peer]:
    """Those of every file, ours first. Files are parsed only: this environment may lack what they import."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py"), key=lambda path: (path.stem != OURS, path.stem)):
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        prepares = any(isinstance(node, ast.FunctionDef) and node.name == "prepare" for node in nodes)
        for node in nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ABOUT":
                for name, known in ast.literal_eval(node.value).items():
                    found[name] = Peer(path.stem, prepares, **known)
    return found


PEERS = read_peers()
