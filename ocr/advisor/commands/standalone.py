"""A command as a script of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from ocr.errors import GlyphFeedError


def make_app(command: Callable[..., Any]) -> typer.Typer:
    """The command without others beside it."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(command)
    return app


def run_alone(command: Callable[..., Any]) -> NoReturn:
    """Run a command with the arguments of this process, as `ocr` would: a known error is one line."""
    try:
        make_app(command)()
    except (GlyphFeedError, OSError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.secho("interrupted", fg="yellow", err=True)
        sys.exit(130)
    sys.exit(0)
