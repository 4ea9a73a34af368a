"""Which shapes batches have: few, multiples of 32, holding every page, with the least padding."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ocr.loader.shapes import choose_shapes, smallest_holding

SIZES = st.lists(st.tuples(st.integers(1, 320), st.integers(1, 320)), min_size=1, max_size=30).map(np.array)
PORTRAITS = st.lists(st.integers(1, 256).map(lambda width: (width, 256)), min_size=1, max_size=30).map(np.array)


def pixels(shapes, sizes):
    return int(shapes[smallest_holding(shapes, sizes)].prod(axis=1).sum())


@given(SIZES, st.integers(1, 8))
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
