"""Numbers of bytes, as people write and read them."""

from __future__ import annotations

import re

from ocr.errors import ConfigError

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def parse_bytes(value: int | str, setting: str = "cache.max_bytes") -> int:
    """A number of bytes, with or without a unit.

    >>> parse_bytes("1.5GB"), parse_bytes(1000)
    (1500000000, 1000)
    """
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)i?b?\s*", str(value), flags=re.IGNORECASE)
    try:
        if found is None or isinstance(value, bool):
            raise ValueError
        return int(float(found[1]) * _FACTORS[found[2].lower()])
    except ValueError:
        problem = f"{setting}={value!r} must be auto or a number of bytes, such as 20GB"
        raise ConfigError(problem, setting=setting, value=value) from None


def format_bytes(count: float) -> str:
    """A size in decimal units, as disks are sold.

    >>> format_bytes(1_234_567_890), format_bytes(0)
    ('1.2 GB', '0 B')
    """
    for unit, size in _UNITS:
        if count >= 0.9995 * size:
            return f"{count / size:.1f} {unit}" if count < 99.95 * size else f"{count / size:,.0f} {unit}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    """A duration, as long as one reads it.

    >>> [format_seconds(seconds) for seconds in (0.04, 8.31, 59.7, 125, 7300, 200_000)]
    ['0.0 s', '8.3 s', '1 min', '2 min', '2 h 2 min', '2 d 7 h']
    """
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = max(1, round(seconds / 60))
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"
    if hours:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{minutes} min"
