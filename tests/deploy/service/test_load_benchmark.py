"""The load test runs from end to end; its figures on tiny pages mean nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from service_client import encoded

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_moment_of_load_has_no_answer_but_those_that_are_declared(onnx_file, page, tmp_path):
    pytest.importorskip("uvicorn")
    folder = tmp_path / "images" / "val"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.png").write_bytes(encoded(page[number:]))
    options = ["--clients", "4", "--seconds", "2", "--data", str(tmp_path)]
    command = [sys.executable, str(ROOT / "benchmarks" / "service.py"), str(onnx_file), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = " ".join(done.stdout.split())
    assert "answers: p50 " in shown
    assert "'200': " in shown
    assert "bomb 422" in shown
    assert "garbage 415" in shown
    assert "faults: none" in shown
