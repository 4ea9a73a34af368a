"""The tree is as CONTRIBUTING.md says: one path, imports that flow one way, files that explain themselves."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent

# A package may import itself and those below it, never one next to it.
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
    {"models", "evaluation"},
    {"pipeline"},
    {"formats"},
    {"geometry"},
    {"row_table", "report"},
    {"atomic", "checks", "csv_cells", "exit_status", "malloc", "mapped_file", "optional", "units"},
    {"errors", "system"},
]
OPTIONAL = {
    *("albumentations", "fastapi", "fsspec", "nvidia", "onnx", "onnxruntime", "onnxscript", "openvino"),
    *("prometheus_client", "pypdfium2", "ray", "s3fs", "starlette", "tensorrt", "uvicorn"),
}
"""Imported where they are used: they are not installed everywhere."""


def problems(root: Path = ROOT) -> Iterator[str]:
    """`FILE: what is wrong`, for the package, its configs, and what other tools read."""
    for file in sorted((root / "ocr").rglob("*.py")):
        code = file.read_text(encoding="utf-8")
        package = file.relative_to(root / "ocr").parts[0].removesuffix(".py")
        for problem in [*wrong_imports(package, code), *wrong_source(code), *markup_in_code(code)]:
            yield f"{file.relative_to(root)}: {problem}"
    for file in sorted((root / "ocr" / "configs").rglob("*.yaml")):
        for problem in unexplained_settings(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(root)}:{problem}"
    for file in sorted((root / "tests").rglob("*.py")):
        for problem in held_wording(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(root)}:{problem}"
    yield from wrong_path(root)
    yield from wrong_map(root)
    yield from wrong_programs(root)
    yield from wrong_project(root)


# -- the package


def wrong_imports(package: str, code: str) -> Iterator[str]:
    """Imports of a package above or next to this one."""
    if package == "__init__":
        return
    for imported in sorted(_imported(code) - {package}):
        if _rank(imported) <= _rank(package):
            yield f"imports ocr.{imported}, which is not below ocr.{package}"


def _rank(package: str) -> int:
    found = [level for level, packages in enumerate(RANKS) if package in packages]
    return found[0] if found else -1


def _imported(code: str) -> set[str]:
    """Packages of `ocr` that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module] if node.module != "ocr" else [f"ocr.{name.name}" for name in node.names]
        found |= {module.split(".")[1] for module in modules if module.startswith("ocr.")}
    return {name for name in found if not name.startswith("__")}


def wrong_source(code: str) -> Iterator[str]:
    """A module without a sentence on top, or with an optional library there."""
    tree = ast.parse(code)
    if not ast.get_docstring(tree):
        yield "no docstring on top"
    for node in tree.body:
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in sorted(OPTIONAL & {name.split(".")[0] for name in names}):
            yield f"imports {name}, which is optional, where the module is loaded"


def markup_in_code(code: str) -> Iterator[str]:
    """HTML that is put together in Python: pages, their style and their pictures are templates, which escape by
    themselves."""
    for part in ("<!doctype", "<style", "<svg", "from html import", "import html"):
        if part in code:
            yield f"has {part}. Use a template of ocr/report"


def wrong_path(root: Path) -> Iterator[str]:
    """The path of a page is drawn the same everywhere, and each stage is a file of its name."""
    from ocr import pipeline
    from ocr.pipeline import STAGES

    for name, text in {"README.md": (root / "README.md").read_text("utf-8"), "ocr.pipeline": pipeline.__doc__}.items():
        lines = re.findall(r"^ *(source -> .*)$", text or "", flags=re.MULTILINE)
        drawn = [[word.strip(" |") for word in line.split("->")] for line in lines]
        if drawn != [list(STAGES)]:
            yield f"{name}: the path is drawn as {drawn}, not once as {list(STAGES)}"
    for stage in STAGES:
        home = root / "ocr" / ("cache/__init__.py" if stage == "cache" else f"pipeline/{stage}.py")
        if not (ast.get_docstring(ast.parse(home.read_text("utf-8"))) or "").startswith(f"{stage}: "):
            yield f"{home.relative_to(root)}: does not open with the name of its stage"


def wrong_map(root: Path) -> Iterator[str]:
    """What stands in ocr/ and is not in the folder map."""
    text = (root / "CONTRIBUTING.md").read_text("utf-8")
    for entry in sorted((root / "ocr").iterdir()):
        name = f"{entry.name}/" if (entry / "__init__.py").exists() else entry.name
        if (name.endswith("/") or entry.suffix == ".py") and name != "__init__.py" and name not in text:
            yield f"CONTRIBUTING.md: the folder map lacks ocr/{name}"


