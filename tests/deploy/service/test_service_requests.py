"""Clients that are slow, or gone."""

import socket

import pytest
from rejection import rejects
from service_client import encoded, eventually

from ocr.deploy.service.limits import Limits
from ocr.errors import ConfigError


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


@pytest.mark.parametrize("name", ["bytes", "pixels", "pages", "seconds", "requests"])
def test_a_limit_must_be_positive(name):
    with rejects(ConfigError, setting=f"Limits.{name}", value=0):
        Limits(**{name: 0})
