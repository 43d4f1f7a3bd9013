"""Work in threads: in the order of the items, few at a time, errors reach the caller; one thread for products."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from onnxq.runtime import blas
from onnxq.runtime.blas import one_blas_thread
from onnxq.runtime.workers import in_threads


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    def late(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number * number

    assert list(in_threads(late, range(13), threads)) == [number * number for number in range(13)]


def test_no_more_items_are_taken_than_threads_work_on() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(9):
            taken.append(number)
            yield number

    results = in_threads(lambda number: number, items(), 3)
    assert next(results) == 0
    assert taken == [0, 1, 2]


def test_an_error_reaches_the_caller() -> None:
    def fail(number: int) -> int:
        if number == 4:
            raise ValueError("four")
        return number

    with pytest.raises(ValueError, match="four"):
        list(in_threads(fail, range(8), 2))


def test_the_number_of_blas_threads_is_restored() -> None:
    found = blas._thread_functions()
    if found is None:
        pytest.skip("numpy has another library of matrix products here")
    get, put = found
    before = get()
    put(2)
    try:
        with one_blas_thread():
            assert get() == 1
            np.ones((300, 300)) @ np.ones((300, 300))
        assert get() == 2
    finally:
        put(before)
