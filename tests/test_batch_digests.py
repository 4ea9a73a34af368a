"""One split has one digest, wherever its pages are stored and whoever loads them."""

import pytest
from batch_digests import config_cases, folder_cases

PATHS = {
    "val": ("val, device", "config val, cache off", "shards "),
    "train warp": ("train warp, device",),
    "train window": ("train window, device",),
    "train page": ("train page, device",),
}


@pytest.mark.parametrize(("path", "count"), [("val", 9), ("train warp", 6), ("train window", 6), ("train page", 6)])
def test_every_engine_cache_and_storage_gives_one_digest(synthetic, tmp_path, path, count):
    cases = [*folder_cases(synthetic, tmp_path / "cache"), *config_cases(synthetic, tmp_path)]
    digests = {name: case() for name, case in cases if name.startswith(PATHS[path])}
    assert len(digests) == count
    assert len(set(digests.values())) == 1, digests
