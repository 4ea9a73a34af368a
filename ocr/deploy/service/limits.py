"""limits: what a request can ask for, its body within them, and the answer to one that asks for more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, Field, PositiveInt

if TYPE_CHECKING:
    from starlette.requests import Request

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
T = TypeVar("T")


class Limits(BaseModel, frozen=True, extra="forbid"):
    """Each limit has an answer of its own.

    >>> Limits(pages=5).too_many_pages().to_dict()["error"]["code"]
    'too_many_pages'
    """

    bytes: PositiveInt = 32_000_000
    """Of an upload."""
    pixels: PositiveInt = 50_000_000
    """Of an image; an A4 page at 600 dpi has 35 million. Pages of a PDF are rendered smaller instead."""
    pages: PositiveInt = 20
    """Of a PDF or TIFF."""
    scans: PositiveInt = 100
    """Of a JPEG, each of which is a pass over all pixels; ordinary progressive files have about 10."""
    seconds: Seconds = 30.0
    """For the upload, and again for finding the text, and again for sending the answer."""
    header_seconds: Seconds = 10.0
    """For the header of a request."""
    requests: PositiveInt = 16
    """At once: uploading, waiting, at work and being answered together."""
    connections: PositiveInt = 256
    """At once, with a request or without; others are closed. Each takes a file descriptor."""

    def too_many_bytes(self) -> Refusal:
        return Refusal(413, "too_many_bytes", f"An upload may have at most {self.bytes:,} bytes. Send a smaller file.")

    def too_many_pixels(self) -> Refusal:
        message = f"An image may have at most {self.pixels:,} pixels. Send a smaller one, or a part of it."
        return Refusal(422, "too_many_pixels", message)

    def too_many_scans(self) -> Refusal:
        message = f"A JPEG may have at most {self.scans} scans. Save it again, as baseline or with fewer."
        return Refusal(422, "too_many_scans", message)

    def too_many_pages(self) -> Refusal:
        return Refusal(422, "too_many_pages", f"A file may have at most {self.pages} pages. Send it in parts.")

    def too_many_requests(self) -> Refusal:
        message = f"{self.requests} requests are at work already. Send this one again in a moment."
        return Refusal(429, "too_many_requests", message, {"Retry-After": "1"})

    def upload_too_slow(self) -> Refusal:
        message = f"The upload took longer than {self.seconds:g} seconds. Send a smaller file."
        # The rest of the upload must not be taken for the next request.
        return Refusal(408, "upload_too_slow", message, {"Connection": "close"})

    def answer_too_slow(self) -> Refusal:
        message = f"No answer within {self.seconds:g} seconds. Send fewer pages, or try again when less is going on."
        return Refusal(504, "answer_too_slow", message)


class Refusal(Exception):  # noqa: N818
    """An answer other than the one that was asked for."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}

    def to_dict(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}


def no_file() -> Refusal:
    """For a form, as browsers and `curl -F` send it."""
    message = "The form has no file. Send one: curl -F file=@scan.jpg URL, or the file itself as the body."
    return Refusal(422, "no_file", message)


def unknown_kind() -> Refusal:
    message = "This is neither a PDF nor a known image (JPEG, PNG, WebP, TIFF, BMP, GIF, JPEG 2000, PPM)."
    return Refusal(415, "unknown_kind", message)


def empty_body() -> Refusal:
    return Refusal(422, "empty", "The upload has no bytes. Send the file as the body of the request.")


def unreadable(kind: str) -> Refusal:
    """For an image or a PDF that cannot be decoded."""
    cause = "is damaged, or has a password" if kind == "PDF" else "is damaged, or smaller than 4 pixels"
    return Refusal(422, "unreadable", f"The {kind} cannot be read: it {cause}.")


class ClientGoneError(Exception):
    """The client has closed the connection before its answer."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """The upload, kept in memory; raises Refusal or ClientGoneError."""
    from starlette.requests import ClientDisconnect

    if int(request.headers.get("content-length", "0")) > limits.bytes:
        raise limits.too_many_bytes()
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.bytes:
                    raise limits.too_many_bytes()
    except TimeoutError:
        raise limits.upload_too_slow() from None
    except ClientDisconnect:
        raise ClientGoneError from None
    # Other types do not matter: the content tells, and curl calls every body a form by default.
    kind = request.headers.get("content-type", "")
    file = file_of_form(bytes(body), kind) if kind.lower().startswith("multipart/") else bytes(body)
    if not file:
        raise empty_body()
    return file


def file_of_form(body: bytes, content_type: str) -> bytes:
    """The content of the first file in a form; raises Refusal if there is none."""
    from python_multipart.exceptions import MultipartParseError
    from python_multipart.multipart import MultipartParser, parse_options_header

    parts: list[tuple[bytearray, bytearray]] = []

    def begin() -> None:
        parts.append((bytearray(), bytearray()))

    callbacks: Any = {
        "on_part_begin": begin,
        "on_header_field": lambda data, start, end: parts[-1][0].extend(data[start:end] + b":"),
        "on_header_value": lambda data, start, end: parts[-1][0].extend(data[start:end]),
        "on_header_end": lambda: parts[-1][0].extend(b"\n"),
        "on_part_data": lambda data, start, end: parts[-1][1].extend(data[start:end]),
    }
    try:
        parser = MultipartParser(parse_options_header(content_type)[1].get(b"boundary", b""), callbacks)
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise no_file() from error
    for header, content in parts:
        if b"filename=" in header.lower():
            return bytes(content)
    raise no_file()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T], limits: Limits) -> T:
    """The result of the work, which is cancelled if it takes too long or the client leaves. The body must be read."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait({task, gone}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError if gone.done() else limits.answer_too_slow()
    finally:
        task.cancel()
        gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
