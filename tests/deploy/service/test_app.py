"""The service: real uploads to a real server, and the answer to each that it refuses."""

import json
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import pairwise

import numpy as np
import pytest
from service_client import PATIENCE_SECONDS, encoded, eventually, pdf


def words(page: dict) -> list[tuple]:
    return [(np.array(word["points"]), word["score"]) for word in page["words"].values()]


def assert_same_words(found: dict, expected: dict) -> None:
    assert len(found["words"]) == len(expected["words"]) > 3
    for (points, score), (other_points, other_score) in zip(words(found), words(expected), strict=True):
        assert np.allclose(points, other_points, atol=0.5)
        assert score == pytest.approx(other_score, abs=1e-3)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
def test_an_image_is_answered_with_what_the_detector_finds(client, detector, page, format):
    body = encoded(page, format)
    answer = client.detect(body)
    assert answer.status == 200, answer.body
    (found,) = answer.json()["pages"]
    assert (found["page"], found["img_w"], found["img_h"]) == (1, 100, 140)
    assert list(found["words"])[:2] == ["0001", "0002"]
    assert_same_words(found, detector(body).to_dict())
    assert "picture" not in found
    assert answer.json()["box_thresh"] == detector.boxes.box_thresh


def test_every_page_of_a_pdf_is_answered_in_order(client, detector, page):
    body = pdf(page, page[:70], page)
    answer = client.detect(body, **{"Content-Type": "application/pdf"})
    assert answer.status == 200, answer.body
    expected = detector(body)
    found = answer.json()["pages"]
    assert [(one["page"], one["img_h"]) for one in found] == [(1, 141), (2, 71), (3, 141)]
    for one, other in zip(found, expected, strict=True):
        assert_same_words(one, other.to_dict())


def test_the_threshold_of_a_request_is_that_of_the_boxes(client, detector, page):
    body = encoded(page)
    scores = sorted(score for _, score in words(client.detect(body, "?box_thresh=0").json()["pages"][0]))
    assert scores[0] < detector.boxes.box_thresh
    # Within the widest gap, so that rounding does not matter.
    _, low, high = max((high - low, low, high) for low, high in pairwise(scores))
    (found,) = client.detect(body, f"?box_thresh={(low + high) / 2}").json()["pages"]
    assert sorted(score for _, score in words(found)) == [score for score in scores if score >= high]
    assert client.detect(body, "?box_thresh=1").json()["pages"][0]["words"] == {}


