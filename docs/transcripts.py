"""Run the commands that the documents show, and put what they print and draw into the documents.

python docs/transcripts.py               # all, in their order: make transcripts
python docs/transcripts.py guide         # one document: README or a page of docs/

A transcript stands between two marks. Lines that begin with `$ ` are run, in a folder that all documents share; what
they print follows them. `last=N` keeps the last N lines of each. The digest shows when a line was edited by hand.

    <!-- transcript: last=12 digest=0123456789ab -->
    ```console
    $ glyphfeed doctor data/demo
    ```
    <!-- transcript: end -->

A picture has the command that draws it, with PICTURE for its file:

    <!-- picture: glyphfeed preview data/demo --out PICTURE -->
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "data" / "transcripts"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PART = re.compile(
    r"<!-- transcript:(?: last=(?P<last>\d+))?(?: digest=(?P<digest>\w+))? -->\n```console\n(?P<text>.*?)```\n"
    r"<!-- transcript: end -->"
    r"|<!-- picture: (?P<command>.*?) -->\n!\[[^\]]*\]\((?P<picture>[^)]+)\)",
    flags=re.DOTALL,
)
BAR = re.compile(r"━{10,}.*\d+/\d+")
COLUMNS = 100


def problems(text: str) -> Iterator[str]:
    """Transcripts that were edited by hand, and console blocks that show output without being transcripts."""
    for part in PART.finditer(text):
        if part["text"] and part["digest"] != digest(part["text"]):
            yield f"the transcript of {part['text'].splitlines()[0]!r} was edited by hand. Run make transcripts"
    for block in re.findall(r"^```console\n(.*?)^```$", PART.sub("", text), flags=re.MULTILINE | re.DOTALL):
        yield f"{block.splitlines()[0]!r} is shown with its output, but not between marks of a transcript"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rewritten(document: Path) -> str:
    """The document with what its commands print now."""

    def replace(part: re.Match[str]) -> str:
        if part["command"]:
            run(part["command"].replace("PICTURE", str(document.parent / part["picture"])))
            return part[0]
        text = "".join(_shown(command, part["last"]) for command in _commands(part["text"]))
        last = f" last={part['last']}" if part["last"] else ""
        return f"<!-- transcript:{last} digest={digest(text)} -->\n```console\n{text}```\n<!-- transcript: end -->"

    return PART.sub(replace, document.read_text(encoding="utf-8"))


def _commands(text: str) -> list[str]:
    """What is typed: lines with a prompt, and those that continue them."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, flags=re.MULTILINE)


def _shown(command: str, last: str | None) -> str:
    printed = run(command.replace("\\\n", " ")).strip("\n").splitlines()
    # Progress bars say nothing afterwards; spaces fill a table's last column.
    lines = [line.rstrip() for line in printed if not BAR.search(line)]
    if last and len(lines) > int(last):
        lines = ["...", *lines[-int(last) :]]
    return "\n".join([f"$ {command}", *lines]) + "\n"


def run(command: str) -> str:
    """What a command prints; the program ends if it fails."""
    print(f"$ {command}", flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment |= {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    if not command.startswith("make "):  # It has pages of its own.
        environment["GLYPHFEED_CACHE"] = str(WORK / "cache")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    folder = ROOT if command.startswith("make ") else WORK
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\nfailed: {command}")
    # Folders as a reader has them.
    return done.stdout.replace(f"{WORK}/", "").replace(str(WORK), ".").replace(f"{ROOT}/", "")


def main() -> None:
    chosen = [document for document in DOCUMENTS if document.stem in sys.argv[1:] or not sys.argv[1:]]
    if not chosen:
        sys.exit(__doc__)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name, place in {"docs": ROOT / "docs", "demo": ROOT / "data" / "demo"}.items():
        (WORK / name).symlink_to(place)
    for document in chosen:
        text = rewritten(document)
        document.write_text(text, encoding="utf-8")
    print(f"written: {', '.join(document.name for document in chosen)}")


if __name__ == "__main__":
    main()
