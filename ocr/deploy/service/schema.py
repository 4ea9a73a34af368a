"""Schema: body and answers of `POST /detect`, as OpenAPI describes them."""

from __future__ import annotations

from typing import Any

_POINT = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2, "example": [12.5, 40.0]}
_WORD = {
    "type": "object",
    "required": ["points", "score"],
    "properties": {
        "points": {"type": "array", "items": _POINT, "description": "Outline in pixels of the upright page."},
        "score": {"type": "number", "minimum": 0, "maximum": 1, "description": "Mean probability inside."},
    },
}
_PAGE = {
    "type": "object",
    "required": ["page", "img_w", "img_h", "words"],
    "properties": {
        "page": {"type": "integer", "description": "Number in the PDF or TIFF, from 1; 1 for an image."},
        "img_w": {"type": "integer", "description": "Width; a page of a PDF is rendered at 200 dpi."},
        "img_h": {"type": "integer"},
        "words": {"type": "object", "additionalProperties": _WORD, "description": "Top to bottom, by 0001, 0002, ..."},
        "picture": {"type": "string", "description": "With pictures=true: the page as a data address of a JPEG."},
    },
}
_FOUND = {
    "type": "object",
    "required": ["box_thresh", "pages"],
    "properties": {
        "box_thresh": {"type": "number", "description": "Smallest score of a box."},
        "pages": {"type": "array", "items": _PAGE},
    },
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
}
BODY = {
    "required": True,
    "description": "The file itself.",
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in ("image/*", "application/pdf")},
}
_REFUSALS = {
    408: "upload_too_slow: the upload took too long",
    413: "too_many_bytes: the upload is too large",
    415: "unknown_kind: neither a known image nor a PDF; form: the body is a form instead of the file",
    422: "too_many_pixels, too_many_pages, unreadable, empty, bad_parameter",
    429: "too_many_requests: send it again in a moment",
    504: "answer_too_slow: the pages took too long",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The boxes of each page.", "content": {"application/json": {"schema": _FOUND}}},
    **{
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _REFUSALS.items()
    },
}
