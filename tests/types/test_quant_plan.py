"""Plans: what a placement may say, JSON that reads back, and differences in words."""

import json

import pytest

from onnxq.errors import SpecError
from onnxq.types import BiasOf, Edge, PerChannel, Placement, QuantPlan, QuantSpec

UINT8 = QuantSpec("uint8", symmetric=False)
WEIGHT = QuantSpec("int8", granularity=PerChannel(0))


def small_plan() -> QuantPlan:
    placements = [
        Placement("x", UINT8, "activation", "input of Conv", observe=("x", "pooled"), observer="kl"),
        Placement("pooled", UINT8, "activation", "MaxPool keeps the scale", tie="x"),
        Placement("w", WEIGHT, "weight", "weight of Conv", observer="mse"),
        Placement("b", QuantSpec("int32"), "bias", "bias of Conv", derive=BiasOf("x", "w")),
        Placement("y", UINT8, "output", "output of Conv", edges=(Edge("add", 1),), observe=("y",)),
    ]
    return QuantPlan(
        "some_chip",
        {placement.tensor: placement for placement in placements},
        quantized={"conv": "Conv"},
        fused={"relu": "conv"},
        left_float={"softmax": "needs float"},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"role": "wheight"}, "role of 't' must be one of activation, weight, bias, output, got 'wheight'"),
        ({"tie": "t"}, "'t' is tied to itself"),
        ({"tie": "u", "derive": BiasOf("x", "w")}, "'t' cannot be both tied and derived"),
        ({"spec": QuantSpec("int32"), "role": "bias"}, "int32 on 't' needs the input and weight"),
    ],
    ids=str,
)
def test_an_illegal_placement_is_explained(arguments, message):
    with pytest.raises(SpecError, match=message):
        Placement(**{"tensor": "t", "spec": UINT8, "role": "activation", "why": "", **arguments})


def test_reads_back_from_json():
    plan = small_plan()
    back = QuantPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert back == plan
    assert back.diff(plan) == []


def test_an_unknown_key_is_named_with_its_neighbour():
    data = {"spec": {"dtype": "int8"}, "role": "weight", "wy": ""}
    with pytest.raises(SpecError, match="unknown key 'wy' in the placement of 'w'"):
        Placement.from_json("w", data)


def test_another_file_is_not_taken_for_a_plan():
    with pytest.raises(SpecError, match="not a quantization plan"):
        QuantPlan.from_json({"format": "onnxq-qparams"})


def test_lookup_leader_and_observed_tensors():
    plan = small_plan()
    assert (len(plan), "w" in plan, "z" in plan) == (5, True, False)
    assert [placement.tensor for placement in plan] == ["x", "pooled", "w", "b", "y"]
    assert (plan.leader("pooled"), plan.leader("y")) == ("x", "y")
    assert plan.observed() == ["x", "pooled", "y"]
    with pytest.raises(SpecError, match=r"tensor 'poole' has no quantizer\. Did you mean 'pooled'"):
        plan["poole"]


def test_differences_are_told_in_words():
    before, after = small_plan(), small_plan()
    del after.placements["y"]
    after.placements["pooled"] = Placement("pooled", QuantSpec("int8"), "activation", "override")
    after.left_float["conv"] = "the user said so"
    assert before.diff(after) == [
        "tensor pooled: activation uint8, asymmetric, per tensor tied to x -> activation int8, symmetric, per tensor",
        "tensor y: output uint8, asymmetric, per tensor on 1 edge(s) -> float",
        "node conv: quantized -> the user said so",
    ]