# -- settings and programs


def unexplained_settings(text: str) -> Iterator[str]:
    """Values in a config without a comment that says something."""
    for number, line in enumerate(text.splitlines(), 1):
        value = re.match(r"\s*(- )?(?!_target_)[\w/]+:\s+(?!\$\{|#)\S", line)
        if value and "#" not in line:
            yield f"{number}: {line.strip()} has no comment"
        if re.search("see above|as above|see configs|as for", line):
            yield f"{number}: {line.strip()} sends the reader elsewhere"
        if len(line) > 120:
            yield f"{number}: longer than 120 characters"


def held_wording(code: str) -> Iterator[str]:
    """Tests that compare the wording of our errors: they check setting, value and path (tests/rejection.py)."""
    import ocr.errors

    for node in ast.walk(ast.parse(code)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"):
            continue
        raised = {part.id for argument in node.args for part in ast.walk(argument) if isinstance(part, ast.Name)}
        if any(word.arg == "match" for word in node.keywords) and any(hasattr(ocr.errors, name) for name in raised):
            yield f"{node.lineno}: matches the wording of {' '.join(sorted(raised))}. Use rejects(...)"


def wrong_programs(root: Path) -> Iterator[str]:
    """Given commands are entries, not programs; examples stay short and say how to run them."""
    for file in sorted([*(root / "runners").glob("*.py"), *(root / "scripts").glob("*.py")]):
        if len(file.read_text("utf-8").splitlines()) >= 10:
            yield f"{file.relative_to(root)}: ten lines or more"
    for file in sorted((root / "examples").glob("*.py")):
        text = file.read_text("utf-8")
        if f"python examples/{file.name} " not in (ast.get_docstring(ast.parse(text)) or ""):
            yield f"examples/{file.name}: does not say how to run it"


def wrong_project(root: Path) -> Iterator[str]:
    """What GitHub, pip and pre-commit read agrees with the Makefile."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    makefile = (root / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, flags=re.MULTILINE))
    read = {}
    names = [str(file.relative_to(root)) for file in sorted((root / ".github").rglob("*.yml"))]
    for name in [*names, ".pre-commit-config.yaml", "mkdocs.yml", "CITATION.cff"]:
        try:
            read[name] = yaml.safe_load((root / name).read_text("utf-8"))
        except yaml.YAMLError as error:
            yield f"{name}: {error}"
    job = read[".github/workflows/ci.yml"]["jobs"]["make"]
    called = {step["run"].removeprefix("make ") for step in job["steps"] if "run" in step}
    here = set(re.findall(r"^make ([a-z-]+)", (root / ".ci" / "run").read_text("utf-8"), flags=re.MULTILINE))
    for name, found in {".github/workflows/ci.yml": called, ".ci/run": here}.items():
        if not {"check", "docs", "test"} <= found <= targets:
            yield f"{name}: runs make {' '.join(sorted(found))}"
    versions = [name.split(" :: ")[-1] for name in project["classifiers"] if "Python :: 3." in name]
    if job["strategy"]["matrix"]["python"] != versions or project["requires-python"] != f">={versions[0]}":
        yield f".github/workflows/ci.yml: tests other versions of Python than {versions}"
    for repository in read[".pre-commit-config.yaml"]["repos"]:
        for hook in repository["hooks"]:
            if hook["entry"].removesuffix(" --force-exclude") not in makefile.replace("$(BIN)", ".venv/bin"):
                yield f".pre-commit-config.yaml: {hook['entry']} is not part of make check"
    citation = read["CITATION.cff"]
    if (citation["version"], citation["license"]) != (project["version"], project["license"]):
        yield "CITATION.cff: another version or license than pyproject.toml"


# -- examples in docstrings


def wrong_doctests(root: Path = ROOT) -> Iterator[str]:
    """Examples in docstrings that do not give what they say. Only these modules are imported."""
    tried = 0
    for folder in ("ocr", "benchmarks"):
        for file in sorted((root / folder).rglob("*.py")):
            if re.search(r"^ *>>> ", file.read_text("utf-8"), flags=re.MULTILINE):
                name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                found = doctest.testmod(importlib.import_module(name))
                tried += found.attempted
                if found.failed:
                    yield f"{file.relative_to(root)}: {found.failed} of {found.attempted} examples"
    if not tried:
        yield "ocr: no examples were found"
