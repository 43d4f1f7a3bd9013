"""Pieces of a large array cover it exactly once and stay small."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.numerics import chunks


@settings(max_examples=80, deadline=None)
@given(shape=st.lists(st.integers(0, 7), max_size=4), limit=st.integers(1, 60))
def test_every_element_is_in_exactly_one_small_piece(shape, limit):
    visits = np.zeros(shape, int)
    for index in chunks(shape, limit):
        assert visits[index].size <= limit
        visits[index] += 1
    assert visits.size == 0 or visits.min() == visits.max() == 1


def test_a_small_array_is_one_piece():
    assert list(chunks((3, 4))) == [(slice(0, 3), slice(0, 4))]
    assert list(chunks(())) == [()]


@pytest.mark.parametrize("shape", [(1000, 1000), (2, 500_000), (1_000_000,)])
def test_pieces_are_not_needlessly_small(shape):
    limit = 65_536
    assert len(list(chunks(shape, limit))) <= 2 * prod(shape) // limit + 2
