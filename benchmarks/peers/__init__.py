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

OURS = "glyphfeed"
"""The file of GlyphFeed itself."""


@dataclass(frozen=True)
class Peer:
    """What is known of a loader without importing it: an entry of `ABOUT`, and its file."""

    module: str
    """The file in this folder."""
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
