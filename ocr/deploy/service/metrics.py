"""Metrics: what the service has done, as Prometheus reads it."""

from __future__ import annotations

from typing import Any

from ocr.optional import require

SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """Counters of one service, and memory and CPU time of its process."""

    def __init__(self) -> None:
        library = require("prometheus_client", "glyphfeed serve")
        self._library: Any = library
        self._registry = library.CollectorRegistry()
        library.ProcessCollector(registry=self._registry)

        def make(kind: Any, name: str, text: str, **options: Any) -> Any:
            return kind(f"glyphfeed_{name}", text, registry=self._registry, **options)

        self.requests = make(library.Counter, "requests", "Answered requests to find text.", labelnames=["status"])
        self.gone = make(library.Counter, "clients_gone", "Clients that left before their answer.")
        self.at_work = make(library.Gauge, "requests_at_work", "Requests that are uploading, waiting or at work.")
        self.seconds = make(library.Histogram, "answer_seconds", "From upload to answer, if found.", buckets=SECONDS)
        self.pages = make(library.Counter, "pages", "Pages whose text was found.")
        self.batches = make(library.Histogram, "batch_pages", "Pages per call of the model.", buckets=BATCHES)

    @property
    def content_type(self) -> str:
        return str(self._library.CONTENT_TYPE_LATEST)

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return bytes(self._library.generate_latest(self._registry))
