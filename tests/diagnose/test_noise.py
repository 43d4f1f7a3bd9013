"""Which quantizers cost most: each alone, or groups first where there are more quantizers than runs."""

from __future__ import annotations

import pytest

from onnxq.bits import Subject
from onnxq.bits.study import Study
from onnxq.diagnose.noise import costliest
from onnxq.improvement import State
from tools.illnesses import Patient

BACKEND = "qnn"


@pytest.fixture(scope="module")
def study(tied: Patient) -> Study:
    return Study(Subject(tied.model, backend=BACKEND, data=tied.data[:8], config=tied.config, samples=4))


@pytest.fixture(scope="module")
def state(study: Study) -> State:
    return study.calibrated(study.plan())


def test_a_tie_is_one_quantizer_with_all_its_tensors(study: Study, state: State) -> None:
    first, *others = costliest(state, study.score, runs=1000)

    assert set(first.tensors) == {"boxes", "scores"}
    assert first.share > 0.9
    assert sum(row.share for row in (first, *others)) == pytest.approx(1.0)
    assert len(others) > 10


def test_rows_know_their_place_in_the_order_of_the_graph(study: Study, state: State) -> None:
    rows = {row.name: row for row in costliest(state, study.score, runs=1000)}
    order = [node.name for node in state.graph.nodes()]

    assert rows["image"].position == -1
    assert order[rows["boxes"].position] == rows["boxes"].node == "boxes.matmul"
    assert rows["stem.conv.weight"].node == "stem.conv"
    assert rows["stem.conv.weight"].position < rows["head.conv.weight"].position


def test_with_few_runs_groups_are_judged_first_and_the_culprit_is_found(study: Study, state: State) -> None:
    runs = 12
    judged = 0

    def counted(part: State) -> object:
        nonlocal judged
        judged += 1
        return study.score(part)

    rows = costliest(state, counted, runs)  # type: ignore[arg-type]

    assert judged <= runs
    assert len(rows) < judged
    assert set(rows[0].tensors) == {"boxes", "scores"}
    assert 0.9 < rows[0].share < 1.1  # of what the groups make together
