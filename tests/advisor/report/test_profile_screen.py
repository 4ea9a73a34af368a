"""The profile on a terminal: a column per figure, with its heading."""

import re

from typer.testing import CliRunner

from ocr.cli import app


def test_every_column_has_its_heading(synthetic):
    options = ["--pages", "2", "--repeats", "1", "--sizes", "64,96"]
    options += ["--model", "model=lite", "model.channels=32", "trainer.accelerator=cpu"]
    command = ["profile", f"dataset_base_path={synthetic}", "transforms.size=64", *options]
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"^\s*stage +kind +mean +std +min +max +share +CPU +out +faults", shown.output, re.MULTILINE)
    assert re.search(r"^\s*stage +64 px +96 px", shown.output, re.MULTILINE)
    for stage in ("Letterbox +fixed", "forward +model", "backward +model"):
        assert re.search(rf"^\s*{stage} +\d", shown.output, re.MULTILINE), shown.output
