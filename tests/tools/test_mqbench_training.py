"""The table of trainings on the page about MQBench is what the script measures."""

from __future__ import annotations

import re

import pytest
import torch

from tools.mqbench_training import BLOCK, CASES, PAGE, measure, table


def test_the_page_has_a_row_for_every_case() -> None:
    found = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    rows = [line for line in found[0].splitlines() if line.startswith("| `")]
    assert [re.findall(r"`([^`]+)`", row)[0] for row in rows] == [case.backend for case in CASES]
    for row in rows:
        ptq, trained, file = (float(cell) for cell in row.split("|")[3:6])
        assert trained > ptq
        assert file == trained


@pytest.mark.slow
def test_three_bits_trained_again_are_as_good_as_the_page_says() -> None:
    torch.set_num_threads(1)
    case = next(case for case in CASES if case.backend == "Academic")
    found = measure(case)
    row = next(
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `Academic` | Learn")
    )
    said = [float(cell) / 100 for cell in row.split("|")[3:6]]
    assert [found.ptq, found.trained, found.file] == pytest.approx(said, abs=0.01)
    assert found.within == 1.0
    assert found.trained_loss < 0.5 * found.ptq_loss
    assert "`Academic`" in table({case: found})
