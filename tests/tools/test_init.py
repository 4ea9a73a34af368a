"""`glyphfeed init`: every command of the project's README can be typed as it stands there."""

import re
import shlex

from typer.main import get_command

from ocr import cli
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS
from ocr.tools.init import README, write_project


def commands() -> list[list[str]]:
    """The words of each command."""
    lines = re.findall(r"^    (glyphfeed .*)$", README, flags=re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_every_command_exists_and_its_settings_compose(tmp_path, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(commands()) > 6
    for name, *words in commands():
        assert name in get_command(cli.app).commands
        # What belongs to Hydra, to another job, or is written by a command above.
        others = ("hydra.", "apply=", "checkpoint_path=")
        compose_training([word for word in words if "=" in word and not word.startswith(others)])


def test_nothing_in_it_needs_a_file_that_is_not_there(tmp_path, monkeypatch):
    """`data=tuned` exists only if advise found something faster, and wrote it into this group."""
    write_project(tmp_path)
    files = [*tmp_path.rglob("*.yaml"), *CONFIGS.rglob("*.yaml")]
    chosen = re.findall(r"(?<![\w.])(data|experiment|model)=(\w+)", README)
    assert {(group, name) for group, name in chosen} == {("experiment", "mine")}
    assert all(any(file.parent.name == group and file.stem == name for file in files) for group, name in chosen)
