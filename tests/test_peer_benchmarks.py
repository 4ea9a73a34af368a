"""The benchmarks of loaders that are not ours run from end to end; the figures of a few pages mean nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import any_loader, peer_process
from benchmarks.document_parts import END, begin
from benchmarks.peer_loaders import Peer
from benchmarks.peer_process import PeerError, make_environment
from benchmarks.peer_report import PART, PICTURES

ROOT = Path(__file__).resolve().parent.parent


def run_peers(data: Path, folder: Path, *options: str) -> dict:
    """What the benchmark of peers writes to its file."""
    options = ["--data", str(data), "--folder", str(folder), "--rounds", "1", "--size", "96", *options]
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--batch-size", "4", "--workers", "1", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "figures.json").read_text())


def test_shared_memory_that_vanishes_while_it_is_listed_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "kept").write_bytes(b"abc")
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([tmp_path / "gone", tmp_path / "kept"]))
    assert peer_process._shared_memory() == {"kept": 3}


def test_the_benchmark_of_peers_tries_and_measures_each_and_continues_where_it_was(synthetic, tmp_path):
    document = tmp_path / "peers.md"
    document.write_text(f"before\n{begin(PART)}\n{END}\nafter\n")
    run_peers(synthetic, tmp_path / "peers", "--only", "torch")
    figures = run_peers(synthetic, tmp_path / "peers", "--only", "raw", "--docs", str(document))
    assert list(figures["peers"]) == ["raw", "torch"]
    for name, resumes in (("raw", "yes"), ("torch", "no: nothing to save")):
        peer = figures["peers"][name]
        assert "error" not in peer, peer
        trials = peer["trials"]
        assert (trials["resumes"], trials["notices an edit"]) == (resumes, "yes")
        assert trials["survives kill -9"].startswith("yes")
        (measured,) = peer["rounds"]
        epochs = [measured["first_run"]["first"], *measured["first_run"]["later"], *measured["second_run"]["training"]]
        assert [epoch["pages"] for epoch in epochs] == [8] * 6
        assert measured["second_run"]["memory_bytes"] > 1 << 26
    assert figures["peers"]["torch"]["trials"]["gap"] == 0
    assert figures["peers"]["raw"]["rounds"][0]["disk_bytes"] > 8 * 96 * 96 * 3
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count("| GlyphFeed, raw cache |") == 3
    assert all((tmp_path / "pictures" / name).stat().st_size > 1000 for name in PICTURES)
    assert sorted(path.name for path in (tmp_path / "peers").iterdir()) == ["figures.json", "logs"]


def test_figures_of_other_pages_are_not_mixed_with_those_of_a_run(synthetic, tmp_path):
    (tmp_path / "figures.json").write_text(json.dumps({"course": {"pages": 7}, "peers": {}}))
    options = ["--data", str(synthetic), "--folder", str(tmp_path)]
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 1
    assert "other pages or settings" in run.stderr
    assert "--folder" in run.stderr


def test_the_benchmark_of_foreign_loaders_names_predicts_and_tries_and_keeps_what_it_measured(tmp_path):
    document = tmp_path / "advisor.md"
    document.write_text(f"before\n{begin(any_loader.PART)}\n{END}\nafter\n")
    options = ["--images", "64", "--items", "4", "--folder", str(tmp_path / "kept"), "--docs", str(document)]
    chosen = [f"--only={name}" for name in ("image-folder", "webdataset")]
    command = [sys.executable, str(ROOT / "benchmarks" / "any_loader.py"), *options]
    # 1: predictions of so few items on a busy machine may be wrong.
    run = subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=900)
    assert run.returncode in (0, 1), run.stderr
    assert "every answer is right" in run.stdout or "wrong: " in run.stdout
    figures = json.loads((tmp_path / "kept" / "figures.json").read_text())
    assert list(figures) == ["image-folder", "webdataset"]
    for name, found in figures.items():
        assert "error" not in found, found
        assert found["bottleneck"] == any_loader.PIPELINES[name].bottleneck
        tried = [one for one, predicted, measured in found["verified"] if predicted > 0 < measured]
        assert tried[0] == "present"
        assert found["best"] is None or found["best"] in tried
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| torchvision ImageFolder | decoding | the dataset |" in text
    assert "| webdataset | decoding a stream | the loader |" in text


def test_a_peer_that_cannot_be_installed_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = Peer("none", "none", ("no-such-package-of-glyphfeed==0",), "", hint="libnone-dev")
    with pytest.raises(PeerError, match=r"no-such-package-of-glyphfeed.*libnone-dev"):
        make_environment(missing, tmp_path)