def test_a_picture_of_the_upright_page_comes_with_it_on_request(client, page):
    from base64 import b64decode
    from io import BytesIO

    from PIL import Image

    turned = encoded(
        np.rot90(page).copy(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    )
    for body, size in ((turned, (100, 140)), (pdf(page), (100, 141))):
        (found,) = client.detect(body, "?pictures=true").json()["pages"]
        kind, _, data = found["picture"].partition(",")
        assert kind == "data:image/jpeg;base64"
        assert Image.open(BytesIO(b64decode(data))).size == size == (found["img_w"], found["img_h"])


def png_bomb(side: int) -> bytes:
    """A PNG that declares a page of this size and has none of its pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"\0garbage" * 100, 415, "unknown_kind"),
        (b"/etc/passwd", 415, "unknown_kind"),
        (b"http://127.0.0.1/scan.png", 415, "unknown_kind"),
        (b"", 422, "empty"),
        (png_bomb(1001), 422, "too_many_pixels"),
        (png_bomb(2**31 - 1), 422, "too_many_pixels"),
        (png_bomb(900), 422, "unreadable"),
        (b"\xff\xd8\xff\xe0" + bytes(500), 422, "unreadable"),
        (b"%PDF-1.4 damaged", 422, "unreadable"),
        (bytes(2_000_001), 413, "too_many_bytes"),
    ],
)
def test_bad_uploads_have_answers_of_their_own(client, body, status, code):
    answer = client.detect(body)
    assert (answer.status, answer.error) == (status, code)
    assert len(answer.json()["error"]["message"]) > 20


def test_an_upload_without_a_length_is_cut_off_at_the_limit(client):
    sent = []

    def chunks():
        for _ in range(1000):
            sent.append(1)
            yield bytes(100_000)

    try:
        answer = client.detect(chunks())
    except OSError:  # The server may close while the client is still sending.
        assert len(sent) < 1000
    else:
        assert (answer.status, answer.error) == (413, "too_many_bytes")
    assert client.metric('glyphfeed_requests_total{status="413"}') >= 1


def test_a_pdf_with_too_many_pages_is_refused_and_a_locked_one_too(client, page):
    small = page[:40, :40]
    answer = client.detect(pdf(*[small] * 4))
    assert (answer.status, answer.error) == (422, "too_many_pages")
    assert "at most 3 pages" in answer.json()["error"]["message"]


def form(*parts: tuple[bytes, bytes]) -> bytes:
    """A form as `curl -F` sends it: each part is the rest of its header, and its content."""
    begin = b'--x\r\nContent-Disposition: form-data; name="file"'
    return b"".join(begin + rest + b"\r\n\r\n" + content + b"\r\n" for rest, content in parts) + b"--x--\r\n"


def test_a_file_in_a_form_is_found_text_in(client, detector, page):
    file = b'; filename="scan.png"\r\nContent-Type: image/png', encoded(page)
    for body in (form(file), form((b"", b"a field"), file)):
        answer = client.detect(body, **{"Content-Type": "multipart/form-data; boundary=x"})
        assert answer.status == 200, answer.body
        assert_same_words(answer.json()["pages"][0], detector(page).to_dict())
    # What curl --data-binary calls its body.
    assert client.detect(encoded(page), **{"Content-Type": "application/x-www-form-urlencoded"}).status == 200


@pytest.mark.parametrize(
    ("body", "boundary", "code"),
    [
        (form((b"", b"a field")), "; boundary=x", "no_file"),
        (form((b'; filename="empty.png"', b"")), "; boundary=x", "empty"),
        (form((b'; filename="a.png"', b"text")), "; boundary=another", "no_file"),
        (form((b'; filename="a.png"', b"text")), "", "no_file"),
        (form((b'; filename="a.png"', b"text"))[:-8], "; boundary=x", "unknown_kind"),
        (b"", "; boundary=x", "no_file"),
    ],
    ids=["no file", "an empty file", "another boundary", "no boundary", "cut off", "nothing"],
)
def test_a_form_without_a_file_is_refused(client, body, boundary, code):
    assert client.detect(body, **{"Content-Type": f"multipart/form-data{boundary}"}).error == code


@pytest.mark.parametrize("query", ["?box_thresh=2", "?box_thresh=x", "?pictures=perhaps", "?box_thresh=nan"])
def test_a_bad_parameter_is_named(client, page, query):
    answer = client.detect(encoded(page), query)
    assert (answer.status, answer.error) == (422, "bad_parameter")
    assert query[1:].partition("=")[0] in answer.json()["error"]["message"]


def test_unknown_addresses_and_methods_have_the_same_form_of_answer(client):
    assert (client.get("/nothing").status, client.get("/nothing").error) == (404, "not_found")
    answer = client.get("/detect")
    assert (answer.status, answer.error, answer.headers["allow"]) == (405, "method_not_allowed", "POST")
    # The pages that would load scripts from elsewhere.
    assert {client.get(path).status for path in ("/docs", "/redoc")} == {404}


def test_health_info_and_the_openapi_document(client, detector):
    assert client.get("/health").json() == {"status": "ok"}
    info = client.get("/info").json()
    assert info["limits"] == {
        **{"bytes": 2_000_000, "pixels": 1_000_000, "pages": 3, "scans": 100, "requests": 16, "connections": 256},
        **{"seconds": 300, "header_seconds": 10},
    }
    assert info["model"] == {"format": "torch", "precision": "fp32"}
    assert info["box_thresh"] == detector.boxes.box_thresh
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/detect", "/info", "/health", "/metrics"}
    assert set(schema["paths"]["/detect"]["post"]["responses"]) == {"200", "408", "413", "415", "422", "429", "504"}
    # No file of the machine is named.
    assert "safetensors" not in json.dumps([info, schema])


def test_metrics_count_pages_batches_and_refusals(client, page):
    before = {name: client.metric(name) for name in ("glyphfeed_pages_total", "glyphfeed_batch_pages_sum")}
    refused = client.metric('glyphfeed_requests_total{status="415"}')
    assert client.detect(pdf(page, page)).status == 200
    assert client.detect(b"garbage").status == 415
    for name, value in before.items():
        assert client.metric(name) == value + 2
    assert client.metric('glyphfeed_requests_total{status="415"}') == refused + 1
    assert client.metric("process_resident_memory_bytes") > 1e7
    assert client.metric("glyphfeed_requests_at_work") == 0


class TestBusy:
    def test_more_requests_than_the_limit_are_sent_away_until_one_has_its_answer(self, start_server, gated, page):
        detector, gate = gated
        client = start_server(detector, requests=2)
        body = encoded(page)
        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(client.detect, body) for _ in range(2)]
            eventually(lambda: client.metric("glyphfeed_requests_at_work") == 2)
            answer = client.detect(body)
            assert (answer.status, answer.error, answer.headers["retry-after"]) == (429, "too_many_requests", "1")
            assert client.get("/health").status == 200
            gate.open.set()
            assert [one.result().status for one in waiting] == [200, 200]
        assert client.detect(body).status == 200

    def test_a_request_that_takes_too_long_is_answered_and_the_next_one_is_served(self, start_server, gated, page):
        detector, gate = gated
        client = start_server(detector, seconds=0.5)
        answer = client.detect(encoded(page))
        assert (answer.status, answer.error) == (504, "answer_too_slow")
        assert client.metric("glyphfeed_requests_at_work") == 0
        gate.open.set()
        eventually(lambda: client.detect(encoded(page)).status == 200)

    def test_pages_of_two_requests_share_a_call_of_the_model(self, start_server, detector, page):
        # A batch is full with two; one page alone would wait for very long.
        client = start_server(detector, wait_seconds=PATIENCE_SECONDS)
        with ThreadPoolExecutor(2) as threads:
            one, other = threads.map(client.detect, [encoded(page)] * 2)
        assert_same_words(one.json()["pages"][0], other.json()["pages"][0])
        assert client.metric("glyphfeed_batch_pages_count") == 1
        assert client.metric("glyphfeed_batch_pages_sum") == 2

    def test_a_model_that_fails_is_a_500_without_its_secrets_and_the_service_goes_on(
        self, start_server, detector, page
    ):
        failing = copy(detector)
        fails = threading.Event()
        fails.set()

        def runtime(pages):
            if fails.is_set():
                raise RuntimeError("secret")
            return detector.runtime(pages)

        failing.runtime = runtime
        client = start_server(failing)
        answer = client.detect(encoded(page))
        assert (answer.status, answer.error) == (500, "failure")
        assert b"secret" not in answer.body
        fails.clear()
        assert client.detect(encoded(page)).status == 200
        assert client.metric('glyphfeed_requests_total{status="500"}') == 1
