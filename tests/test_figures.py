"""Tables of the documents come from benchmarks: marks, what is written between them, and what is told to differ."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from benchmarks.ablation import PART as ABLATION
from benchmarks.any_loader import PART as ANY_LOADER
from benchmarks.compare_tables import TextTable, differences, parse_tables
from benchmarks.deploy import PART as DEPLOY
from benchmarks.distil import PART as DISTIL
from benchmarks.document_parts import END, begin, names_of_parts, read_part, replace_part
from benchmarks.figure_parts import BENCHMARKS, PARTS, Benchmark, Part, Shown
from benchmarks.figures import Figures, update
from benchmarks.label_next import PART as LABEL_NEXT
from benchmarks.measure import TABLES_FILE, console
from benchmarks.scaling_figures import node_table, page_table, set_table
from benchmarks.trained import PARTS as TRAINED
from ocr.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
PEERS, SOAK, CAMPAIGN, MUTANTS = "peers", "soak", "campaign", "mutants"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OLD = TextTable("", ("", "ours", "target"), (("maps", "10.0 ms, 30 x", "20 x"), ("boxes", "2.00 s", "")))


def document(folder: Path, name: str, text: str) -> Path:
    path = folder / "document.md"
    path.write_text(f"before\n{begin(name)}\n{text}\n{END}\nafter\n")
    return path


def test_only_what_is_between_the_marks_is_replaced(tmp_path):
    path = document(tmp_path, "maps", "old")
    replace_part(path, "maps", ["| new |", "", "text"])
    assert read_part(path, "maps") == "| new |\n\ntext"
    assert path.read_text() == f"before\n{begin('maps')}\n\n| new |\n\ntext\n\n{END}\nafter\n"
    replace_part(path, "maps", ["| new |", "", "text"])
    assert path.read_text().count("new") == 1


@pytest.mark.parametrize(
    "text",
    ["", f"{END}\n{begin('maps')}\n", f"{begin('maps')}\n{begin('boxes')}\n{END}\n", f"{begin('maps')}\n{END}\n" * 2],
)
def test_a_document_whose_marks_are_wrong_is_left_alone_and_named(tmp_path, text):
    path = tmp_path / "document.md"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"document\.md: the line <!-- figures: maps -->"):
        replace_part(path, "maps", ["new"])
    assert path.read_text() == text


def test_every_part_has_its_place_in_its_document_and_every_mark_its_part():
    marked = [(str(path.relative_to(ROOT)), name) for path in DOCUMENTS for name in names_of_parts(path.read_text())]
    written = [(part.document, part.name) for part in PARTS]
    assert len(set(marked)) == len(marked)
    by_themselves = {("docs/peers.md", PEERS), ("docs/reliability.md", MUTANTS), ("docs/advisor.md", ANY_LOADER)}
    by_themselves |= {("docs/reliability.md", CAMPAIGN), ("docs/training.md", ABLATION), ("docs/results.md", DEPLOY)}
    by_themselves |= {("docs/reliability.md", SOAK), ("docs/training.md", DISTIL), ("docs/labels.md", LABEL_NEXT)}
    by_themselves |= {(document, name) for document, name in marked if name.startswith(TRAINED)}
    assert set(written) == set(marked) - by_themselves


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_table_of_figures_is_written_by_a_command(path):
    by_hand = path.read_text()
    for name in names_of_parts(by_hand):
        by_hand = by_hand.replace(read_part(path, name), "")
    # Columns of figures are right-justified.
    assert re.findall(r"^\|.*\n\|[ :|-]*-:[ :|-]*$", by_hand, flags=re.MULTILINE) == []


def test_every_benchmark_has_a_table_in_a_document_and_takes_its_options():
    assert {name for part in PARTS for name in part.benchmarks} == BENCHMARKS.keys()
    for known in BENCHMARKS.values():
        program, *words = known.command.split()
        text = (ROOT / program).read_text() + (ROOT / "benchmarks" / "measure.py").read_text()
        assert all(f'"{word}"' in text for word in words if word.startswith("--")), known.command


@pytest.mark.parametrize(
    ("cell", "spread", "told"),
    [
        ("10.4 ms, 29 x", 0.05, []),
        ("0.0104 s, 29 x", 0.05, []),
        ("10.4 ms, 28 x", 0.05, ["maps, ours: 10.0 ms, 30 x -> 10.4 ms, 28 x"]),
        ("10.4 ms", 0.05, ["maps, ours: 10.0 ms, 30 x -> 10.4 ms"]),
    ],
)
def test_a_figure_that_moves_by_more_than_its_spread_is_told(cell, spread, told):
    new = TextTable("", OLD.headings, (("maps", cell, "20 x"), ("boxes", "2.00 s", "")))
    assert differences([OLD], [new], spread) == told


def test_rows_that_come_and_go_and_other_columns_are_told():
    new = TextTable("", OLD.headings, (("maps", "10.0 ms, 30 x", "20 x"), ("scores", "1 s", "")))
    assert differences([OLD], [new], 0.1) == ["boxes: no longer there", "scores: new"]
    assert differences([], [new], 0.1) == ["other tables or columns than before: all of it is new"]


def test_a_table_reads_back_as_it_was_written():
    lines = "\n".join(["text", "", *OLD.markdown(), "", *OLD.markdown()])
    assert parse_tables(lines) == [OLD, OLD]


def test_a_part_is_written_with_the_rows_and_columns_that_it_picks_and_the_gap_is_told(tmp_path):
    old = "| | ours |\n|---|---:|\n| **maps** | 20.0 ms, `30 x` |"
    document(tmp_path, "maps", old)
    shown = TextTable("Maps of 2 pages", OLD.headings, OLD.rows)
    part = Part("document.md", "maps", (Shown("maps", "Maps", "^maps", ("ours",)),))
    assert update(part, {"maps": [shown]}, tmp_path) == [
        "document.md, maps: maps, ours: 20.0 ms, 30 x -> 10.0 ms, 30 x"
    ]
    written = read_part(tmp_path / "document.md", "maps")
    assert "| maps | 10.0 ms, 30 x |" in written
    assert "Maps of 2 pages" in written
    assert "may differ by 25.0%" in written
    assert "boxes" not in written
    assert update(part, {"maps": [shown]}, tmp_path) == []


def test_a_table_on_the_screen_is_also_written_without_its_colours(tmp_path, monkeypatch):
    monkeypatch.setenv(TABLES_FILE, str(tmp_path / "tables"))
    table = Table("", "ms", title="Maps")
    table.add_row("[bold]page[/bold]", "1.9")
    console.print("text", table)
    console.print(table)
    told = [json.loads(line) for line in (tmp_path / "tables").read_text().splitlines()]
    assert told == [{"title": "Maps", "headings": ["", "ms"], "rows": [["page", "1.9"]]}] * 2


def test_the_command_runs_a_benchmark_keeps_its_table_and_says_what_is_missing(tmp_path):
    options = ["--only", "synth", "--folder", str(tmp_path), "--documents", str(tmp_path)]
    more = ["--", "--pages", "1", "--rounds", "1", "--megapixels", "0.1"]
    command = [sys.executable, str(ROOT / "benchmarks" / "figures.py"), *options, *more]
    environment = {**os.environ, "COLUMNS": "160"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert run.returncode == 0, run.stderr
    (kept,) = [json.loads(line) for line in (tmp_path / "synth.jsonl").read_text().splitlines()]
    assert kept["rows"][0][0] == "receipt"
    assert float(kept["rows"][0][1]) > 0
    assert "docs/results.md, path: left as it is, not measured yet: cold, maps, boxes, scores" in run.stdout


def test_a_benchmark_that_fails_is_told_and_the_others_are_kept(tmp_path, monkeypatch):
    pages = tmp_path / "none"
    figures = Figures(tmp_path, {"DIR": pages, "FORMS": None}, [])
    (tmp_path / "maps.jsonl").write_text("")
    monkeypatch.setitem(BENCHMARKS, "synth", Benchmark("benchmarks/synth.py --pages 1 --rounds 1 --megapixels 0.1"))
    (told,) = figures.run_all(["maps", "synth"])
    assert f"benchmarks/maps.py --data {pages} has shown no table, and ended with status 1" in told
    # What was kept before is of another run.
    assert [*figures.known()] == ["synth"]


def test_what_is_kept_is_not_run_again_if_only_the_missing_is_asked_for(tmp_path):
    (tmp_path / "orders.jsonl").write_text(
        json.dumps({"title": "1 page", "headings": ["", "ms"], "rows": [["a", "1"]]})
    )
    (tmp_path / "docs").mkdir()
    path = tmp_path / "docs" / "loading.md"
    path.write_text(f"{begin('orders')}\n{END}\n")
    options = ["--only", "orders", "--missing", "--folder", str(tmp_path), "--documents", str(tmp_path)]
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "figures.py"), *options], check=True, timeout=300)
    assert "| a | 1 |" in read_part(path, "orders")


@pytest.mark.parametrize("text", ['{"title": "x", "head', "[]", '{"title": "x"}', "3"])
def test_a_kept_table_that_is_damaged_is_named(tmp_path, text):
    (tmp_path / "orders.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=r"orders\.jsonl is damaged .*Remove it"):
        Figures(tmp_path, {}, []).known()


def made(title: str, headings: str, *rows: str) -> TextTable:
    return TextTable(title, tuple(headings.split("|")), tuple(tuple(row.split("|")) for row in rows))


def test_what_a_node_needs_follows_from_what_was_measured():
    read = made(
        "epochs of 54 pages",
        "contender|pages/s",
        *(
            "folder|320",
            "raw shards|300",
            "ready shards|1,800",
            "dense ready shards|1,600",
            "ready batches, copied|2,000",
        ),
    )
    files = made(
        "Files of shards",
        "|MB per page|written, pages/s",
        *("raw shards|0.40|150", "ready shards|5.30|40", "dense ready shards|0.15|80", "ready batches|5.31|40"),
    )
    epochs = made(
        "Epochs of 54 pages to validate and 140 to train on, 640x640",
        "|uint8",
        *("training epoch with augmentation|350 ms\n9 x", "- every tensor copied out|54 ms\n30 x"),
    )
    scale = made(
        "Before the first image is read", "set|pages|file bytes/page", "folder|1,000,000|531", "shards|1,000,000|178"
    )
    found = {"shards": [read, files], "epochs": [epochs], "scale": [scale]}
    (pages,) = page_table(found)
    assert pages.cell("folder", "pages/s per core") == "160"
    assert pages.cell("training, page cache warm, augmented", "pages/s per core") == "200"
    assert pages.cell("validation, cached, every tensor copied", "pages/s per core") == "500"
    assert pages.cell("converted to ready shards, dense", "pages/s per core") == "40"
    assert pages.cell("the rows of shards", "bytes per page") == "178 bytes on disk, 12 in memory"
    (nodes,) = node_table(found)
    assert nodes.cell("raw shards or folder, nothing cached", "cores per GPU") == "267 / 160 = 1.7"
    network = nodes.cell("page cache on the node", "network per GPU")
    assert network == "267 x 0.40 MB = 0.9 Gbit/s, in the first epoch only"
    assert nodes.cell("ready shards, dense, validation", "storage per million pages") == "0.15 TB"
    rates, sets = set_table(found)
    assert rates.cell("its cores load uncached, pages/s", "arithmetic") == "16 x 160 = 2,560"
    assert sets.rows[3] == ("100 M", "40 TB", "64", "12 min", "1.56 M", "120.0 TB")
