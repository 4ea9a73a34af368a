"""Checks of settings: numbers in a range, words from a list. An error names the setting, the value and the cure."""

from __future__ import annotations

from collections.abc import Collection
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from ocr.errors import ConfigError, near_names


class Range(NamedTuple):
    """The finite numbers that a parameter may have.

    >>> str(Range(0, 1, above=True))
    'a number, above 0 and at most 1'
    >>> 0 in Range(0, 1, above=True), 1 in Range(0, 1), True in Range(0, 1), 1.0 in Range(0, 1, whole=True)
    (False, True, False, False)
    """

    low: float = -inf
    high: float = inf
    whole: bool = False
    above: bool = False
    """Without `low` itself."""
    below: bool = False
    """Without `high` itself."""

    def __contains__(self, value: object) -> bool:
        # To Python a bool is a number; in a setting it is a mistake.
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        number = float(value)
        on_open_end = (self.above and number == self.low) or (self.below and number == self.high)
        return isfinite(number) and self.low <= number <= self.high and not on_open_end

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'at least'} {self.low}" if isfinite(self.low) else ""
        high = f"{'below' if self.below else 'at most'} {self.high}" if isfinite(self.high) else ""
        kind = "a whole number" if self.whole else "a number"
        return ", ".join(filter(None, (kind, " and ".join(filter(None, (low, high))))))


SHARE = Range(0, 1)
SIDE = Range(1, whole=True)
POSITIVE = Range(0, above=True)


def check_numbers(owner: object, **ranges: Range) -> None:
    """Raise where a parameter of a frozen dataclass is no number of its range."""
    for name, allowed in ranges.items():
        value = getattr(owner, name)
        if value not in allowed:
            raise ConfigError(f"{type(owner).__name__}({name}={value!r}): {name} must be {allowed}")
        if isinstance(value, np.generic):
            # A cache is found by the `repr` of its stages, which for NumPy's numbers is another.
            object.__setattr__(owner, name, value.item())


def check_word(owner: object, name: str, known: Collection[str]) -> None:
    """Raise where a parameter is none of the known words."""
    value: Any = getattr(owner, name)
    if value not in tuple(known):
        raise ConfigError(f"{type(owner).__name__}({name}={value!r}): {near_names(str(value), list(known))}")
