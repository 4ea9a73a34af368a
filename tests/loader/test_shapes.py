"""Batches of pages that keep their shape: few shapes with little padding, every page once, ranks at equal cost."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import ConfigError
from ocr.loader.shapes import ShapeBatches, choose_shapes, smallest_holding

ANY_SIZES = st.lists(st.tuples(st.integers(1, 320), st.integers(1, 320)), min_size=1, max_size=30).map(np.array)
PORTRAITS = st.lists(st.integers(1, 256).map(lambda width: (width, 256)), min_size=1, max_size=30).map(np.array)


def pixels(shapes, sizes):
    return int(shapes[smallest_holding(shapes, sizes)].prod(axis=1).sum())


@given(ANY_SIZES, st.integers(1, 8))
def test_every_page_fits_into_one_of_few_shapes(sizes, limit):
    shapes = choose_shapes(sizes, limit)
    assert len(shapes) <= limit
    assert (shapes % 32 == 0).all()
    assert (sizes <= shapes[smallest_holding(shapes, sizes)]).all()
    assert (shapes <= shapes[-1]).all()


@given(PORTRAITS, st.integers(1, 4))
def test_no_other_choice_of_shapes_has_less_padding(sizes, limit):
    widths = np.unique(-(-sizes[:, 0] // 32) * 32).tolist()
    choices = [
        np.array([(width, 256) for width in chosen])
        for count in range(1, limit + 1)
        for chosen in itertools.combinations(widths, count)
        if chosen[-1] == widths[-1]
    ]
    assert pixels(choose_shapes(sizes, limit), sizes) == min(pixels(shapes, sizes) for shapes in choices)


def test_tall_and_wide_pages_have_shapes_of_their_own_and_one_that_holds_both():
    sizes = np.array([[100, 640]] * 5 + [[640, 100]] * 5)
    assert choose_shapes(sizes, 3).tolist() == [[128, 640], [640, 128], [640, 640]]


def test_the_smallest_shape_that_holds_a_page_is_taken():
    shapes = np.array([[128, 640], [640, 128], [640, 640]])
    assert smallest_holding(shapes, np.array([[128, 640], [129, 640], [1, 1], [640, 128]])).tolist() == [0, 2, 0, 1]


SIZES = st.lists(st.sampled_from([(96, 320), (128, 320), (200, 320), (320, 320), (320, 90)]), min_size=1, max_size=60)
SETTINGS = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 7),
        "shapes": st.integers(1, 5),
        "pixels": st.sampled_from([None, 1, 150_000, 10**6]),
        "seed": st.integers(0, 3),
        "shuffle": st.booleans(),
    }
)


def sampler(sizes, rank=0, world_size=1, drop_last=False, **settings):
    return ShapeBatches(np.array(sizes), drop_last=drop_last, rank=rank, world_size=world_size, **settings)


@given(SIZES, SETTINGS, st.integers(1, 4), st.integers(0, 3))
def test_all_ranks_together_have_every_page_once_and_one_shape_at_a_step(sizes, settings, ranks, epoch):
    if len(sizes) < ranks:
        return
    ranked = [list(sampler(sizes, rank, ranks, **settings).batches(epoch, 0)) for rank in range(ranks)]
    assert {len(batches) for batches in ranked} == {len(sampler(sizes, 0, ranks, **settings))}
    assert sorted(page for batches in ranked for batch in batches for page in batch) == list(range(len(sizes)))
    for step in zip(*ranked, strict=True):
        assert len({batch.shape for batch in step}) == 1
        assert max(map(len, step)) - min(map(len, step)) <= 1
        assert min(map(len, step)) >= 1
        for batch in step:
            height, width = batch.shape
            assert (np.array(sizes)[batch] <= (width, height)).all()


@given(SIZES, SETTINGS, st.integers(1, 3), st.integers(0, 3))
def test_with_drop_last_all_batches_of_a_shape_are_full_and_none_repeats_a_page(sizes, settings, ranks, epoch):
    size = settings["batch_size"]
    if settings["pixels"] is None and len(sizes) < size * ranks:
        return
    try:
        ranked = [list(sampler(sizes, r, ranks, True, **settings).batches(epoch, 0)) for r in range(ranks)]
    except ConfigError:
        assert settings["pixels"] is not None
        return
    pages = [page for batches in ranked for batch in batches for page in batch]
    assert len(set(pages)) == len(pages)
    assert len({len(batches) for batches in ranked}) == 1
    if settings["pixels"] is None:
        assert len(pages) == len(sizes) // (size * ranks) * size * ranks
    for batch in (batch for batches in ranked for batch in batches):
        expected = size if settings["pixels"] is None else max(1, settings["pixels"] // int(np.prod(batch.shape)))
        assert len(batch) == expected


@given(SIZES, SETTINGS, st.integers(0, 3), st.data())
def test_an_epoch_is_resumed_with_the_next_batch(sizes, settings, epoch, data):
    batches = sampler(sizes, **settings)
    whole = [(list(batch), batch.shape) for batch in batches.batches(epoch, 0)]
    done = data.draw(st.integers(0, len(whole)))
    assert [(list(batch), batch.shape) for batch in batches.batches(epoch, done)] == whole[done:]
    assert batches.batches(epoch, done).samples.tolist() == [page for batch, _ in whole[done:] for page in batch]


def test_epochs_have_different_orders_and_the_same_number_of_batches():
    sizes = [(32 * (1 + number % 7), 256) for number in range(60)]
    batches = sampler(sizes, batch_size=4, shuffle=True, drop_last=True)
    epochs = [[tuple(batch) for batch in batches.batches(epoch, 0)] for epoch in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [len(epoch) for epoch in epochs] == [len(batches)] * 3 == [15] * 3


def test_pages_left_out_are_others_in_every_epoch():
    sizes = [(64, 256)] * 11 + [(128, 256)] * 6
    batches = sampler(sizes, batch_size=4, shuffle=True, drop_last=True)
    left_out = [set(range(17)) - {page for batch in batches.batches(epoch, 0) for page in batch} for epoch in range(60)]
    assert {len(pages) for pages in left_out} == {1}
    assert len(set.union(*left_out)) >= 14


def test_left_over_pages_of_one_rank_keep_their_small_shape():
    batches = list(sampler([(64, 256)] * 3 + [(256, 256)] * 3, batch_size=2, shuffle=False).batches(0, 0))
    assert [batch.shape for batch in batches if 2 in batch] == [(256, 64)]
    assert sorted(len(batch) for batch in batches) == [1, 1, 2, 2]


def test_a_batch_has_as_many_pages_as_fit_into_its_pixels():
    batches = sampler([(64, 256)] * 8 + [(256, 256)] * 4, batch_size=1, pixels=2 * 256 * 256, shuffle=False)
    assert sorted((batch.shape, len(batch)) for batch in batches.batches(0, 0)) == [
        ((256, 64), 8),
        ((256, 256), 2),
        ((256, 256), 2),
    ]


@pytest.mark.parametrize(
    ("argument", "name"),
    [("shapes", "data.batch_shapes"), ("pixels", "data.batch_pixels"), ("batch_size", "batch_size")],
)
def test_settings_out_of_range_are_refused_by_name(argument, name):
    with rejects(ConfigError, setting=name, value=0):
        sampler([(64, 64)], **{"batch_size": 1, "shuffle": False, argument: 0})


def test_more_devices_than_pages_are_refused():
    with rejects(ConfigError, setting="world_size", value=3):
        sampler([(64, 64)] * 2, world_size=3, batch_size=4, shuffle=False)
