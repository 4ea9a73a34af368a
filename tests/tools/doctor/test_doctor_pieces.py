"""A large dataset is examined piece by piece, and what is found is the same."""

import json
import sys
from pathlib import Path

import pytest
from doctor_data import SIZE, SmallDataset, box

from ocr.formats import read
from ocr.formats.row_mapping import RowMapping, RowMappingWriter
from ocr.tools.doctor import examine, write_fixed


def words(*outlines: list[list[float]]) -> dict[str, dict[str, list[list[float]]]]:
    return {f"{number:04d}": {"points": points} for number, points in enumerate(outlines)}


def write_defects(dataset: SmallDataset) -> Path:
    """A page of nearly every kind of finding, in two splits."""
    dataset.add("good.jpg")
    dataset.add("turned.jpg", words(box(20, 20, 120), box(20, 330, 70)), size=SIZE, orientation=6)
    dataset.add("far.jpg", words(box(150, 80, 400)))
    dataset.add("tiny.jpg", words(box(10, 10, 3, 1)), size=(2000, 1200))
    dataset.add("crossed.jpg", words([[10, 10], [60, 40], [60, 10], [10, 40]]))
    dataset.add("flat.jpg", words([[10, 10], [20, 10], [30, 10]]))
    dataset.add("empty.jpg", {})
    dataset.add("claimed.jpg", img_w=10, img_h=20)
    dataset.add("gone.jpg").unlink()
    dataset.add("cut.jpg").write_bytes(b"\xff\xd8\xff")
    twin = dataset.add("twin.jpg", split="val").read_bytes()
    dataset.add("good2.jpg").write_bytes(twin)
    dataset.add("good3.jpg").write_bytes(twin)
    dataset.examine()
    bad = {"1": {"points": [[1, 2]]}, "2": {"points": "x"}, "3": {"points": box(1, 1), "transcription": 3}}
    document = json.loads(dataset.json_path().read_text())
    document["images"]["good.jpg"]["words"] = bad
    dataset.json_path().write_text(json.dumps(document))
    (dataset.root / "images" / "train" / "notes.txt").write_text("a file that is no image")
    return dataset.root


def test_the_report_is_the_same_in_pieces_and_with_pages_that_are_not_in_memory(dataset, tmp_path, monkeypatch):
    data = write_defects(dataset)
    whole = examine(data, show_progress=False)
    fixed = [path.read_bytes() for path in write_fixed(whole, tmp_path / "whole").written]
    monkeypatch.setattr(read, "STREAMED_BYTES", 1)
    monkeypatch.setattr(sys.modules["ocr.tools.doctor.examine"], "PAGES_AT_ONCE", 2)
    pieces = examine(data, show_progress=False)
    assert isinstance(pieces.splits[0].annotations.pages, RowMapping)
    assert not isinstance(whole.splits[0].annotations.pages, RowMapping)
    assert pieces.to_json() == whole.to_json()
    assert len({finding.kind for finding in whole.findings}) >= 12
    assert [path.read_bytes() for path in write_fixed(pieces, tmp_path / "pieces").written] == fixed


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_mapping_of_rows_is_one_of_names_in_the_order_that_was_asked_for(order):
    names = ["b\udc80", "a", "c"]
    writer = RowMappingWriter(lambda value: value, lambda name, stored: (name, stored))
    for position in order:
        writer.add(names[position], position, position)
    mapping = writer.mapping()
    assert list(mapping) == names
    assert list(mapping.items()) == [(name, (name, at)) for at, name in enumerate(names)]
    assert mapping["a"] == ("a", 1)
    assert "x" not in mapping
    assert mapping.get("x") is None
    mapping.replace("a", ("other", 0))
    assert [value for _, value in mapping.items()][1] == mapping["a"] == ("other", 0)
    assert len(RowMappingWriter(list, tuple).mapping()) == 0
