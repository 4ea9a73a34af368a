"""The limit of a cache comes with the setting that it is from."""

import pytest

from ocr.cache.budget import Budget


@pytest.mark.parametrize(
    ("own", "total", "limit", "name"),
    [
        (1000, 2000, 1000, "cache.max_bytes=1000"),
        (3000, 2000, 2000, "cache.max_total_bytes=2000"),
        (1000, "auto", 1000, "cache.max_bytes=1000"),
        (10**18, "auto", None, "cache.max_total_bytes=auto"),
        ("auto", 10**18, None, "cache.max_bytes=auto"),
    ],
)
def test_the_smaller_limit_counts_and_is_named(tmp_path, own, total, limit, name):
    found, named = Budget(own, total).expected(tmp_path, used=0)
    assert named.split(",")[0] == name
    assert found == limit if limit is not None else 0 < found < 10**18
