"""What a configuration says about operators, nodes and tensors is what the plan holds, and the most specific wins."""

from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import UnsupportedError
from onnxq.types import PerChannel, PerTensor, Placement
from tests.place.small_network import plan_of
from tests.products import pairwise


def value_of(placement: Placement, field: str) -> Any:
    if field == "bits":
        return placement.spec.bits
    if field == "per_channel":
        return isinstance(placement.spec.granularity, PerChannel)
    if hasattr(placement.spec, field):
        return getattr(placement.spec, field)
    return getattr(placement, field)


CHANGES: list[tuple[str, Any]] = [
    ("bits", 4),
    ("dtype", "int16"),
    ("symmetric", True),
    ("power_of_two", True),
    ("rounding", "half_away"),
    ("observer", "percentile:percentile=99.5"),
    ("fake_quantizer", "lsq"),
    ("minimum_scale", 0.5),
]


LEVELS = ["all", "op", "node", "glob", "regex", "tensor"]
TENSORS = {"weight": "w2", "activation": "r", "output": "s"}


@pytest.mark.parametrize(("change", "level", "part"), pairwise(CHANGES, LEVELS, list(TENSORS)), ids=str)
def test_every_field_can_be_set_at_every_level(change: tuple[str, Any], level: str, part: str) -> None:
    (field, value), tensor = change, TENSORS[part]
    before = value_of(plan_of({}, "academic_any")[tensor], field)
    value = not before if isinstance(value, bool) else value
    node, op = ("add1", "Add") if part == "output" else ("conv2", "Conv")
    tables: dict[str, dict[str, Any]] = {
        "all": {"activation" if part == "output" else part: {field: value}},
        "op": {"op": {op: {part: {field: value}}}},
        "node": {"node": {node: {part: {field: value}}}},
        "glob": {"node": {f"{node[:-1]}[{node[-1]}]": {part: {field: value}}}},
        "regex": {"node": {f"re:{node[:-1]}{node[-1]}": {part: {field: value}}}},
        "tensor": {"tensor": {tensor: {field: value}}},
    }
    after = plan_of(tables[level], "academic_any")[tensor]
    assert before != value
    assert value_of(after, field) == value
    assert field in dict(after.set_by)


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ({"weight": {"bits": 4}}, {"op": {"Conv": {"weight": {"bits": 8}}}}),
        ({"op": {"Conv": {"weight": {"bits": 4}}}}, {"node": {"re:.*2": {"weight": {"bits": 8}}}}),
        ({"node": {"re:.*2": {"weight": {"bits": 4}}}}, {"node": {"conv*": {"weight": {"bits": 8}}}}),
        ({"node": {"conv*": {"weight": {"bits": 4}}}}, {"node": {"conv2": {"weight": {"bits": 8}}}}),
        ({"node": {"conv2": {"weight": {"bits": 4}}}}, {"tensor": {"re:w2": {"bits": 8}}}),
        ({"tensor": {"w*": {"bits": 4}}}, {"tensor": {"w2": {"bits": 8}}}),
        ({"op": {"Conv": {"skip": True}}}, {"node": {"conv2": {"skip": False}}}),
    ],
)
def test_the_more_specific_wins_whatever_the_order(weaker: dict[str, Any], stronger: dict[str, Any]) -> None:
    for first, second in ((weaker, stronger), (stronger, weaker)):
        merged: dict[str, Any] = {}
        for part in (first, second):
            for key, table in part.items():
                merged.setdefault(key, {}).update(table)
        plan = plan_of(merged, "academic_any")
        assert plan["w2"].spec.bits == 8
    assert "w2" not in plan_of(weaker, "academic_any") or plan_of(weaker, "academic_any")["w2"].spec.bits == 4


def test_of_two_equal_patterns_the_later_wins_field_by_field() -> None:
    plan = plan_of({"node": {"conv*": {"weight": {"bits": 4, "rounding": "half_up"}}, "*2": {"weight": {"bits": 6}}}})
    assert plan["w2"].spec.bits == 6
    assert plan["w2"].spec.rounding == "half_up"
    assert plan["w1"].spec.bits == 4


def test_a_named_type_replaces_wider_bits_of_a_general_level() -> None:
    plan = plan_of({"op": {"Conv": {"weight": {"bits": 4}}}, "node": {"conv2": {"weight": {"dtype": "int8"}}}})
    assert plan["w2"].spec.dtype == "int8"
    assert plan["w1"].spec.dtype == "int4"


def test_bits_keep_the_sign_that_a_type_has() -> None:
    plan = plan_of({"activation": {"dtype": "uint8"}, "tensor": {"r": {"bits": 4}}}, "academic_any")
    assert plan["r"].spec.dtype == "uint4"


def test_between_readers_of_equal_weight_the_format_with_more_bits_is_taken() -> None:
    low, high = {"activation": {"bits": 4}}, {"activation": {"bits": 16}}
    for tables in ({"Conv": low, "Add": high}, {"Add": high, "Conv": low}):
        assert plan_of({"op": tables}, "academic_any")["r"].spec.bits == 16


def test_the_result_of_a_layer_is_that_behind_the_activation_inside_it() -> None:
    plan = plan_of({"node": {"conv1": {"output": {"bits": 4}}}}, "academic_any")
    assert plan["r"].spec.bits == 4
    assert plan_of({"node": {"relu1": {"output": {"bits": 4}}}}, "academic_any")["r"].spec.bits == 4


def test_inputs_and_outputs_of_the_model_have_tables_of_their_own() -> None:
    plan = plan_of({"input": {"bits": 16}, "output": {"bits": 4}}, "academic_any")
    assert plan["x"].spec.bits == 16
    assert plan["o"].spec.bits == 4
    assert plan["r"].spec.bits == 8


@pytest.mark.parametrize("axis", [None, 1, 0])
def test_channels_of_weights_and_their_axis(axis: int | None) -> None:
    wanted: dict[str, Any] = {"per_channel": True} | ({} if axis is None else {"channel_axis": axis})
    plan = plan_of({"op": {"Gemm": {"weight": wanted}}}, "academic_any")
    assert plan["w3"].spec.granularity == PerChannel(1 if axis is None else axis)
    assert plan_of({"op": {"Gemm": {"weight": {"per_channel": False}}}})["w3"].spec.granularity == PerTensor()


def test_channels_of_activations_are_on_the_second_axis() -> None:
    plan = plan_of(
        {"activation": {"per_channel": True}, "node": {"fc": {"activation": {"per_channel": False}}}}, "academic_any"
    )
    assert plan["r"].spec.granularity == PerChannel(1)
    assert plan["f"].spec.granularity == PerTensor()


def test_a_bias_of_eight_bits_has_a_range_of_its_own_and_one_of_32_derives_it() -> None:
    own = plan_of({"bias": {"bits": 8}}, "academic_any")
    assert own["b1"].spec.dtype == "int8"
    assert own["b1"].derive is None
    assert (
        plan_of({"op": {"Conv": {"bias": {"bits": 8}}}, "node": {"conv2": {"bias": {"bits": 32}}}})["b2"].derive
        is not None
    )


def test_a_bias_can_be_quantized_where_the_target_leaves_it_float_if_the_target_takes_it() -> None:
    assert "b1" not in plan_of({}, "tensorrt")
    with pytest.raises(UnsupportedError, match="takes float biases"):
        plan_of({"node": {"conv1": {"bias": {"bits": 32}}}}, "tensorrt")
