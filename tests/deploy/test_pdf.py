"""PDFs: what cannot be read is named, and leaves nothing open."""

import io
import os
import sys
from pathlib import Path

import pytest
from PIL import Image
from rejection import rejects

from ocr.deploy.pdf import count_pdf_pages, render_pdf_page
from ocr.errors import ImageError

pytest.importorskip("pypdfium2")


def without_pages() -> bytes:
    """A PDF whose catalogue refers to no list of pages; of the same length, so that its table of objects is right."""
    stream = io.BytesIO()
    Image.new("RGB", (40, 30)).save(stream, "PDF")
    return stream.getvalue().replace(b"/Pages 4 0 R", b"/Pages 4.0 R")


def open_files(below: Path) -> list[str]:
    """Files of a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return [path for path in found if path.startswith(str(below))]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_pdf_without_pages_is_named_and_closed(tmp_path):
    file = tmp_path / "empty.pdf"
    file.write_bytes(without_pages())
    for content in (str(file), without_pages()):
        with rejects(ImageError, value="it has no pages", path="empty.pdf"):
            count_pdf_pages(content, "empty.pdf")
        with rejects(ImageError, value="it has no pages", path="empty.pdf"):
            render_pdf_page(content, "empty.pdf", 0, 10**6)
    assert open_files(tmp_path) == []


def test_a_pdf_that_is_damaged_or_gone_is_named_with_the_reason(tmp_path):
    file = tmp_path / "bad.pdf"
    with rejects(ImageError, path="bad.pdf") as gone:
        count_pdf_pages(str(file), "bad.pdf")
    assert str(file) in str(gone.value.value)
    file.write_bytes(b"%PDF-1.4\nnothing")
    with rejects(ImageError, path="bad.pdf") as damaged:
        count_pdf_pages(str(file), "bad.pdf")
    assert "format" in str(damaged.value.value)
