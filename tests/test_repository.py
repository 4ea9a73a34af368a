"""What GitHub and developers' tools read: the workflow runs our own commands, and every file parses."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
YAML_FILES = [
    *sorted((ROOT / ".github").rglob("*.yml")),
    ROOT / ".pre-commit-config.yaml",
    ROOT / "mkdocs.yml",
    ROOT / "CITATION.cff",
]


def read(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.mark.parametrize("file", YAML_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_yaml_file_parses(file):
    assert isinstance(yaml.safe_load(file.read_text()), dict)


def test_the_workflow_calls_make_targets_that_exist():
    steps = read(".github/workflows/ci.yml")["jobs"]["make"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert all(re.fullmatch(r"make [a-z]+", command) for command in commands), commands
    assert {"check", "docs", "test"} <= {command.split()[1] for command in commands} <= TARGETS


def test_the_workflow_tests_the_versions_of_Python_that_the_package_claims():
    tested = read(".github/workflows/ci.yml")["jobs"]["make"]["strategy"]["matrix"]["python"]
    claimed = [name.split(" :: ")[-1] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert tested == claimed
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_the_local_ci_runs_what_the_workflow_runs():
    called = set(re.findall(r"^make ([a-z]+)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE))
    assert {"check", "docs", "test"} <= called <= TARGETS


def test_pre_commit_runs_the_tools_of_make_check_and_downloads_nothing():
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    check = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin")
    for hook in repository["hooks"]:
        assert hook["entry"].removesuffix(" --force-exclude") in check


def test_the_citation_names_the_version_and_the_license_of_the_package():
    citation = read("CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_every_form_for_an_issue_has_what_GitHub_asks_for():
    for file in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        if file.name == "config.yml":
            continue
        form = yaml.safe_load(file.read_text())
        assert {"name", "description", "body"} <= form.keys()
        assert all(field["type"] in {"textarea", "input"} and field["attributes"]["label"] for field in form["body"])
