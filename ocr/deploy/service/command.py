"""The command `glyphfeed serve`."""

from __future__ import annotations

import signal
import socket
from ipaddress import ip_address
from math import inf, isfinite
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ocr.errors import ConfigError
from ocr.models.packaged import BUNDLED, named_detector

if TYPE_CHECKING:
    from ocr.deploy.service.limits import Limits

Polygons = Literal["quad", "curved"]
EXAMPLES = (
    "glyphfeed serve exported/model.onnx",
    "glyphfeed serve best.ckpt --port 0 --threads 2",
    "glyphfeed serve exported --host 0.0.0.0 --max-pages 5 --max-requests 64",
    "curl -F file=@scan.jpg http://127.0.0.1:8000/detect",
)


def serve(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A checkpoint, an exported folder, or glyphfeed: the bundled detector."),
    ] = BUNDLED,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or a name that the runtime knows.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Cores for the model; default: all.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Most pages per call of the model.")] = 4,
    wait_ms: Annotated[float, typer.Option(help="How long a page waits for others of its size.")] = 5,
    max_megabytes: Annotated[float, typer.Option(help="Largest upload; else 413.")] = 32,
    max_megapixels: Annotated[float, typer.Option(help="Largest image; else 422.")] = 50,
    max_pages: Annotated[int, typer.Option(min=1, help="Most pages of a PDF or TIFF; else 422.")] = 20,
    max_seconds: Annotated[float, typer.Option(help="For the upload (else 408), then for the answer (else 504).")] = 30,
    max_requests: Annotated[int, typer.Option(min=1, help="Most requests at once; else 429.")] = 16,
    max_connections: Annotated[int, typer.Option(min=1, help="Most connections at once; others are closed.")] = 256,
    polygons: Annotated[
        Polygons | None, typer.Option(help="quad or curved; default: quad if the detector was trained on them.")
    ] = None,
) -> None:
    """Find text over HTTP, and in a browser.

    POST an image or a PDF to /detect, or open the address. Nothing is stored.

    There is no password: everyone who reaches the address can use it.
    """
    limits = _limits(
        ("--max-megabytes", "bytes", max_megabytes, 10**6),
        ("--max-megapixels", "pixels", max_megapixels, 10**6),
        ("--max-pages", "pages", max_pages, 1),
        ("--max-seconds", "seconds", max_seconds, None),
        ("--max-requests", "requests", max_requests, 1),
        ("--max-connections", "connections", max_connections, 1),
    )
    if not 0 <= wait_ms < inf:
        raise ConfigError(f"--wait-ms {wait_ms:g} must be a number >= 0", setting="--wait-ms", value=wait_ms)
    with listen(host, port) as listener:
        from ocr.deploy.detector import Detector
        from ocr.deploy.service.app import build_app

        file = named_detector(model)
        detector = Detector.load(file, device=device, threads=threads, max_pixels=limits.pixels, polygons=polygons)
        app = build_app(detector, limits, batch_size, wait_ms / 1000)
        _run(app, listener, limits, f"{detector.info.format} {detector.info.precision}")


def _limits(*options: tuple[str, str, float, int | None]) -> Limits:
    """Limits of options with their names, values and, for whole numbers, units; a bad one is named in a ConfigError."""
    from pydantic import ValidationError

    from ocr.deploy.service.limits import Limits

    given = {
        name: value if unit is None or not isfinite(value) else round(value * unit) for _, name, value, unit in options
    }
    try:
        return Limits.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        option, _, value, _ = next(item for item in options if item[1] == first["loc"][0])
        raise ConfigError(f"{option} {value:g}: {first['msg']}. Set another", setting=option, value=value) from error


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, before time is spent on loading a model."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:  # UnicodeError: the name has an empty or endless part.
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--host {host} --port {port} cannot be listened on ({reason}). Choose others; --port 0 takes any that is "
            "free",
            setting="--host --port",
            value=(host, port),
        ) from error


def _run(app: object, listener: socket.socket, limits: Limits, kind: str) -> None:
    """Serve until SIGINT or SIGTERM; requests at work are finished first."""
    import uvicorn

    from ocr.deploy.service.connections import server_config

    config = server_config(app, limits, log_level="warning", timeout_graceful_shutdown=round(limits.seconds) + 1)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"serving {kind} on http://{shown}:{port} (Ctrl-C ends it)")
    if not ip_address(host).is_loopback:
        typer.secho("everyone who reaches this address can use it: there is no password", fg="yellow", err=True)
    # Uvicorn handles both while it runs, and raises them again when it has ended: that is the ordinary end here.
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    uvicorn.Server(config).run(sockets=[listener])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    typer.echo("ended")
