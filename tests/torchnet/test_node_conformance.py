"""ONNX's own node tests on torch: all pass but those in left_out.json, and nothing stays there that passes."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import onnx
import pytest

from tests.torchnet.conformance import is_rounding, left_out, node_cases, problem_of
from tools.conformance import PAGE, page

VERSION = "1.23"
"""The version of onnx whose cases the list and the count below are about."""

PASSING = 1866
"""How many cases pass; it may only grow."""

SLICES = 8
"""Parts of the cases, so that several workers can share them."""

pytestmark = pytest.mark.skipif(
    not onnx.__version__.startswith(VERSION + "."), reason=f"the list of cases is that of onnx {VERSION}"
)


@pytest.mark.parametrize("part", range(SLICES))
def test_torch_reproduces_every_case_of_onnx_that_is_not_left_out(part: int) -> None:
    expected = left_out()
    failing, passing = {}, []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, case in itertools.islice(node_cases().items(), part, None, SLICES):
            problem = problem_of(case)
            if problem is not None and name not in expected:
                failing[name] = problem
            elif problem is None and name in expected and not is_rounding(expected[name]):
                passing.append(name)
    assert not failing, f"{len(failing)} cases that passed before: {failing}"
    assert not passing, f"these pass: remove them from left_out.json, and raise PASSING: {passing}"


def test_the_number_of_passing_cases_does_not_fall() -> None:
    """Nothing runs here: the test above keeps the list complete."""
    assert len(node_cases()) - len(left_out()) >= PASSING


def test_the_page_of_operators_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(left_out()), "run python -m tools.conformance"
