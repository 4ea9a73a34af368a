"""The runner of the benchmarks, from a process to the table in a document."""

import json

import pytest
from rejection import rejects

from benchmarks import documents, run
from benchmarks.documents import END, begin, read_part, replace_part
from benchmarks.harness import Benchmark, Figure, Place, Result, Row, Target
from ocr.errors import ConfigError

ROWS = [
    Row("plain", {"seconds": Figure(2.0, "s"), "times": Figure(1.0, " x")}, "Maps"),
    Row("compiled", {"seconds": Figure(0.4, "s"), "times": Target(5.0, " x", at_least=8)}, "Maps"),
    Row("pages", {"count": 3}, "Others"),
]
COMMAND = "python benchmarks/run.py maps --data DIR"
RESULT = Result("maps", ROWS, ["A note."], COMMAND, False, 3, "2026-01-02", 1.5, {"cores": 2, "memory_gb": 24.0})


def known(*places: Place) -> Benchmark:
    return Benchmark("maps", lambda data: iter(()), places, 3, 1, ("receipts",), (), {})


def document(folder, mark: str):
    """A folder with a README that has a mark, and what a reader wrote around it."""
    (folder / "docs").mkdir()
    (folder / "README.md").write_text(f"before\n{begin(mark)}\nold\n{END}\nafter\n")
    return folder / "README.md"


def test_a_benchmark_runs_in_a_process_of_its_own_and_keeps_rows_and_machine(synthetic, tmp_path):
    kept = tmp_path / "kept"
    options = ["--data", str(synthetic), "--rounds", "1", "--folder", str(kept), "--show"]
    assert run.main(["codecs", *options]) == 0
    found = Result.read(kept / "codecs.json")
    assert found.command == "python benchmarks/run.py codecs --data DIR --rounds 1"
    assert (found.rounds, found.synthetic) == (1, False)
    assert {"cores", "memory_gb", "python"} <= set(found.machine)
    sizes = {row.name: row.value("a page") for row in found.rows}
    assert sizes["dense: row differences, LZ4"] < sizes["raw"]
    assert json.loads((kept / "codecs.json").read_text())["name"] == "codecs"


@pytest.mark.slow
def test_the_next_benchmark_runs_after_one_that_failed(dataset_folder, tmp_path):
    (dataset_folder / "jsons" / "val.json").write_text("{")
    options = ["--data", str(dataset_folder), "--rounds", "1", "--folder", str(tmp_path / "kept"), "--show"]
    assert run.main(["codecs", "checkpointing", *options]) == 1
    assert [file.name for file in (tmp_path / "kept").glob("*.json")] == ["checkpointing.json"]


def test_a_benchmark_that_does_not_exist_is_named():
    with rejects(ConfigError, value="mapz"):
        run.main(["mapz"])


def test_rows_become_a_table_between_the_marks_with_what_is_missed(tmp_path):
    file = document(tmp_path, "speed")
    assert documents.write(tmp_path, known(Place("README#speed", caption="Maps")), RESULT) == ["README#speed"]
    text = file.read_text()
    assert text.startswith(f"before\n{begin('speed')}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "| compiled | 400 ms | 5 x (target ≥ 8 x: missed by 38 %) |" in read_part(file, "speed")
    assert "pages" not in read_part(file, "speed")
    assert f"2026-01-02, 2 CPU cores, 24 GB: `{COMMAND}`." in read_part(file, "speed")


def test_a_place_chooses_rows_and_columns():
    ((caption, rows),) = Place("README#speed", rows="compiled", columns=["times"]).tables(ROWS).items()
    assert (caption, [row.name for row in rows], list(rows[0].cells)) == ("Maps", ["compiled"], ["times"])
    with rejects(ConfigError, value="README#speed"):
        documents.render(RESULT, Place("README#speed", rows="no such row"))


def test_every_missed_target_is_reported():
    (missed,) = RESULT.missed()
    assert missed.startswith("compiled, times: ")


def test_every_mark_has_one_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "ELSEWHERE", {})
    document(tmp_path, "speed")
    documents.check_marks(tmp_path, {"maps": known(Place("README#speed"))})
    for places in ([], [Place("README#speed")] * 2, [Place("README#speed"), Place("results#gone")]):
        with pytest.raises(ConfigError):
            documents.check_marks(tmp_path, {"maps": known(*places)})


@pytest.mark.parametrize("text", ["", f"{END}\n{begin('maps')}\n", f"{begin('maps')}\n{begin('boxes')}\n{END}\n"])
def test_a_document_whose_marks_are_wrong_is_left_alone_and_named(tmp_path, text):
    path = tmp_path / "document.md"
    path.write_text(text)
    with rejects(ConfigError, path=path):
        replace_part(path, "maps", ["new"])
    assert path.read_text() == text
