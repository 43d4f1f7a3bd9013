"""Which quantizers cost most: each alone, or groups first where there are more quantizers than runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxq.diagnose.look import look_at
from onnxq.diagnose.noise import costliest, local_noise
from onnxq.mixed_precision import Subject
from onnxq.mixed_precision.study import Study
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import Score
from onnxq.runtime import input_infos, open_dataset
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


def _counted(study: Study) -> tuple[Callable[[State], Score], list[int]]:
    evaluated: list[int] = []

    def score(part: State) -> Score:
        evaluated.append(len(part.plan.placements))
        return study.score(part)

    return score, evaluated


def test_with_few_runs_groups_are_cut_into_halves_until_the_culprit_is_found(study: Study, state: State) -> None:
    score, evaluated = _counted(study)
    runs = 20

    rows = costliest(state, score, runs)

    assert len(evaluated) <= runs
    assert max(evaluated) > 2  # groups were evaluated
    assert set(rows[0].tensors) == {"boxes", "scores"}
    assert 0.9 < rows[0].share <= 1.0


def test_with_few_runs_the_most_suspicious_are_evaluated_by_themselves(
    study: Study, state: State, tied: Patient
) -> None:
    score, evaluated = _counted(study)
    runs = 8
    observed = [tensor for placement in state.plan for tensor in placement.observe]
    dataset = open_dataset(tied.data[:8], input_infos(tied.model))
    suspicion = local_noise(state, look_at(state.graph, observed, dataset, None))

    rows = costliest(state, score, runs, suspicion)

    assert len(evaluated) <= runs
    assert set(rows[0].tensors) == {"boxes", "scores"}
    assert rows[0].share > 0.9
