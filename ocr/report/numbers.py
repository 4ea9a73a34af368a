"""Numbers as people read them: times, bytes, shares and counts."""

from __future__ import annotations

import math

from ocr.units import format_bytes

MISSING = "–"


def in_digits(value: float, digits: int = 3) -> str:
    """A number with this many significant digits, at most three decimals, and never in scientific notation.

    >>> [in_digits(value) for value in (0, 0.00042, 0.01234, 0.5, 9.996, 61.25, 12345.6)]
    ['0', '<0.001', '0.012', '0.5', '10.0', '61.2', '12,346']
    """
    if value == 0:
        return "0"
    if 0 < value < 0.0005:
        return "<0.001"
    power = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    text = f"{value:,.{min(max(digits - 1 - power, 0), 3)}f}"
    return text.rstrip("0") if power < 0 else text


def in_seconds(value: float | None) -> str:
    """A time in a suitable unit.

    >>> [in_seconds(value) for value in (0, 0.00042, 0.316, 9.81, 245, 7810)]
    ['0 s', '0.42 ms', '316 ms', '9.81 s', '4 min 5 s', '2 h 10 min']
    """
    if value is None:
        return MISSING
    if 0 < abs(value) < 0.9995:
        return f"{in_digits(1000 * value)} ms"
    if abs(value) < 99.95:
        return f"{in_digits(value)} s"
    if abs(value) < 3599.5:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def in_ms(value: float | None) -> str:
    """Always milliseconds, even above a thousand, because columns are compared."""
    return MISSING if value is None else in_digits(value)


def in_bytes(value: float | None) -> str:
    """A size in decimal units."""
    return MISSING if value is None else format_bytes(value)


def in_percent(value: float | None, signed: bool = False) -> str:
    """A share of 1; only exactly 1 is 100 %.

    >>> [in_percent(value) for value in (0, 0.0001, 0.004, 0.6149, 0.9996, 1)], in_percent(0.07, signed=True)
    (['0 %', '<0.1 %', '0.4 %', '61 %', '99.9 %', '100 %'], '+7 %')
    """
    if value is None:
        return MISSING
    percent = 100 * value
    if 99 < percent < 100:
        text = f"{math.floor(10 * percent) / 10:g}"
    elif 0 < percent < 0.05:
        text = "<0.1"
    else:
        text = f"{percent:.0f}" if abs(percent) >= 0.95 or percent == 0 else f"{percent:.1f}"
    return f"{'+' if signed and value > 0 else ''}{text.replace('-', '−')} %"


def in_times(value: float | None) -> str:
    """How many times as fast."""
    return MISSING if value is None else f"{in_digits(value, 2 if value < 99.5 else 3)} ×"


def in_count(value: float | None) -> str:
    """An integer in full, another number with three digits."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value == int(value) else in_digits(value)


def in_score(value: float | None) -> str:
    """An H-mean, precision or recall.

    >>> in_score(0.81659), in_score(None)
    ('0.817', '–')
    """
    return MISSING if value is None else f"{value:.3f}"


def in_points(value: float) -> str:
    """A difference of scores in hundredths.

    >>> in_points(0.854), in_points(-3)
    ('+0.85', '−3.00')
    """
    return f"{value:+.2f}".replace("-", "−")
