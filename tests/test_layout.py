"""The tree is the path: README, package and constant agree, imports flow one way, files stay readable."""

import ast
import re
from pathlib import Path

import pytest

from ocr import pipeline
from ocr.pipeline import STAGES

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "ocr").rglob("*.py"))

# A package may import itself and those below it, never one beside it.
RANKS = [
    {"cli"},
    {"advisor"},
    {"tools"},
    {"jobs", "lightning_modules"},
    {"deploy", "training"},
    {"inspect"},
    {"datasets"},
    {"dali"},
    {"loader", "cache", "shards"},
    {"pipeline", "models", "evaluation"},
    {"formats"},
    {"geometry"},
    {"row_table"},
    {"atomic", "checks", "csv_cells", "exit_status", "malloc", "mapped_file", "optional", "units"},
    {"errors", "system"},
]


def path_line(text: str) -> list[str]:
    """The stages of the one line that starts with `source ->`."""
    lines = re.findall(r"^ *(source -> .*)$", text, flags=re.MULTILINE)
    assert len(lines) == 1, lines
    return [word.strip(" |") for word in lines[0].split("->")]


@pytest.mark.parametrize("text", [(ROOT / "README.md").read_text(), pipeline.__doc__], ids=["README", "ocr.pipeline"])
def test_the_path_is_told_the_same_everywhere(text):
    assert path_line(text) == list(STAGES)


def test_every_stage_has_a_file_of_its_name_that_opens_with_it():
    for stage in STAGES:
        home = "cache/__init__.py" if stage == "cache" else f"pipeline/{stage}.py"
        module = ast.parse((ROOT / "ocr" / home).read_text())
        assert (ast.get_docstring(module) or "").startswith(f"{stage}: ")


def rank(package: str) -> int:
    (found,) = [level for level, packages in enumerate(RANKS) if package in packages]
    return found


def imports_of(file: Path) -> set[str]:
    """Sub-packages of `ocr` that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module] if node.module != "ocr" else [f"ocr.{name.name}" for name in node.names]
        found |= {module.split(".")[1] for module in modules if module.startswith("ocr.")}
    return {name for name in found if not name.startswith("__")}


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_flow_one_way(file):
    package = file.relative_to(ROOT / "ocr").parts[0].removesuffix(".py")
    if package == "__init__":
        return
    for imported in imports_of(file) - {package}:
        assert rank(imported) > rank(package), f"{file} imports ocr.{imported}"


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_has_a_sentence_on_top(file):
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_a_module_only_needs_optional_libraries_where_it_uses_them():
    for file in SOURCES:
        for node in ast.parse(file.read_text()).body:
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            optional = {"albumentations", "nvidia", "ray", "fsspec", "s3fs", "onnx", "onnxruntime", "onnxscript"}
            optional |= {"openvino", "pypdfium2", "tensorrt", "fastapi", "prometheus_client", "starlette", "uvicorn"}
            assert not optional & {name.split(".")[0] for name in names}, file


def test_the_folder_map_of_CONTRIBUTING_names_every_package_and_every_file_beside_them():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for entry in (ROOT / "ocr").iterdir():
        if (entry / "__init__.py").exists():
            assert f"{entry.name}/" in text
        elif entry.suffix == ".py" and entry.stem != "__init__":
            assert entry.name in text


@pytest.mark.parametrize("room", ["cache", "dali", "datasets", "loader", "pipeline", "training"])
def test_what_a_dataset_offers_is_named_by_its_type(room):
    for file in sorted((ROOT / "ocr" / room).rglob("*.py")):
        found = re.findall(r"dataset: Any|(?:has|get)attr\((?:self\.)?(?:dataset|source)\b.*", file.read_text())
        assert not found, f"{file}: {found}"
