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
