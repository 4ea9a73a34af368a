"""What holds for a cache holds for both of its forms."""

import cache_worker
import pytest


@pytest.fixture(params=["raw", "dense"])
def each_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test once per form of the cache."""
    if request.param == "dense" and request.node.get_closest_marker("raw_only"):
        pytest.skip("about the slots of raw arrays")
    monkeypatch.setattr(cache_worker, "form", request.param)
    return request.param
