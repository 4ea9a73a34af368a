"""glyphfeed predict, twice: what has changed meanwhile is not in the second outputs as it was."""

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusal import ends_well

from ocr import Detector, cli


@pytest.fixture
def pages(tmp_path, monkeypatch) -> Path:
    """Two images of noise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    for number, name in enumerate(("a.png", "b.png")):
        noise(number).save(tmp_path / "pages" / name)
    return tmp_path / "pages"


@pytest.fixture
def run(noise_detector, pages, monkeypatch):
    def command(*words: str, images: str = "pages", out: str = "found") -> list[str]:
        """Names of the pages in predictions.json."""
        given = ["predict", str(noise_detector), images, "--out", out, *words]
        monkeypatch.setattr(sys, "argv", ["glyphfeed", *given])
        ends_well(cli.main)
        return list(json.loads(Path(out, "predictions.json").read_text())["images"])

    return command


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (90, 80, 3), dtype=np.uint8))


def test_drawings_of_the_run_before_are_not_pages_of_the_next(run, pages, capsys):
    for _ in range(2):
        assert run(out="pages/found") == ["a.png", "b.png"]
        assert len(list(pages.rglob("*.jpg"))) == 2
    assert "2 pages left out: drawings in pages/found/drawn" in " ".join(capsys.readouterr().out.split())


def test_a_changed_file_that_cannot_be_read_any_more_is_not_in_the_outputs(run, pages, capsys):
    assert run() == ["a.png", "b.png"]
    (pages / "a.png").write_bytes(b"damaged")
    assert run("--skip-bad") == ["b.png"]
    assert "all 1 pages were there" in capsys.readouterr().out
    noise(3).save(pages / "a.png")
    assert run() == ["a.png", "b.png"]


def test_pages_that_a_pdf_has_no_more_are_not_in_the_outputs(run, pages):
    pytest.importorskip("pypdfium2")
    noise(0).save(pages / "c.pdf", save_all=True, append_images=[noise(1), noise(2)], resolution=200)
    assert run()[2:] == ["c.pdf#page=1", "c.pdf#page=2", "c.pdf#page=3"]
    noise(3).save(pages / "c.pdf", resolution=200)
    for _ in range(2):
        assert run()[2:] == ["c.pdf#page=1"]


def test_a_file_that_changes_while_it_is_read_is_done_again(run, pages, monkeypatch):
    prepare = Detector.prepare
    done = []

    def changed_meanwhile(self, page):
        views = prepare(self, page)
        done.append(page.name)
        if len(done) == 1:
            noise(7).save(page.name)
            os.utime(page.name, ns=(1, 1))
        return views

    monkeypatch.setattr(Detector, "prepare", changed_meanwhile)
    run("--readers", "1")
    run("--readers", "1")
    run("--readers", "1")
    assert [Path(name).name for name in done] == ["a.png", "b.png", "a.png"]


def test_names_on_standard_input_need_not_be_utf_8(run, pages, monkeypatch):
    name = b"pages/\xff.png"
    os.rename("pages/a.png", name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(name + b"\n"), encoding="utf-8"))
    assert run("--no-draw", images="-") == [os.fsdecode(name)]
