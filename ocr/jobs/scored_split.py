"""Which pages `glyphfeed test` scores, shown before it does: the validation pages unless others are given."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from ocr.errors import ConfigError

CHOSEN_BY = {"image_path": "annotation_path", "tar_path": None}
"""What names the pages of a split, and its words if they are elsewhere."""


def check_annotated(dataset: Any, split: str) -> None:
    """Raise if the pages of a split have no labels: every score would be 0."""
    if not dataset.source.annotated:
        raise ConfigError(
            f"datasets.{split}_dataset.annotation_path is null: there is nothing to score against. Set it, or predict: "
            "glyphfeed predict ... FOLDER",
            setting=f"datasets.{split}_dataset.annotation_path",
        )


def describe_split(config: DictConfig, pages: int | None) -> str:
    """One line: pages, where they are, and whether they are those of validation; `pages` is None if unknown."""
    node, val = config.datasets.test_dataset, config.datasets.get("val_dataset") or {}
    pages_key = next((key for key in CHOSEN_BY if node.get(key)), None)
    if pages_key is None:
        return "scoring datasets.test_dataset"
    words_key = CHOSEN_BY[pages_key]
    words = f", words of {node[words_key]}" if words_key else ""
    count = "" if pages is None else f"{pages} pages of "
    keys = [key for key in (pages_key, words_key) if key]
    told = f"scoring datasets.test_dataset: {count}{node[pages_key]}{words}"
    if any(node.get(key) != val.get(key) for key in keys):
        return told
    others = " ".join(f"datasets.test_dataset.{key}=..." for key in keys)
    return f"{told}. This is the validation split; to score another: {others}"
