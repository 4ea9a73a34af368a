"""connections: uvicorn's protocol with a limit of connections, and with time limits for clients that stop."""

from __future__ import annotations

import asyncio
from typing import Any

from ocr.deploy.service.limits import Limits
from ocr.optional import require


def server_config(app: object, limits: Limits, **options: Any) -> Any:
    """The configuration of uvicorn for the service."""
    uvicorn = require("uvicorn", "glyphfeed serve")
    quiet = {"access_log": False, "server_header": False, "proxy_headers": False, "ws": "none"}
    return uvicorn.Config(app, http=limited_protocol(limits), **(quiet | options))


def limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Uvicorn alone waits for ever for the rest of a header, and for a client that does not read its answer."""
    require("uvicorn", "glyphfeed serve")
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class LimitedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None
        _watched: object = None
        """The request that the deadline is for; None: the header of the next one."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
            else:
                self._set_deadline(None, limits.header_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # Until all of it is sent, the deadline of the request stays.
            if self._is_busy:
                self._watch()

        @property
        def _is_busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _watch(self) -> None:
            """Set the deadline of a new request, or of the header of the next one."""
            if self._is_busy and self._watched is not self.cycle:
                # The service itself answers a slow upload and slow pages, each after `seconds`.
                self._set_deadline(self.cycle, 3 * limits.seconds)
            elif not self._is_busy and self._watched is not None:
                self._set_deadline(None, limits.header_seconds)

        def _set_deadline(self, watched: object, seconds: float) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._watched = watched
            self._deadline = self.loop.call_later(seconds, self._expire)

        def _expire(self) -> None:
            # An answer that is sent leaves an idle connection, which uvicorn closes.
            is_sent = self._watched is not None and not self._is_busy and not self.transport.get_write_buffer_size()
            if not is_sent:
                self.transport.abort()

    return LimitedProtocol
