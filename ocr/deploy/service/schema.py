"""schema: body and answers of `POST /detect`, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

Point = tuple[float, float]


class FoundWord(BaseModel):
    points: Annotated[list[Point], Field(description="Outline in pixels of the upright page.", examples=[[[12.5, 40]]])]
    score: Annotated[float, Field(ge=0, le=1, description="Mean probability inside.")]


class FoundPage(BaseModel):
    page: Annotated[int, Field(description="Number in the PDF or TIFF, from 1; 1 for an image.")]
    img_w: Annotated[int, Field(description="Width; a page of a PDF is rendered at 200 dpi.")]
    img_h: int
    words: Annotated[dict[str, FoundWord], Field(description="Top to bottom, by 0001, 0002, ...")]
    picture: Annotated[str | None, Field(description="With pictures=true: the page as a data address of a JPEG.")] = (
        None
    )


class Found(BaseModel):
    box_thresh: Annotated[float, Field(description="Smallest score of a box.")]
    pages: list[FoundPage]


class ErrorText(BaseModel):
    code: str
    message: str


class Error(BaseModel):
    error: ErrorText


_FILE = {"type": "string", "format": "binary"}
BODY = {
    "required": True,
    "description": "The file itself, or a form with the file.",
    "content": {
        **{name: {"schema": _FILE} for name in ("image/*", "application/pdf")},
        "multipart/form-data": {"schema": {"type": "object", "properties": {"file": _FILE}}},
    },
}
_REFUSALS = {
    408: "upload_too_slow: the upload took too long",
    413: "too_many_bytes: the upload is too large",
    415: "unknown_kind: neither a known image nor a PDF",
    422: "too_many_pixels, too_many_scans, too_many_pages, unreadable, empty, no_file, bad_parameter",
    429: "too_many_requests: send it again in a moment",
    504: "answer_too_slow: the pages took too long",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The boxes of each page.", "model": Found},
    **{status: {"description": text, "model": Error} for status, text in _REFUSALS.items()},
}
