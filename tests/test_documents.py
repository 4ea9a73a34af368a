"""The documents tell the truth: modules, files, links and commands that they name exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT, commands, python_blocks
from hydra import compose, initialize_config_dir
from typer.main import get_command

from ocr.cli import app

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Written by a user, or by a command for one.
NOT_IN_THE_REPOSITORY = {"configs/data/tuned.yaml", "configs/experiment/tuned.yaml", "configs/experiment/mine.yaml"}
PLACEHOLDERS = {"data=tuned", "experiment=tuned", "experiment=mine"}
HYDRA_PROGRAMS = {
    "runners/train.py": "train",
    "runners/test.py": "test",
    "runners/predict.py": "predict",
    "runners/sweep.py": "sweep",
    "scripts/preprocess_maps.py": "preprocess_maps",
    "scripts/convert_to_webdataset.py": "convert_to_webdataset",
}
COMMANDS = sorted({(program, *words) for file in DOCUMENTS for program, words in commands(file.read_text())})


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def resolve(dotted: str) -> None:
    """Import a module, or the module that has this attribute."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("ocr"):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return
    raise ModuleNotFoundError(dotted)


@pytest.mark.parametrize("file", DOCUMENTS, ids=name)
def test_every_dotted_name_in_a_document_can_be_imported(file):
    text = re.sub(r"[\w/]*\bocr/[\w./]+", "", file.read_text())
    for dotted in sorted(set(re.findall(r"\bocr(?:\.[A-Za-z_]\w*)+", text))):
        resolve(dotted)


@pytest.mark.parametrize("file", [*DOCUMENTS, *EXAMPLES], ids=name)
def test_every_import_in_a_document_or_example_works(file):
    text = file.read_text()
    for code in [text] if file.suffix == ".py" else python_blocks(text):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ocr":
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


@pytest.mark.parametrize("file", DOCUMENTS, ids=name)
def test_every_file_that_a_document_names_exists(file):
    rooms = "ocr|docs|tests|benchmarks|scripts|runners|configs|examples"
    named = set(re.findall(rf"(?<![\w/.<~-])(?:\.\./)?((?:{rooms})/[\w./-]*[\w/])(?![\w<*])", file.read_text()))
    assert {path for path in named - NOT_IN_THE_REPOSITORY if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("file", [file for file in DOCUMENTS if file.suffix == ".md"], ids=name)
def test_every_link_of_a_document_leads_somewhere(file):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", file.read_text()):
        assert ":" in target or (file.parent / target).exists(), target


def overrides_of(words: list[str]) -> list[str]:
    return [word for word in words if re.match(r"^\+?[\w.]+=", word) and word not in PLACEHOLDERS]


def check_settings(config: str, words: list[str]) -> None:
    with initialize_config_dir(str(ROOT / "ocr" / "configs"), version_base="1.3"):
        compose(config, overrides_of(words))


def check_ocr(words: list[str]) -> None:
    command, path = get_command(app), ["ocr"]
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]
    assert path[1:] or not words or words[0].startswith("--"), f"ocr has no command {words[0]}"
    options = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    options |= {"--help", "--config-dir", "--cfg", *re.findall(r"--[\w-]+", command.options_metavar or "")}
    for word in words:
        option = word.partition("=")[0]
        assert not word.startswith("--") or option in options, f"{' '.join(path)}: {word}"
    overrides = overrides_of(words)
    if overrides:
        job = path[1].replace("-", "_")
        own = ("test", "predict", "sweep", "inspect", "label_next", "export")
        check_settings(job if job in own else "train", overrides)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_in_a_document_exists_and_takes_its_options(command):
    program, *words = command
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert not words or words[0] in targets
    elif program == "ocr":
        check_ocr(words)
    else:
        assert (ROOT / program).is_file()
        if program in HYDRA_PROGRAMS:
            check_settings(HYDRA_PROGRAMS[program], words)
        elif program.startswith("benchmarks/"):
            known = (ROOT / program).read_text() + (ROOT / "benchmarks" / "measure.py").read_text()
            assert all(f'"{word}"' in known for word in words if word.startswith("--"))


def test_the_reference_has_every_public_name():
    import ocr

    shown = re.findall(r"^::: ocr\.(\w+)$", (ROOT / "docs" / "reference" / "public.md").read_text(), flags=re.MULTILINE)
    assert sorted(shown) == sorted(ocr.__all__)
