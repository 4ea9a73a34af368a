"""The soak: a few rounds do everything without a finding, and what grows is told apart from what only varies."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks import soak
from benchmarks.document_parts import END, begin
from benchmarks.soak_report import (
    ACTIVITIES,
    MIN_ROUNDS,
    PART,
    PICTURE,
    RULES,
    Rule,
    judge,
    over_budget,
    plot,
    read_rows,
    write_document,
)
from ocr.errors import ConfigError
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings

ROOT = Path(__file__).resolve().parent.parent
TINY = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
MEMORY, SPEED = (next(rule for rule in RULES if word in rule.title) for word in ("memory", "CPU second"))
DESCRIPTORS = Rule("descriptors", "descriptors", more=1)
ROUNDS = 80
SEED = 6
"""One whose first round kills a process that reads epochs without end."""


def series(rule: Rule, first: float, per_hour: float, noise: float) -> list[dict[str, float]]:
    """Two hours of a figure that changes by so much, with noise."""
    rng = Random(0)
    minutes = [120 * number / ROUNDS for number in range(ROUNDS)]
    return [
        {"minutes": minute, rule.column: first + per_hour * minute / 60 + rng.gauss(0, noise)} for minute in minutes
    ]


@pytest.mark.parametrize(
    ("rule", "first", "per_hour", "noise", "is_flat"),
    [
        (MEMORY, 500, 60, 20, False),
        (MEMORY, 500, 0, 60, True),
        (MEMORY, 500, -60, 20, True),
        (DESCRIPTORS, 30, 5, 0, False),
        (DESCRIPTORS, 30, 0, 0, True),
        (SPEED, 100, -30, 5, False),
        (SPEED, 100, 0, 20, True),
        (SPEED, 100, 30, 5, True),
    ],
)
def test_what_grows_is_told_apart_from_what_varies(rule, first, per_hour, noise, is_flat):
    (verdict,) = judge(series(rule, first, per_hour, noise), [rule])
    assert verdict.is_flat == is_flat
    assert verdict.per_hour == pytest.approx(per_hour, abs=max(1, noise))


def test_what_only_grows_in_the_first_quarter_is_flat():
    rows = series(MEMORY, 500, 0, 0)
    for number, row in enumerate(rows[: ROUNDS // 4]):
        row[MEMORY.column] = 10 * number
    (verdict,) = judge(rows, [MEMORY])
    assert (verdict.early, verdict.late, verdict.is_flat) == (500, 500, True)


def test_a_few_rounds_are_too_short_to_judge():
    assert judge(series(MEMORY, 500, 6000, 0)[: MIN_ROUNDS - 1], [MEMORY]) == []


def test_caches_that_take_more_than_their_budget_are_a_finding():
    rows = [{"round": number, "cache_mb": size, "budget_mb": 10.0} for number, size in enumerate((9.0, 10.5, 12.0))]
    assert over_budget(rows) == ["after round 2 caches take 12 MB: too much"]


@pytest.fixture(scope="module")
def soaked(tmp_path_factory) -> Path:
    """The folder of a soak of two rounds."""
    folder = tmp_path_factory.mktemp("soak")
    model = folder / "tiny.safetensors"
    targets = {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7}
    save_detector(model, TextDetector(**TINY).eval(), DetectorSettings(TINY, letterbox={"size": 64}, targets=targets))
    document = folder / "reliability.md"
    document.write_text(f"before\n{begin(PART)}\n{END}\nafter\n")
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "soak.py"),
        "--rounds",
        "2",
        "--seed",
        str(SEED),
        "--out",
        str(folder / "out"),
    ]
    command += [
        "--seed",
        str(SEED),
        "--train",
        "8",
        "--val",
        "8",
        "--size",
        "64",
        "--model",
        str(model),
        "--docs",
        str(document),
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 wrong" in " ".join(run.stdout.split())
    return folder


def test_each_round_does_everything_and_is_a_row_without_a_finding(soaked):
    rows = read_rows(soaked / "out" / "soak.csv")
    assert [row["round"] for row in rows] == [1, 2]
    for row in rows:
        assert all(row[f"{name}_pages_s"] > 0 for name in ACTIVITIES)
        assert row["resident_own_mb"] > 50 < row["service_own_mb"]
        assert row["resident_children"] == 2, "the service, and the one that forks others"
        assert (row["wrong"], row["findings"], row["shm_files"]) == (0, 0, 0)
    assert rows[-1]["compared"] == 2 * (8 + 8 + 8 + 1)
    assert min(rows[-1][name] for name in ("edits", "broken_off", "processes", "kills")) >= 1
    assert rows[-1]["cache_mb"] > 0


def test_its_plot_and_its_table_are_in_the_document(soaked):
    assert (soaked / "out" / PICTURE).read_bytes().startswith(b"\x89PNG")
    assert (soaked / "pictures" / PICTURE).read_bytes() == (soaked / "out" / PICTURE).read_bytes()
    text = (soaked / "reliability.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "2 rounds in" in text
    assert f"](pictures/{PICTURE})" in text


def test_a_document_without_the_marks_is_left_alone(tmp_path):
    path = tmp_path / "reliability.md"
    path.write_text("text\n")
    plot([{"minutes": 1.0}], picture := tmp_path / "plot.png")
    with pytest.raises(ConfigError, match="soak"):
        write_document(path, picture, [{"minutes": 1.0}], [], "command")
    assert path.read_text() == "text\n"
    assert not (tmp_path / "pictures").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["soak.py", "--out", str(tmp_path)])
    with pytest.raises(ConfigError, match=r"--out .* is not empty"):
        soak.main()
