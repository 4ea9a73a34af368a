"""Samples of another cache of the same pages are taken over; only the first ones are made again, as a proof."""

import pytest

from ocr.cache.siblings import Siblings
from ocr.cache.store import Store

PAGES = 4


@pytest.mark.parametrize("untrusted", [0, 1, 3, 9])
def test_as_many_samples_are_made_again_as_are_not_trusted(full_cache, untrusted):
    store, made = Store(full_cache), []
    siblings = Siblings(full_cache.with_name(f"{full_cache.name.split('-')[0]}-another"), untrusted)
    for index in range(PAGES):
        row = store.row(index)

        def make(index=index, row=row):
            made.append(index)
            return store.read(index, row)

        assert siblings.find(row.content, row.annotation, make).checksum() == row.checksum
    assert made == [*range(min(untrusted, PAGES))]


def test_a_cache_whose_samples_differ_from_those_made_now_is_not_used(full_cache):
    store = Store(full_cache)
    first, second = store.row(0), store.row(1)
    siblings = Siblings(full_cache.with_name(f"{full_cache.name.split('-')[0]}-another"), untrusted=1)
    assert siblings.find(first.content, first.annotation, lambda: store.read(1, second)) is None
    assert siblings.find(second.content, second.annotation, lambda: store.read(1, second)) is None
