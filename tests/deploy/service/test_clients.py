"""Clients that are slow, gone or hostile; ordinary pages are answered meanwhile."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from service_client import PATIENCE_SECONDS, Client, encoded, eventually

from ocr.deploy.service.command import listen
from ocr.deploy.service.connections import server_config
from ocr.deploy.service.limits import Limits
from ocr.deploy.service.worker import PageThreads


def received(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(10_000):
        parts.append(part)
    return b"".join(parts)


def test_a_client_that_is_killed_in_the_middle_of_its_upload_leaves_nothing_behind(start_server, detector, page):
    client = start_server(detector, requests=1)
    body = encoded(page)
    connection = client.begin_upload(len(body), body[:100])
    assert client.metric("glyphfeed_requests_at_work") == 1
    assert client.detect(body).status == 429
    # A reset, as of a killed process: without the polite end of a connection.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    eventually(lambda: client.metric("glyphfeed_requests_at_work") == 0)
    assert client.metric("glyphfeed_clients_gone_total") == 1
    assert client.detect(body).status == 200


def test_an_upload_that_takes_too_long_is_told_so_and_cut_off(start_server, detector, page):
    client = start_server(detector, seconds=0.5)
    body = encoded(page)
    with client.begin_upload(len(body), body[:100]) as connection:
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"upload_too_slow" in answer
    assert client.metric("glyphfeed_requests_at_work") == 0


def test_a_slow_upload_within_the_limit_is_served(client, page):
    body = encoded(page)
    with client.begin_upload(len(body)) as connection:
        for at in range(0, len(body), 1000):
            connection.sendall(body[at : at + 1000])
            assert client.get("/health").status == 200
        assert received(connection).startswith(b"HTTP/1.1 200 ")


def test_nobody_works_for_a_client_that_left_while_it_waited(start_server, gated, page):
    detector, gate = gated
    client = start_server(detector, requests=1)
    body = encoded(page)
    connection = client.begin_upload(len(body), body)
    assert gate.reached.wait(300)
    assert client.metric("glyphfeed_requests_at_work") == 1
    connection.close()
    eventually(lambda: client.metric("glyphfeed_requests_at_work") == 0)
    assert client.metric("glyphfeed_clients_gone_total") == 1
    gate.open.set()
    assert client.detect(body).status == 200


def with_scans(page: np.ndarray, scans: int) -> bytes:
    """A progressive JPEG whose last scan is there many times."""
    data = encoded(page, "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def test_a_jpeg_of_a_thousand_passes_is_refused_and_ordinary_pages_are_answered(start_server, detector, page):
    client = start_server(detector, seconds=20)
    attack = with_scans(np.full((900, 900, 3), 200, dtype=np.uint8), 1500)
    assert len(attack) < 2_000_000
    with ThreadPoolExecutor(8) as threads:
        refused = [threads.submit(client.detect, attack) for _ in range(8)]
        assert client.detect(encoded(page)).status == 200
        assert {(one.result().status, one.result().error) for one in refused} == {(422, "too_many_scans")}
    assert client.detect(encoded(page, "JPEG", progressive=True)).status == 200


def test_pages_that_hang_in_their_decoder_give_up_their_places():
    """Whatever a decoder does not come back from, two threads later the next page has its turn."""
    ended = threading.Event()

    async def run() -> str:
        pages = PageThreads(2, 0.2, "page")
        hanging = [asyncio.ensure_future(pages.run(ended.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        found = await pages.run(lambda: "found")
        assert not any(page.done() for page in hanging)
        ended.set()
        assert await asyncio.gather(*hanging) == [True, True]
        pages.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS)) == "found"


def test_a_page_whose_client_has_gone_before_its_turn_is_not_begun_and_leaves_its_place():
    ended, begun = threading.Event(), []

    async def run() -> None:
        pages = PageThreads(1, PATIENCE_SECONDS, "page")
        first = asyncio.ensure_future(pages.run(ended.wait))
        second = asyncio.ensure_future(pages.run(lambda: begun.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        ended.set()
        await first
        await pages.run(lambda: begun.append("third"))
        pages.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS))
    assert begun == ["third"]


def connect(client: Client, *lines: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=30)
    connection.sendall(b"".join(line + b"\r\n" for line in lines))
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of a connection, which an attack of today keeps for ever."""
    try:
        # The rest of an answer might come first.
        while connection.recv(10_000):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("begun", [(), (b"POST /detect HTTP/1.1", b"Host: x")], ids=["silent", "half a header"])
def test_a_connection_that_does_not_finish_its_header_is_closed(start_server, detector, page, begun):
    client = start_server(detector, header_seconds=0.3)
    with connect(client, *begun) as connection:
        assert client.detect(encoded(page)).status == 200
        assert is_closed(connection)


def test_a_second_header_that_is_not_finished_closes_the_connection_too(start_server, detector):
    client = start_server(detector, header_seconds=0.3)
    with connect(client, b"GET /health HTTP/1.1", b"Host: x", b"") as connection:
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert is_closed(connection)


def test_connections_beyond_the_limit_are_closed_at_once_and_others_served_when_there_is_room(
    start_server, detector, page
):
    client = start_server(detector, connections=3)
    silent = [connect(client) for _ in range(3)]
    with connect(client) as one_more:
        assert is_closed(one_more)
    for connection in silent:
        connection.close()
    eventually(lambda: answers(client, encoded(page)))


def answers(client: Client, body: bytes) -> bool:
    try:
        return client.detect(body).status == 200
    except OSError:
        return False


def slow_reader(port: int, request: bytes) -> socket.socket:
    """A client that reads the beginning of its answer; with a small window, the rest stays at the server."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(PATIENCE_SECONDS)
    reader.connect(("127.0.0.1", port))
    reader.sendall(request)
    assert reader.recv(12) == b"HTTP/1.1 200"
    return reader


def test_an_answer_that_is_not_read_counts_as_a_request(start_server, detector, page):
    client = start_server(detector, requests=1)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (990, 990, 3), dtype=np.uint8))
    body = encoded(np.asarray(noise), "TIFF", save_all=True, append_images=[noise] * 3)
    header = f"POST /detect?pictures=true HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with slow_reader(client.port, header.encode() + body):
        assert client.detect(encoded(page)).status == 429
    eventually(lambda: client.detect(encoded(page)).status == 200)


def test_an_answer_that_is_not_read_is_dropped_after_its_time():
    uvicorn = pytest.importorskip("uvicorn")
    ended = threading.Event()

    async def large_answer(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(500):
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        ended.set()

    config = server_config(large_answer, Limits(seconds=0.2), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        with slow_reader(listener.getsockname()[1], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
            assert ended.wait(PATIENCE_SECONDS)
            eventually(lambda: not server.server_state.connections)
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("name", Limits.model_fields)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_must_be_positive(name, value):
    with pytest.raises(ValidationError, match=name):
        Limits(**{name: value})
