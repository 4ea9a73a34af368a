"""What the documents say that can be checked: code, paths, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.yml"), ROOT / "mkdocs.yml"]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", flags=re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
PROGRAMS = re.compile(r"(?:^|\s)(ocr|make|(?:scripts|runners|benchmarks|examples|docs/pictures)/\w+\.py)(?= |$)(.*)$")


def python_blocks(text: str) -> list[str]:
    return [code for language, code in FENCE.findall(text) if language == "python"]


def code_lines(text: str) -> Iterator[str]:
    """Lines of shell blocks and inline code, continued lines joined, without comments."""
    blocks = [code for language, code in FENCE.findall(text) if language in ("", "bash", "console")]
    without_fences = FENCE.sub("", text)
    blocks += INDENTED.findall(without_fences)
    blocks += INLINE.findall(INDENTED.sub("", without_fences))
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"\s#\s.*", "", line).strip().removeprefix("$ ")


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Program and arguments of every command; `ocr train|test` are two."""
    for line in code_lines(text):
        start = line.split(" ")[0].partition("=")[0]
        found = PROGRAMS.search(line)
        if found is None or start not in {"ocr", "make", "python", "uv", "torchrun", "srun", "RAY_ADDRESS", found[1]}:
            continue
        words = [word for word in shlex.split(found[2]) if word.strip(".") not in ("", "KEY=VALUE")]
        for variant in words[0].split("|") if words and found[1] == "ocr" else [None]:
            yield found[1], words if variant is None else [variant, *words[1:]]
