"""`ocr serve` as its own process, without torch: its first line, and its end."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rejection import rejects
from service_client import PATIENCE_SECONDS, Client, encoded
from typer.testing import CliRunner

from ocr.cli import app
from ocr.deploy.service.command import listen
from ocr.errors import ConfigError

# None makes an import fail as if the library were not there.
COMMAND = (
    "import sys; sys.modules.update(dict.fromkeys(('torch', 'timm', 'lightning'))); from ocr.cli import main; main()"
)


@pytest.fixture
def process(onnx_file) -> Iterator[subprocess.Popen[str]]:
    pytest.importorskip("uvicorn")
    options = ["serve", str(onnx_file), "--port", "0", "--threads", "1"]
    started = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield started
    started.kill()
    started.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_it_serves_an_exported_model_without_torch_and_finishes_an_upload_when_it_is_ended(process, page, number):
    line = process.stdout.readline()
    found = re.fullmatch(r"serving onnx fp32 on http://127\.0\.0\.1:(\d+) \(Ctrl-C ends it\)\n", line)
    assert found, line + process.stderr.read()
    client = Client(int(found[1]))
    body = encoded(page)
    assert len(client.detect(body).json()["pages"][0]["words"]) > 3
    with client.begin_upload(len(body), body[:100]) as connection:
        process.send_signal(number)
        # The server stops listening when it has seen the signal.
        while not refuses(client.port):
            pass
        connection.sendall(body[100:])
        assert connection.recv(20).startswith(b"HTTP/1.1 200 ")
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, output, errors) == (0, "ended\n", "")


def refuses(port: int) -> bool:
    with socket.socket() as other:
        return other.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_is_taken_is_told_before_a_model_is_loaded():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with rejects(ConfigError, setting="--host --port", value=("127.0.0.1", port)):
            listen("127.0.0.1", port)


def test_a_host_that_does_not_exist_is_told():
    for host in ("203.0.113.7", "a..b"):
        with rejects(ConfigError, setting="--host --port", value=(host, 0)):
            listen(host, 0)


@pytest.mark.parametrize("option", ["--max-megabytes", "--max-megapixels", "--max-seconds", "--wait-ms"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_limit_that_cannot_be_is_told_by_its_option(option, value):
    ended = CliRunner().invoke(app, ["serve", "nowhere.onnx", option, value])
    assert isinstance(ended.exception, ConfigError)
    assert (ended.exception.setting, str(ended.exception.value)) == (option, str(float(value)))


@pytest.mark.parametrize("option", ["--threads", "--batch-size", "--max-pages", "--max-requests"])
def test_a_count_below_one_is_told_by_its_option(option):
    ended = CliRunner().invoke(app, ["serve", "nowhere.onnx", option, "0"])
    assert ended.exit_code == 2
    assert option in ended.output
