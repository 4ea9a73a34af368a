"""What holds for a cache holds for both of its forms."""

from pathlib import Path

import cache_worker
import pytest


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
