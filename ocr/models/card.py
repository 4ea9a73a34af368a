"""card: the README.md next to a model, generated from what its file knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ocr.atomic import replacing
from ocr.models.settings import DetectorSettings

NAME = "README.md"
BUNDLED_COMMAND = "make weights"
"""Of the bundled weights, which have the licence of GlyphFeed."""
PROTOCOL = (
    "Scores are of the validation split. A box matches a label if their IoU is at least 0.5 (0.7 for `_70`); ignored "
    "labels count neither way. `cleval_` scores are CLEval's, character by character."
)


def write_card(
    folder: Path, file: str, settings: DetectorSettings, export: Sequence[tuple[str, str, str]] = (), title: str = ""
) -> None:
    """Write `README.md` for the model `file` in a folder; `export` is the table of an export's check."""
    with replacing(folder / NAME) as stream:
        stream.write(model_card(file, settings, export, title).encode())


def model_card(
    file: str, settings: DetectorSettings, export: Sequence[tuple[str, str, str]] = (), title: str = ""
) -> str:
    """The text of the card; its first lines are the metadata that model hubs read."""
    origin = settings.provenance
    is_bundled = origin.command == BUNDLED_COMMAND
    licence = (
        "Apache-2.0, the licence of GlyphFeed."
        if is_bundled
        else "Not stated. Who trained these weights decides; GlyphFeed itself is Apache-2.0."
    )
    trained = {
        **{_words(name): value for name, value in origin.data.items()},
        "steps": origin.steps,
        "minutes": origin.minutes,
        "seed": origin.seed,
        "command": origin.command,
        "teacher": origin.teacher.get("encoder"),
        **origin.versions,
    }
    parts = {
        f"{part}.{name}": value
        for part in ("architecture", "letterbox", "normalization", "targets", "boxes")
        for name, value in getattr(settings, part).items()
    }
    encoder = settings.architecture.get("encoder", "")
    licence_of_hub = "license: apache-2.0\n" if is_bundled else ""
    blocks = [
        f"---\n{licence_of_hub}library_name: glyphfeed\ntags: [text-detection, ocr, dbnet]\n---",
        f"# Text detector ({encoder})",
        f"`{file}`: finds text on pages, {title or 'as a checkpoint'}. Made with GlyphFeed.",
        "## Use",
        "```python\nfrom ocr import Detector\n\n"
        f'detector = Detector.load("{file}")\n'
        'page = detector("page.jpg")\nprint(page.polygons, page.scores)\n```',
        "## Training",
        _table(("", ""), ((name, _shown(value)) for name, value in trained.items() if value is not None)),
        "## Scores",
        _table(("", ""), ((name, _shown(score)) for name, score in origin.scores.items())) or "None are known.",
        *([PROTOCOL] if origin.scores else []),
        *(["## Export", "Compared with its checkpoint, on the same pages:"] if export else []),
        *([_table(("", "checkpoint", "exported"), export)] if export else []),
        "## Settings",
        "They are in the file; every program of GlyphFeed reads them from there.",
        _table(("setting", "value"), ((f"`{name}`", _shown(value)) for name, value in parts.items())),
        "## Licence",
        licence,
    ]
    return "\n\n".join(blocks) + "\n"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = [f"| {' | '.join(row)} |" for row in rows]
    names = list(header)
    return "\n".join([f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *body]) if body else ""


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000 else str(value)


def _words(name: str) -> str:
    return {"fingerprint": "fingerprint of the data", "polygons": "labels"}.get(name, name)
