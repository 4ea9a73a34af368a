"""The application: its endpoints, and one form for all errors."""

# Without `from __future__ import annotations`: FastAPI reads the types of endpoints, which are local names here.

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from ocr import __version__
from ocr.deploy.detector import Detector
from ocr.deploy.service.limits import ClientGoneError, Limits, Refusal, read_body, unless_gone
from ocr.deploy.service.metrics import Metrics
from ocr.deploy.service.schema import BODY, RESPONSES
from ocr.deploy.service.worker import DetectionWorker
from ocr.optional import require
from ocr.report.page import render

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

DETECT = "/detect"
PART_BYTES = 1 << 16
HEADERS = {
    # The page holds its own style and script, and connects to this service alone.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Service:
    """What the endpoints share."""

    def __init__(self, detector: Detector, limits: Limits, batch_size: int, wait_seconds: float) -> None:
        self.detector, self.limits, self.metrics = detector, limits, Metrics()
        self.worker = DetectionWorker(detector, limits, batch_size, wait_seconds, self.metrics.batches.observe)
        self._at_work = 0
        self.metrics.at_work.set_function(lambda: self._at_work)

    async def detect(self, request: "Request", box_thresh: float, pictures: bool) -> dict[str, Any] | None:
        """The boxes of an upload; None if the client is gone. Raises Refusal."""
        started = monotonic()
        try:
            body = await read_body(request, self.limits)
            pages = await unless_gone(request, self.worker.find(body, box_thresh, pictures), self.limits)
        except ClientGoneError:
            self.metrics.gone.inc()
            return None
        except Exception as error:
            self.metrics.requests.labels(error.status if isinstance(error, Refusal) else 500).inc()
            raise
        self.metrics.requests.labels(200).inc()
        self.metrics.pages.inc(len(pages))
        self.metrics.seconds.observe(monotonic() - started)
        return {"box_thresh": box_thresh, "pages": pages}

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """One of the requests at work; only the thread of the event loop comes here."""
        if self._at_work >= self.limits.requests:
            self.metrics.requests.labels(429).inc()
            raise self.limits.too_many_requests()
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1


class Admission:
    """ASGI middleware: a request to find text counts from its first byte until its answer is sent."""

    def __init__(self, app: Any, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from fastapi.responses import JSONResponse

        if scope["type"] != "http" or scope["path"] != DETECT:
            await self.app(scope, receive, send)
            return
        try:
            with self.service.admitted():
                await self.app(scope, receive, partial(_send_in_parts, send))
        except Refusal as refusal:
            await JSONResponse(refusal.to_dict(), refusal.status, refusal.headers)(scope, receive, send)


async def _send_in_parts(send: Any, message: dict[str, Any]) -> None:
    """Each part waits until the client has read the ones before: a body at once would be sent to memory."""
    body = memoryview(message.get("body", b""))
    for start in range(PART_BYTES, len(body) + PART_BYTES, PART_BYTES) if len(body) > PART_BYTES else ():
        part = {**message, "body": bytes(body[start - PART_BYTES : start])}
        await send(part | {"more_body": message.get("more_body", False) or start < len(body)})
    if len(body) <= PART_BYTES:
        await send(message)


def build_app(
    detector: Detector, limits: Limits | None = None, batch_size: int = 4, wait_seconds: float = 0.005
) -> "FastAPI":
    """The service of a detector, for any ASGI server."""
    for module in ("fastapi", "pypdfium2", "python_multipart"):
        require(module, "glyphfeed serve")
    from fastapi import FastAPI

    service = Service(detector, limits or Limits(), batch_size, wait_seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.worker.close()

    app = FastAPI(
        title="GlyphFeed",
        version=__version__,
        description="Finds text on pages. Nothing is stored.",
        docs_url=None,  # These pages load their scripts from other hosts; the web page shows the same.
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Admission, service=service)
    _answer_errors(app)
    _add_detect(app, service)
    _add_the_rest(app, service)
    return app


def _add_detect(app: "FastAPI", service: Service) -> None:
    from fastapi import Query, Request, Response
    from fastapi.responses import JSONResponse

    least = Query(ge=0, le=1, description="Smallest score of a box; the default is the model's.")
    back = Query(description="Send each page back as a JPEG, too.")
    default = service.detector.boxes.box_thresh

    @app.post(DETECT, summary="Find text", responses=RESPONSES, openapi_extra={"requestBody": BODY})
    async def detect(
        request: Request, box_thresh: Annotated[float, least] = default, pictures: Annotated[bool, back] = False
    ) -> Response:
        found = await service.detect(request, box_thresh, pictures)
        return Response() if found is None else JSONResponse(found)


def _add_the_rest(app: "FastAPI", service: Service) -> None:
    from fastapi.responses import HTMLResponse, JSONResponse, Response

    worker, metrics = service.worker, service.metrics
    page = render("service.html", title="GlyphFeed: find text", heading="Find text")

    @app.get("/info", summary="The model and the limits")
    async def info() -> dict[str, Any]:
        model = {"format": service.detector.info.format, "precision": service.detector.info.precision}
        return {
            "version": __version__,
            "model": model,
            "box_thresh": service.detector.boxes.box_thresh,
            "limits": service.limits.model_dump(),
        }

    @app.get("/health", summary="Whether the model is running", responses={503: {"description": "It is not."}})
    async def health() -> JSONResponse:
        alive = worker.model.is_alive
        return JSONResponse({"status": "ok" if alive else "the model has ended"}, 200 if alive else 503)

    @app.get("/metrics", summary="Counters in the text format of Prometheus", response_class=Response)
    async def counters() -> Response:
        return Response(metrics.text(), media_type=metrics.content_type)

    @app.get("/", include_in_schema=False)
    async def web_page() -> HTMLResponse:
        return HTMLResponse(page, headers=HEADERS)


def _answer_errors(app: "FastAPI") -> None:
    """Every error is {"error": {"code", "message"}}, including the errors of the framework."""
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

    @app.exception_handler(Refusal)
    async def refuse(request: Any, refusal: Refusal) -> JSONResponse:
        return JSONResponse(refusal.to_dict(), refusal.status, refusal.headers)

    @app.exception_handler(RequestValidationError)
    async def bad_parameter(request: Any, error: RequestValidationError) -> JSONResponse:
        wrong = "; ".join(f"{found['loc'][-1]}: {found['msg']}" for found in error.errors())
        return JSONResponse(Refusal(422, "bad_parameter", wrong).to_dict(), 422)

    @app.exception_handler(HTTPException)
    async def no_such_thing(request: Any, error: HTTPException) -> JSONResponse:
        code = HTTPStatus(error.status_code).name.lower()
        refusal = Refusal(error.status_code, code, str(error.detail))
        return JSONResponse(refusal.to_dict(), refusal.status, error.headers)

    @app.exception_handler(Exception)
    async def failure(request: Any, error: Exception) -> JSONResponse:
        message = "The service failed on this request. Its log says why."
        return JSONResponse(Refusal(500, "failure", message).to_dict(), 500)
