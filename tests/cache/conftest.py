"""What holds for a cache holds for both of its forms."""

import gc
from pathlib import Path

import cache_worker
import pytest


@pytest.fixture(scope="session", autouse=True)
def quick_collections(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A dataset has a cycle of references in it and its files are open until that is found, so tests collect often.

    What is loaded for the first page is left out of that: it is most of the objects.
    """
    folder = tmp_path_factory.mktemp("first")
    cache_worker.items(cache_worker.open_pages(cache_worker.write_pages(folder / "pages", 2), folder / "cache"))
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["raw", "dense"])
def each_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test once per form of the cache."""
    if request.param == "dense" and request.node.get_closest_marker("raw_only"):
        pytest.skip("about the slots of raw arrays")
    monkeypatch.setattr(cache_worker, "form", request.param)
    return request.param


@pytest.fixture
def full_cache(tmp_path: Path) -> Path:
    """The one cache in a folder of caches, with four samples, all there."""
    pages = cache_worker.write_pages(tmp_path / "pages", 4)
    cache_worker.items(cache_worker.open_pages(pages, tmp_path / "cache"))
    return next((tmp_path / "cache").iterdir())
