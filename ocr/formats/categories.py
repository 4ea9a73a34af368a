"""Which categories of an annotation are text: asked for by name, or those that are named like text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ocr.errors import ConfigError, near_names

_LIKE_TEXT = {"text", "texts", "word", "words", "textline", "textlines", "textblock", "textregion"}
_IGNORED = {"ignore", "ignored", "illegible", "unreadable", "dontcare", "###"}
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Categories:
    """The categories that are read, None for all, and how many regions of others were left out."""

    chosen: frozenset[str] | None = None
    are_texts: bool = False
    """Whether the labels of regions are their texts, not categories."""
    left_out: Counter[str] = field(default_factory=Counter)

    def is_text(self, name: str | None) -> bool:
        """Whether a region of this category is read; one that is not is counted."""
        if self.chosen is None or name in self.chosen:
            return True
        self.left_out[name or "no category"] += 1
        return False

    def notes(self, where: str) -> list[str]:
        """What was left out, as a message."""
        if not self.left_out:
            return []
        counts = ", ".join(f"{count} of {name}" for name, count in sorted(self.left_out.items()))
        return [
            f"{where}: read {', '.join(sorted(self.chosen or ()))}, left out {counts}. "
            "Set annotation_categories (--categories) to the categories of text"
        ]


def choose_categories(
    names: Iterable[str], where: str, wanted: str | Sequence[str], notes: list[str], may_be_texts: bool = False
) -> Categories:
    """The categories to read of those that an annotation has; what is assumed is added to `notes`.

    Those named like illegible text are always read: their regions are ignored, and would else be background.
    `may_be_texts` says that `names` has the label of each region, and that people write texts there.
    """
    counts = Counter(names)
    if may_be_texts and wanted == "auto" and _look_like_texts(counts):
        notes.append(
            f"{where}: labels are read as the texts of the regions. "
            "If they are categories, set annotation_categories (--categories) to the ones that are text"
        )
        return Categories(are_texts=True)
    known = sorted(counts)
    ignored = {name for name in known if means_ignored(name)}
    if wanted != "auto":
        for name in wanted:
            if name not in known:
                raise ConfigError(
                    f"annotation_categories={list(wanted)} (--categories): {name!r} is unknown. "
                    f"{near_names(name, known)}",
                    setting="annotation_categories",
                    value=name,
                )
        chosen = set(wanted) | ignored
    else:
        chosen = {name for name in known if is_like_text(name)}
        if not chosen and len(known) - len(ignored) > 1:
            listed = ", ".join([*known[:_MAX_LISTED], *["..."][: len(known) > _MAX_LISTED]])
            notes.append(
                f"{where}: no category is named like text, so all are read as text ({listed}). "
                "Set annotation_categories (--categories) to the categories of text"
            )
        chosen = chosen | ignored if chosen else set(known)
    return Categories(None if chosen == set(known) else frozenset(chosen))


def _look_like_texts(labels: Counter[str]) -> bool:
    """Texts differ, categories repeat; and ### is what an illegible text is written as."""
    total = labels.total()
    like_text = sum(count for label, count in labels.items() if is_like_text(label))
    return "###" in labels or (2 * len(labels) > total and 2 * like_text < total)


def is_like_text(name: str) -> bool:
    """Whether a category is named like text.

    >>> is_like_text("Text line"), is_like_text("non-text"), is_like_text("logo")
    (True, False, False)
    """
    parts = set(re.split(r"[^a-z]+", name.lower()))
    return bool(parts & _LIKE_TEXT) and not parts & {"no", "non", "not"}


def means_ignored(name: str | None) -> bool:
    """Whether the name of a category, a flag or an attribute says that a region is not to be learnt."""
    return name is not None and re.sub(r"[^a-z#]", "", name.lower()) in _IGNORED
