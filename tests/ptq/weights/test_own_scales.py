"""Weights that share a scale are found by one walk over the plan, however many weights there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.ptq.weights.own_scales import Sharing, with_own_scale
from onnxq.types import Placement, QuantPlan
from tests.ptq.calibrated import ready


def layers(count: int) -> onnx.ModelProto:
    """`count` layers that read the same input."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(0, 0.3, (4, 4)).astype(np.float32), f"w{i}") for i in range(count)]
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"], name=f"n{i}") for i in range(count)]
    graph = helper.make_graph(
        [*nodes, helper.make_node("Concat", [f"y{i}" for i in range(count)], ["y"], name="join", axis=0)],
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2 * count, 4])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class CountedPlan(QuantPlan):
    """A plan that counts the placements that are looked at one by one."""

    looked_at = 0

    def __iter__(self) -> Iterator[Placement]:
        for placement in super().__iter__():
            CountedPlan.looked_at += 1
            yield placement


def looked_at(count: int, improvement: str) -> int:
    found = ready(layers(count), [{"x": np.ones((2, 4), np.float32)}] * 2, "qnn")
    plan = CountedPlan(**{field.name: getattr(found.state.plan, field.name) for field in fields(QuantPlan)})
    CountedPlan.looked_at = 0
    assert replace(found, state=replace(found.state, plan=plan)).improve(improvement).changed
    return CountedPlan.looked_at


@pytest.mark.parametrize(
    "improvement", ["weight_scale_search", "weight_scale_search:objective=weights", "hqq:iterations=1"]
)
def test_twice_the_weights_are_twice_the_steps(improvement: str) -> None:
    few, many = (looked_at(count, improvement) for count in (10, 20))
    assert few >= 10
    assert many < 2.5 * few


def test_a_scale_is_its_own_where_all_that_share_it_are_weights() -> None:
    plan = ready(layers(4), [{"x": np.ones((2, 4), np.float32)}] * 2, "qnn").state.plan
    tied = {"w1": "w0", "w3": "x"}
    plan.placements = {
        name: replace(placement, tie=tied.get(name), observe=()) if name in tied else placement
        for name, placement in plan.placements.items()
    }
    sharing = Sharing(plan)
    assert list(sharing.members("w1")) == ["w0", "w1"]
    assert sharing.alone("w2")
    assert not sharing.alone("w0")
    own, declined = with_own_scale(sharing, [plan[f"w{i}"] for i in range(4)])
    assert [placement.tensor for placement in own] == ["w0", "w2"]
    assert declined == ["w3: it has the scale of 'x'"]
