"""What a run knows about its weights: the pages, steps, minutes and scores that a checkpoint names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from ocr.errors import ConfigError
from ocr.models.settings import CHECKPOINT_KEY, DetectorSettings


class TrainingRecord:
    """Completes the settings of a detector with where its weights come from."""

    def __init__(self, teacher: Mapping[str, Any] | None = None) -> None:
        self.teacher = dict(teacher or {})
        self.data: dict[str, Any] = {}
        self._scores: tuple[int, dict[str, float]] = (-1, {})
        self._minutes_before = 0.0
        self._started: float | None = None

    def start(self, data: dict[str, Any]) -> None:
        """Training starts on these pages."""
        self.data, self._started = data, monotonic()

    def resume(self, checkpoint: Mapping[str, Any]) -> None:
        """Minutes add up over the runs that a training is resumed in; a ConfigError if the teacher is another one."""
        stored = checkpoint.get(CHECKPOINT_KEY)
        if stored is None:
            return
        before = DetectorSettings.from_dict(stored).provenance
        if before.teacher != self.teacher:
            raise ConfigError(
                f"resume: the run had {_named(before.teacher)}, this one has {_named(self.teacher)}. Set the "
                "same teacher=FILE, or start a new run from its weights: checkpoint_path instead of resume",
                setting="teacher",
                value=self.teacher,
            )
        self._minutes_before = before.minutes or 0.0

    def score(self, step: int, scores: Mapping[str, Any]) -> None:
        """The scores of a validation after this step."""
        self._scores = step, {name.removeprefix("val/"): float(score) for name, score in scores.items()}

    def complete(self, settings: DetectorSettings, step: int) -> DetectorSettings:
        """The settings with all that is known; scores only if they are of exactly this step."""
        scored_step, scores = self._scores
        minutes = self._minutes_before + (monotonic() - self._started) / 60 if self._started is not None else None
        provenance = replace(
            settings.provenance,
            data=self.data,
            scores=scores if scored_step == step else {},
            steps=step,
            minutes=None if minutes is None else round(minutes, 2),
            teacher=self.teacher,
        )
        return replace(settings, provenance=provenance)


def _named(teacher: Mapping[str, Any]) -> str:
    return f"the teacher {teacher['encoder']} ({teacher['fingerprint'][:8]})" if teacher else "no teacher"
