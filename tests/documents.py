"""The documents are true: every name, file, link and command in them exists, and takes the options that stand there."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "docs")]
import transcripts  # noqa: E402

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", flags=re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
PROGRAMS = re.compile(
    r"(?:^|\s)(glyphfeed|ocr|make|(?:scripts|runners|benchmarks|examples|docs|docs/pictures)/\w+\.py)(?= |$)(.*)$"
)
STARTS = {"glyphfeed", "ocr", "make", "python", "uv", "torchrun", "srun", "RAY_ADDRESS"}
# Written by a user, or by a command for one.
NOT_IN_THE_REPOSITORY = {"configs/data/tuned.yaml", "configs/experiment/tuned.yaml", "configs/experiment/mine.yaml"}
PLACEHOLDERS = {"data=tuned", "experiment=tuned", "experiment=mine"}
HYDRA_PROGRAMS = {
    "runners/train.py": "train",
    "scripts/preprocess_maps.py": "preprocess_maps",
    "scripts/convert_to_webdataset.py": "convert_to_webdataset",
}
OWN_CONFIGS = {"advise", "test", "inspect"}
"""Commands whose settings are in a config of their name; those of the others are those of `ocr train`."""


def documents(root: Path = ROOT) -> list[Path]:
    """Everything that people read before they run the program."""
    return sorted([*(root / "docs").rglob("*.md"), *root.glob("*.md"), *(root / ".github").rglob("*.yml")])


def problems(root: Path = ROOT) -> Iterator[str]:
    """`FILE: what is wrong`, for each document."""
    for file in documents(root):
        text = file.read_text(encoding="utf-8")
        found = [*wrong_links(file, text)]
        if file.name != "CHANGELOG.md":  # It tells what was.
            found += [*wrong_names(text), *wrong_files(text), *wrong_commands(text), *transcripts.problems(text)]
        yield from (f"{file.relative_to(root)}: {problem}" for problem in found)
    for file in sorted((root / "examples").glob("*.py")):
        yield from (f"{file.relative_to(root)}: {problem}" for problem in wrong_imports(file.read_text("utf-8")))


# -- names of Python


def wrong_names(text: str) -> Iterator[str]:
    """Dotted names below `ocr`, and imports in blocks of Python."""
    without_paths = re.sub(r"[\w/]*\bocr/[\w./]+", "", text)
    for dotted in sorted(set(re.findall(r"\bocr(?:\.[A-Za-z_]\w*)+", without_paths))):
        if not _exists(dotted):
            yield f"{dotted} does not exist"
    for language, code in FENCE.findall(text):
        if language == "python":
            yield from wrong_imports(code)


def wrong_imports(code: str) -> Iterator[str]:
    """Names imported from `ocr` that it does not have."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ocr":
            for alias in node.names:
                if not _exists(f"{node.module}.{alias.name}"):
                    yield f"{ast.unparse(node)}: {alias.name} does not exist"


@cache
def _exists(dotted: str) -> bool:
    """A module, or an attribute of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("ocr"):
                raise
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


# -- files and links


def wrong_files(text: str) -> Iterator[str]:
    """Files of the repository that a text names."""
    rooms = "ocr|docs|tests|benchmarks|scripts|runners|configs|examples"
    named = set(re.findall(rf"(?<![\w/.<~-])(?:\.\./)?((?:{rooms})/[\w./-]*[\w/])(?![\w<*])", text))
    for path in sorted(named - NOT_IN_THE_REPOSITORY):
        if not (ROOT / path).exists():
            yield f"{path} does not exist"


def wrong_links(file: Path, text: str) -> Iterator[str]:
    """Links to files that do not exist, and to headings that the file does not have."""
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", FENCE.sub("", text)):
        path, _, heading = target.partition("#")
        if ":" in path:
            continue
        linked = file.parent / path if path else file
        if not linked.exists():
            yield f"the link {target} leads nowhere"
        elif heading and linked.suffix == ".md" and heading not in headings(linked.read_text("utf-8")):
            yield f"the link {target}: {linked.name} has no such heading"


def headings(text: str) -> set[str]:
    """The names by which links reach the headings of a Markdown file."""
    found = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


# -- commands


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Program and arguments of every command; `ocr train|test` are two."""
    for line in _code_lines(text):
        start = line.split(" ")[0].partition("=")[0]
        found = PROGRAMS.search(re.split(r"\s[|>&]+\s", line)[0])
        if found is None or start not in {*STARTS, found[1]}:
            continue
        words = [word for word in shlex.split(found[2]) if word.strip(".") not in ("", "KEY=VALUE")]
        for variant in words[0].split("|") if words and found[1] == "ocr" else [None]:
            yield found[1], words if variant is None else [variant, *words[1:]]


def _code_lines(text: str) -> Iterator[str]:
    """Lines of shell blocks and inline code, continued lines joined, without comments.

    Of a block with prompts, only what is typed: the rest is output.
    """
    blocks = [code for language, code in FENCE.findall(text) if language in ("", "bash", "console")]
    without_fences = FENCE.sub("", text)
    blocks += INDENTED.findall(without_fences)
    blocks += INLINE.findall(INDENTED.sub("", without_fences))
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines
        for line in typed:
            yield re.sub(r"\s#\s.*", "", line).strip()


def wrong_commands(text: str) -> Iterator[str]:
    """Commands that do not exist, or do not take what stands behind them."""
    for program, words in commands(text):
        if wrong := _wrong_command(program, tuple(words)):
            yield f"{' '.join([program, *words])}: {wrong}"


@cache
def _wrong_command(program: str, words: tuple[str, ...]) -> str:
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return "" if not words or words[0] in targets else "the Makefile has no such target"
    if program in ("glyphfeed", "ocr"):
        return _wrong_ocr_command(words)
    if not (ROOT / program).is_file():
        return "no such file"
    if program in HYDRA_PROGRAMS:
        return _wrong_settings(HYDRA_PROGRAMS[program], words)
    if not program.startswith("benchmarks/"):
        return ""
    known = (ROOT / program).read_text(encoding="utf-8")
    for before, word in zip(("", *words), words, strict=False):
        if word.startswith("--") and f'"{word.partition("=")[0]}"' not in known:
            return f"no option {word}"
        is_name = program == "benchmarks/run.py" and "-" not in (word[0], before[:1])
        if is_name and word not in _benchmarks():
            return f"no benchmark {word}"
    return ""


@cache
def _benchmarks() -> set[str]:
    from benchmarks.harness import load_benchmarks

    return {*load_benchmarks()}


def _wrong_ocr_command(given: Iterable[str]) -> str:
    from typer.main import get_command

    from ocr.cli import app

    command, path, words = get_command(app), ["glyphfeed"], [*given]
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]  # type: ignore[attr-defined]
    if not path[1:]:
        return "" if not words or words[0].startswith("--") else f"no command {words[0]}"
    options = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    options |= {"--help", "--config-dir", "--cfg", *re.findall(r"--[\w-]+", command.options_metavar or "")}
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in options:
            return f"{' '.join(path)} has no option {word}"
    job = path[1].replace("-", "_")
    return _wrong_settings(job if job in OWN_CONFIGS else "train", words)


def _wrong_settings(config: str, words: Iterable[str]) -> str:
    """Why the settings of a command do not compose."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    settings = [word for word in words if re.match(r"^\+?[\w.]+=", word) and word not in PLACEHOLDERS]
    if settings:
        try:
            with initialize_config_dir(str(ROOT / "ocr" / "configs"), version_base="1.3"):
                compose(config, settings)
        except HydraException as error:
            return " ".join(str(error).split())
    return ""
