"""What a request may ask for, and the answer to one that asks for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ocr.checks import POSITIVE, SIDE, check_numbers


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit has an answer of its own.

    >>> Limits(pages=5).too_many_pages().to_dict()["error"]["code"]
    'too_many_pages'
    """

    bytes: int = 32_000_000
    """Of an upload."""
    pixels: int = 50_000_000
    """Of an image; an A4 page at 600 dpi has 35 million. Pages of a PDF are rendered smaller instead."""
    pages: int = 20
    """Of a PDF or TIFF."""
    seconds: float = 30.0
    """For the upload, and once more for the answer."""
    requests: int = 16
    """At once: uploading, waiting and at work together."""

    def __post_init__(self) -> None:
        check_numbers(self, bytes=SIDE, pixels=SIDE, pages=SIDE, seconds=POSITIVE, requests=SIDE)

    def too_many_bytes(self) -> Refusal:
        return Refusal(413, "too_many_bytes", f"An upload may have at most {self.bytes:,} bytes. Send a smaller file.")

    def too_many_pixels(self) -> Refusal:
        message = f"An image may have at most {self.pixels:,} pixels. Send a smaller one, or a part of it."
        return Refusal(422, "too_many_pixels", message)

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


def a_form() -> Refusal:
    """For a body as web forms and `curl -F` send it."""
    message = "The body must be the file itself, not a form: curl --data-binary @scan.jpg URL"
    return Refusal(415, "form", message)


def unknown_kind() -> Refusal:
    message = "This is neither a PDF nor a known image (JPEG, PNG, WebP, TIFF, BMP, GIF, JPEG 2000, PPM)."
    return Refusal(415, "unknown_kind", message)


def empty_body() -> Refusal:
    return Refusal(422, "empty", "The upload has no bytes. Send the file as the body of the request.")


def unreadable(kind: str) -> Refusal:
    """For an image or a PDF that cannot be decoded."""
    cause = "is damaged, or has a password" if kind == "PDF" else "is damaged, or smaller than 4 pixels"
    return Refusal(422, "unreadable", f"The {kind} cannot be read: it {cause}.")
