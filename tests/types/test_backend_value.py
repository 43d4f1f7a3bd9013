"""A backend is data: its rules are found by operator, and changing it makes a new one."""

import dataclasses

import pytest

from onnxq.types import Backend, Limits, OpRule, PerChannel, PerTensor, QuantSpec, SameScaleRule, Scheme
from onnxq.types.backend import per_tensor

WEIGHT = QuantSpec("int8", granularity=PerChannel(0))
BACKEND = Backend(
    "some_chip",
    "a chip",
    Scheme(QuantSpec("int8"), WEIGHT),
    rules=(OpRule(("Conv", "Gemm"), weight=1, bias=2), OpRule(("Add",), inputs=None)),
    limits=Limits(("int8",)),
    same_scale=(SameScaleRule(("MaxPool",)), SameScaleRule(("Concat",), inputs=None)),
)


def test_rules_are_found_by_operator():
    (rule,) = BACKEND.rules_for("Gemm")
    assert rule is BACKEND.rules[0]
    assert BACKEND.rules_for("Softmax") == ()
    assert BACKEND.same_scale_rule_for("Concat") is BACKEND.same_scale[1]
    assert BACKEND.same_scale_rule_for("Conv") is None


def test_replace_leaves_the_original_alone():
    other = BACKEND.replace(name="other_chip", absorb_activations=True)
    assert (other.name, other.absorb_activations, other.rules) == ("other_chip", True, BACKEND.rules)
    assert (BACKEND.name, BACKEND.absorb_activations) == ("some_chip", False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        BACKEND.name = "changed"


def test_per_tensor_changes_only_the_granularity():
    assert per_tensor(WEIGHT) == QuantSpec("int8")
    assert isinstance(per_tensor(WEIGHT).granularity, PerTensor)
