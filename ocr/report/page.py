"""A page from its template: one HTML file that needs no network."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ocr.atomic import replacing
from ocr.report import numbers

WRAP_AFTER = "./_="


@cache
def environment() -> Environment:
    """The templates of this package, with numbers as people read them."""
    made = Environment(
        loader=PackageLoader("ocr.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    made.filters |= {
        "seconds": numbers.in_seconds,
        "ms": numbers.in_ms,
        "bytes": numbers.in_bytes,
        "percent": numbers.in_percent,
        "times": numbers.in_times,
        "count": numbers.in_count,
        "score": numbers.in_score,
        "points": numbers.in_points,
        "breakable": breakable,
        "printable": printable,
    }
    return made


def render(template: str, **content: Any) -> str:
    """The page of a template as text."""
    return environment().get_template(template).render(**content)


def write_page(path: Path, template: str, **content: Any) -> None:
    """Write the page of a template, completely or not at all; what it is made of can be an iterator."""
    with replacing(path) as stream:
        for part in environment().get_template(template).generate(**content):
            stream.write(part.encode(errors="replace"))


def printable(value: object) -> str:
    r"""Text as one line; characters that are not printable, of which file names can hold any, as escapes.

    >>> print(printable("a\nb\udcff"))
    a b\udcff
    """
    line = " ".join(str(value).split())
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


def breakable(text: object) -> Markup:
    """Text that can wrap after a dot, a slash, an underscore or an equals sign.

    >>> breakable("a.b=<1>")
    Markup('a.<wbr>b=<wbr>&lt;1&gt;')
    """
    shown = printable(text)
    return Markup("").join(escape(letter) + Markup("<wbr>" if letter in WRAP_AFTER else "") for letter in shown)
