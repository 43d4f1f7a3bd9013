"""Products of test cases, of which every run takes a part and the slow tests take all.

Most faults show with one value or with a pair of values, so that a part of a product says nearly as much as all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

Places = tuple[int, ...]
"""A combination: the place of its value on each axis."""


def pairwise(*axes: Sequence[Any]) -> list[Any]:
    """All combinations for `parametrize`; some, in which every pair of values of two axes occurs, are not slow."""
    product = list(itertools.product(*(range(len(axis)) for axis in axes)))
    missing = {pair for combination in product for pair in _pairs(combination)}
    often = set()
    while missing:
        best = max(product, key=lambda combination: len(missing & _pairs(combination)))
        often.add(best)
        missing -= _pairs(best)
    return _marked(axes, product, often)


def each_once(*axes: Sequence[Any]) -> list[Any]:
    """All combinations for `parametrize`; some, in which every value of every axis occurs, are not slow."""
    product = list(itertools.product(*(range(len(axis)) for axis in axes)))
    longest = max(len(axis) for axis in axes)
    often = {tuple(number % len(axis) for axis in axes) for number in range(longest)}
    return _marked(axes, product, often)


def _pairs(combination: Places) -> set[tuple[tuple[int, int], ...]]:
    return set(itertools.combinations(enumerate(combination), 2))


def _marked(axes: Sequence[Sequence[Any]], product: Sequence[Places], often: set[Places]) -> list[Any]:
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, combination, strict=True)),
            marks=() if combination in often else pytest.mark.slow,
        )
        for combination in product
    ]
