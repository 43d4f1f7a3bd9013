"""Tensors that share one quantizer share it after every refinement; one that breaks that is caught and named."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.errors import CheckFailed
from onnxq.graph import Graph
from onnxq.refine import REFINEMENTS, Refined, refine
from onnxq.session.session import open_session
from onnxq.targets import get_backend
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan
from tests.passes.equivalence import build_model

DATA = {"x": np.random.default_rng(8).normal(0, 1, (4, 3, 8, 8)).astype(np.float32)}
FAULTY = "doubles_one"


def pooled() -> onnx.ModelProto:
    """A MaxPool between two convolutions: one scale on both of its sides."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w1"], ["y"], name="second"),
    ]
    random = np.random.default_rng(9)
    weights = {
        "w0": random.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32),
        "w1": random.normal(0, 0.1, (4, 4, 1, 1)).astype(np.float32),
    }
    return build_model(nodes, {"x": (1, 3, 8, 8)}, ["y"], weights)


def doubles_one(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Doubles the scale of a tied tensor, and forgets the one that it is tied to."""
    tied = next(placement.tensor for placement in plan if placement.tie is not None)
    held = qparams[tied]
    qparams.put(tied, QParams(held.spec, held.scale * 2, held.zero_point), FAULTY)
    return Refined(qparams)


@pytest.mark.parametrize("target", ["onnx_qnn", "vitis", "snpe"])
def test_a_refinement_that_forgets_a_tie_is_caught_and_named(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REFINEMENTS, "_items", dict(REFINEMENTS.items()))
    REFINEMENTS.register(FAULTY)(doubles_one)
    usual = get_backend(target)
    onnxq.quantize(pooled(), backend=usual, data=DATA, config={"effort": 0})
    broken = usual.replace(refinements=(*usual.refinements, FAULTY))
    with pytest.raises(CheckFailed, match=f"refinement '{FAULTY}' has given '[cp]' scale .* share one quantizer"):
        onnxq.quantize(pooled(), backend=broken, data=DATA, config={"effort": 0})


def test_parameters_that_come_with_a_broken_tie_are_not_blamed_on_a_refinement() -> None:
    session = open_session(pooled(), backend="vitis", data=DATA)
    session.open_data()
    plan = session.plan()
    state = session.find_parameters(plan, session.gather(plan)).state
    broken = doubles_one(state.graph, plan, state.qparams, session.prepared.backend).qparams
    with pytest.raises(CheckFailed, match=re.escape("the steps before all refinements have given")):
        refine(state.graph, plan, broken, session.prepared.backend)


def test_weights_that_share_a_scale_stay_together_where_one_goes_to_winograd() -> None:
    share = {"node": {name: {"weight": {"share": "one", "per_channel": False}} for name in ("first", "second")}}
    result = onnxq.quantize(pooled(), backend="ncnn", data=DATA, config={"effort": 0, **share})
    first, second = result.qparams["w0"], result.qparams["w1"]
    assert first == second
    largest = np.abs(Graph.from_model(pooled()).values("w0")).max()
    np.testing.assert_allclose(first.scale, largest / 31, rtol=1e-6)
