"""What `make docs` adds to MkDocs: pages made from the repository and from the program, and links that fit the site."""

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
EXAMPLE = re.compile(r"(?:^|Examples: |\|) *((?:glyphfeed|find|curl) .*?)(?=   \||$)", re.MULTILINE)
TYPE = re.compile(r"<(?:list\[)?([a-zA-Z]+)\]?(?: range)?(?:,\w+)*>")
TYPES = {"str": "TEXT", "path": "PATH", "Path": "PATH", "int": "N", "float": "NUMBER"}
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README and CHANGELOG are written once, for repository and site; the reference is what the program says."""
    made = {page: (ROOT / source).read_text() for page, source in FROM_ROOT.items()}
    made |= {"reference/commands.md": "\n".join(commands()), "reference/settings.md": "\n".join(settings())}
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def commands() -> Iterator[str]:
    """Every command with what `--help` says of it."""
    from ocr.cli import app

    yield "# Commands\n"
    program = typer.main.get_command(app)
    for name, command in program.commands.items():  # type: ignore[attr-defined]
        parts = getattr(command, "commands", None)
        for words, each in [(name, command)] if parts is None else [(f"{name} {part}", parts[part]) for part in parts]:
            context = typer.Context(each, info_name=f"glyphfeed {words}")
            yield f"## {words}\n\n{plain(each.help or '')}\n"
            yield "\n".join(f"    {line}" for line in EXAMPLE.findall(each.epilog or "")) + "\n"
            rows = [row for parameter in each.params if (row := parameter.get_help_record(context))]
            if rows:
                yield "| argument or option | effect | default |\n|---|---|---|"
                yield from (table_row(*row) for row in rows)
            else:
                yield "It takes the [settings](settings.md) of training as `KEY=VALUE`."
            yield ""


def table_row(option: str, about: str) -> str:
    """An option as `--help` shows it, with words for the types of Python, and its default in a column of its own."""
    option = re.sub(r"<(\w+(?:\|\w+)+)>", r"\1", TYPE.sub(lambda kind: TYPES.get(kind[1], ""), option))
    name = re.sub(r"^([A-Z]+) (?:TEXT|PATH)$", r"\1", re.sub(r" +", " ", option.replace("...", "")).strip())
    default = (re.search(r"\[default: ([^\];]*)", about) or [None, ""])[1]
    about = re.sub(r"\s*\[(?:default: .*?|required|x>=\d+|[\d<=x]+)\]", "", " ".join(about.split()))
    return f"| `{name}` | {plain(about)} | {f'`{default}`' if default else ''} |"


def plain(text: str) -> str:
    """Text of a terminal as Markdown: angle brackets are not HTML, bars do not end a column."""
    return text.replace("<", "&lt;").replace("|", "&#124;")


def settings() -> Iterator[str]:
    """The configs of training, which have a comment per key."""
    from ocr.jobs.common_settings import common_settings

    configs = ROOT / "ocr/configs"
    yield "# Settings\n\n## The commonest\n\n| setting | default | effect |\n|---|---|---|"
    yield from (f"| `{key}` | `{default}` | {plain(about)} |" for key, default, about in common_settings())
    yield "\nThe other headings are the files from which `train`, `test`, `inspect` and `advise` are composed.\n"
    first = configs / "train.yaml"
    for file in sorted(configs.rglob("*.yaml"), key=lambda file: (file != first, len(file.parts), file)):
        yield f"## {file.relative_to(configs).with_suffix('')}\n\n```yaml\n{file.read_text()}```\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links within docs/ lead to pages; those to other files of the repository keep their text only."""
    source = FROM_ROOT.get(page.file.src_uri)
    folder = ROOT if source else (ROOT / "docs" / page.file.src_uri).parent

    def fit(link: re.Match[str]) -> str:
        picture, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        if ":" in target:
            return link[0]
        path = (folder / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            return f"{picture}[{text}]({path.relative_to(ROOT / 'docs') if source else target}{anchor})"
        return text if path.exists() else link[0]

    return LINK.sub(fit, markdown)
