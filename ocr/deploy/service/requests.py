"""Requests: their bodies within the limits, and no work for clients that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ocr.deploy.service.limits import Limits, a_form, empty_body

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client has closed the connection: nobody reads an answer."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """The upload, kept in memory; raises Refusal or ClientGoneError."""
    from starlette.requests import ClientDisconnect

    if int(request.headers.get("content-length", "0")) > limits.bytes:
        raise limits.too_many_bytes()
    # Other types do not matter: the content tells, and curl calls every body a form unless told otherwise.
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise a_form()
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
    if not body:
        raise empty_body()
    return bytes(body)


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
