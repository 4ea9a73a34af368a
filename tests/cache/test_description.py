"""about.json: whatever it says, pages are right and nothing raises; files of a cache are their user's own."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cache_worker import items, open_pages, outcomes, read_right, write_pages
from sameness import assert_same
from typer.testing import CliRunner

from ocr.cache.store_folder import MAX_ABOUT_BYTES
from ocr.cli import app
from ocr.pipeline.fingerprint import digest

PAGES = 4


class Full(NamedTuple):
    """Pages, their samples, and a cache of all of them."""

    pages: Path
    expected: list[Any]
    root: Path


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Full:
    base = tmp_path_factory.mktemp("described")
    pages = write_pages(base / "pages", PAGES)
    expected = items(open_pages(pages))
    assert read_right(pages, base / "cache", expected) == (0, PAGES, 0)
    return Full(pages, expected, base / "cache")


@pytest.fixture
def folder(full: Full, tmp_path: Path) -> Path:
    """A copy of the one cache."""
    return next(Path(shutil.copytree(full.root, tmp_path / "cache")).iterdir())


def text(content: bytes) -> Callable[[Path], None]:
    return lambda path: Path.write_bytes(path, content) and None


def signed(**change: Any) -> Callable[[Path], None]:
    """A change by somebody who knows how the digest is made."""

    def tamper(path: Path) -> None:
        about = json.loads(path.read_text())
        del about["digest"]
        layout = about["layout"]
        about |= change
        if isinstance(change.get("layout"), dict):
            about["layout"] = {key: value for key, value in (layout | change["layout"]).items() if value != "gone"}
        path.write_text(json.dumps(about | {"digest": digest(json.dumps(about, sort_keys=True))}))

    return tamper


def make_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def make_huge(path: Path) -> None:
    os.truncate(path, MAX_ABOUT_BYTES + 1)


LAYOUTS: list[Any] = [
    *({"count": value} for value in (0, PAGES + 1, PAGES - 1, 10**30, "4", 4.0, True, "gone")),
    *({"height": value} for value in (0, -64, None)),
    *({"width": value} for value in (1, 65, {})),
    *({"dtype": value} for value in ("bogus", "object", "U8", 8, None, "uint8", "gone")),
    *({"maps": value} for value in (False, "yes")),
    {"more": 1},
]
TAMPERED = {
    **{f"text {content[:12]!r}": text(content) for content in (b"", b"{}", b"[]", b"null", b"\xff\xfe")},
    **{f"nested {opening!r}": text(opening * 200_000) for opening in (b"[", b'{"a":')},
    "many digits": text(b'{"format": ' + b"9" * 5000 + b"}"),
    **{f"format {value!r}": signed(format=value) for value in (0, 2, "1")},
    **{f"layout {value!r}": signed(layout=value) for value in (None, [], "x")},
    **{f"layout {layout}": signed(layout=layout) for layout in LAYOUTS},
    **{f"dataset {value!r}": signed(dataset=value) for value in (None, 3, "\0", "[/x]")},
    **{f"created {value!r}": signed(created=value) for value in (None, "now", -1, float("nan"), float("inf"), 1e300)},
    **{f"stages {value!r}": signed(stages=value) for value in (None, 3, {}, "[/red]")},
    **{tamper.__name__: tamper for tamper in (make_a_pipe, make_a_loop, make_huge)},
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_description_that_was_tampered_with_costs_pages_and_raises_nothing(full, folder, tamper):
    tamper(folder / "about.json")
    root = str(folder.parent)
    for command in (["ls"], ["stats"], ["stats", "--json"], ["verify"], ["clear", "--dry-run"]):
        result = CliRunner().invoke(app, ["cache", *command, "--folder", root])
        assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
    dataset = open_pages(full.pages, folder.parent)
    for epoch in (1, 2):
        assert_same(items(dataset), full.expected)
        again = outcomes(dataset)
        dataset.set_epoch(epoch)
    assert again == (PAGES, 0, 0)
    assert read_right(full.pages, folder.parent, full.expected) == (PAGES, 0, 0)


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_only_the_user_may_read_what_is_cached(full, tmp_path, mask):
    before = os.umask(mask)
    try:
        read_right(full.pages, tmp_path / "new" / "cache", full.expected)
    finally:
        os.umask(before)
    root = tmp_path / "new" / "cache"
    found = [root, *root.rglob("*")]
    assert len(found) == 5
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_that_exists_keeps_its_mode(full, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o755)
    (tmp_path / "cache").chmod(0o755)
    read_right(full.pages, tmp_path / "cache", full.expected)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "cache").iterdir()} == {0o700}


@pytest.mark.parametrize("name", ["about.json", "rows", "data"])
def test_a_cache_with_a_folder_in_place_of_a_file_is_removed_whole(full, folder, name):
    cache = folder.parent
    (folder / name).unlink()
    (folder / name).mkdir()
    (folder / name / "inside").touch()
    assert read_right(full.pages, cache, full.expected) == (0, PAGES, 0)
    assert read_right(full.pages, cache, full.expected) == (PAGES, 0, 0)
    assert [path.name for path in cache.iterdir()] == [folder.name]
