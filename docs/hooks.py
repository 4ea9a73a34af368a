"""What `make docs` does besides MkDocs: pages from the files of the repository's root, and links that fit the site."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README and CHANGELOG are written once, for the repository and for the site."""
    for page, source in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


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
