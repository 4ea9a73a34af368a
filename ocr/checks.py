"""Checks of settings: numbers in a range, words from a list. An error names the setting, the value and the fix."""

from __future__ import annotations

from collections.abc import Collection
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, NamedTuple

from ocr.errors import ConfigError, near_names


class Range(NamedTuple):
    """The finite numbers that a setting can have.

    >>> str(Range(0, 1, above=True))
    'a number > 0 and <= 1'
    >>> 0 in Range(0, 1, above=True), 1 in Range(0, 1), True in Range(0, 1), 1.0 in Range(0, 1, whole=True)
    (False, True, False, False)
    """

    low: float = -inf
    high: float = inf
    whole: bool = False
    above: bool = False
    """Exclude `low` itself."""
    below: bool = False
    """Exclude `high` itself."""

    def __contains__(self, value: object) -> bool:
        # To Python a bool is a number; in a setting it is a mistake.
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        try:
            number = float(value)
        except OverflowError:  # An integer of hundreds of digits.
            return False
        on_open_end = (self.above and number == self.low) or (self.below and number == self.high)
        return isfinite(number) and self.low <= number <= self.high and not on_open_end

    def __str__(self) -> str:
        low = f"{'>' if self.above else '>='} {self.low}" if isfinite(self.low) else ""
        high = f"{'<' if self.below else '<='} {self.high}" if isfinite(self.high) else ""
        bounds = " and ".join(filter(None, (low, high)))
        return f"{'an integer' if self.whole else 'a number'} {bounds}".rstrip()


SHARE = Range(0, 1)
SIDE = Range(1, whole=True)
POSITIVE = Range(0, above=True)


def check_numbers(owner: object, **ranges: Range) -> None:
    """Raise if a parameter of a frozen dataclass is out of its range."""
    for name, allowed in ranges.items():
        value = getattr(owner, name)
        if value not in allowed:
            kind = type(owner).__name__
            problem = f"{kind}({name}={value!r}): {name} must be {allowed}"
            raise ConfigError(problem, setting=f"{kind}.{name}", value=value)
        if type(value).__module__ == "numpy":
            # Caches are found by the `repr` of their stages, and NumPy numbers have a `repr` of their own.
            object.__setattr__(owner, name, value.item())


def check_word(owner: object, name: str, known: Collection[str]) -> None:
    """Raise if a parameter of a dataclass is not one of the known words."""
    value: Any = getattr(owner, name)
    if value not in tuple(known):
        kind = type(owner).__name__
        problem = f"{kind}({name}={value!r}) is unknown. {near_names(str(value), list(known))}"
        raise ConfigError(problem, setting=f"{kind}.{name}", value=value)


def check_integer(setting: str, value: object, minimum: int = 0) -> None:
    """Raise if a setting is not an integer from `minimum` on.

    >>> check_integer("data.num_workers", -1)
    Traceback (most recent call last):
    ocr.errors.ConfigError: data.num_workers=-1 must be an integer >= 0
    """
    allowed = Range(minimum, whole=True)
    if value not in allowed:
        raise ConfigError(f"{setting}={value!r} must be {allowed}", setting=setting, value=value)


def check_choice(setting: str, value: object, known: Collection[str]) -> None:
    """Raise if a setting is not one of the known words."""
    if value not in tuple(known):
        problem = f"{setting}={value!r} is unknown. {near_names(str(value), list(known))}"
        raise ConfigError(problem, setting=setting, value=value)
