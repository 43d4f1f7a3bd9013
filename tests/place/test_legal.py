"""A plan that the target cannot take is refused before calibration: with the tensor, the rule and the remedy."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.cli.planned import check_fits, planned_session
from onnxq.config import read_config
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.place.legal import violations
from onnxq.quantize import quantize
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import get_backend
from onnxq.types import PerChannel, Placement, QuantPlan, QuantSpec, Scheme
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net


def convolutions() -> Net:
    net = Net("two_convolutions")
    x = net.input("x", [1, 3, 8, 8])
    net.output(net.node("Conv", net.conv_relu(x, 3, 8), net.weight(8, 8, 3, 3, name="w2"), output="y"))
    return net


def test_channels_of_an_activation_are_refused_for_tensorrt() -> None:
    base = get_backend("tensorrt")
    wrong = base.replace(scheme=Scheme(QuantSpec("int8", granularity=PerChannel(1)), base.scheme.weight))
    with pytest.raises(UnsupportedError) as error:
        make_plan(prepare(convolutions().model(), wrong))
    text = str(error.value)
    assert "tensor 'x'" in text
    assert "[activation-per-tensor]" in text
    assert "per_channel = false" in text


def test_an_asymmetric_format_is_refused_where_zero_points_are_zero() -> None:
    with pytest.raises(UnsupportedError) as error:
        make_plan(prepare(convolutions().model(), "tensorrt", {"activation": {"symmetric": False}}))
    assert "[zero-point-zero] tensor 'x'" in str(error.value)
    assert "symmetric = true under [activation]" in str(error.value)


def test_nothing_is_written_for_a_plan_that_is_refused(tmp_path) -> None:
    data = {"x": np.zeros((2, 3, 8, 8), np.float32)}
    config = {"activation": {"symmetric": False}}
    with pytest.raises(UnsupportedError):
        quantize(convolutions().model(), backend="tensorrt", data=data, config=config, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


LIMITS = {
    "dtype": ("onnxruntime", QuantSpec("uint2", symmetric=False), "activation", {}),
    "dtype ": ("tensorrt", QuantSpec("int4"), "activation", {}),
    "float-bias": ("tensorrt", QuantSpec("int8"), "bias", {}),
    "weight-per-tensor": (
        "tensorrt",
        QuantSpec("int8", granularity=PerChannel(0)),
        "weight",
        {"weights_per_tensor": True},
    ),
    "power-of-two": ("tensorrt", QuantSpec("int8"), "weight", {"power_of_two": True}),
}


@pytest.mark.parametrize("rule", LIMITS)
def test_each_limit_is_named_with_its_tensor(rule: str) -> None:
    from dataclasses import replace

    name, spec, role, changes = LIMITS[rule]
    backend = get_backend(name)
    backend = backend.replace(limits=replace(backend.limits, **changes))
    plan = QuantPlan(name, {"t": Placement("t", spec, role, "for the test")})  # type: ignore[arg-type]
    (found,) = violations(plan, backend)
    assert found.startswith(f"[{rule.strip()}] tensor 't' (for the test): ")
    assert not list(violations(QuantPlan(name, {}), backend))


def test_strict_refuses_an_operator_without_a_rule() -> None:
    net = convolutions()
    net.output(net.node("Erf", "y", name="unknown_one", output="z"))
    prepared = prepare(net.model(), "tensorrt")
    reason = make_plan(prepared).left_float["unknown_one"]
    assert (reason.code, reason) == ("no_rule", "tensorrt has no rule for Erf")
    with pytest.raises(UnsupportedError) as error:
        make_plan(prepared, strict=True)
    assert "[no-rule] tensor 'z' (node 'unknown_one'): tensorrt has no rule for Erf" in str(error.value)
    assert "--skip op:Erf" in str(error.value)


@pytest.mark.parametrize("reason", ["tensorrt has no rule for Erf", "edited"])
def test_strict_refuses_it_in_a_plan_that_was_read_too(reason: str) -> None:
    net = convolutions()
    net.output(net.node("Erf", "y", name="unknown_one", output="z"))
    data = make_plan(prepare(net.model(), "tensorrt")).to_json()
    data["nodes"]["float"]["unknown_one"] = reason
    plan = QuantPlan.from_json(data)
    assert plan.left_float["unknown_one"].code == "from_plan"
    with pytest.raises(UnsupportedError, match="tensorrt has no rule for Erf"):
        check_fits(
            planned_session(Graph.from_model(net.model()), plan, None, read_config(None), None), plan, strict=True
        )


def test_strict_accepts_what_was_excluded_by_name() -> None:
    net = convolutions()
    net.output(net.node("Erf", "y", output="z"))
    plan = make_plan(prepare(net.model(), "tensorrt", {"skip": ["op:Erf"]}), strict=True)
    assert [(reason.code, reason) for reason in plan.left_float.values()] == [("excluded", "excluded by 'op:Erf'")]


@pytest.mark.parametrize(
    ("backend", "config", "rule"),
    [
        ("stpu", {"weight": {"narrow_range": False}}, "steps"),
        ("stpu", {"activation": {"dtype": "int7"}}, "steps"),
        ("tengine_u8", {"activation": {"dtype": "uint4"}}, "dtype"),
        ("tengine_u8", {"activation": {"dtype": "int32", "symmetric": True}}, "dtype"),
        ("ncnn", {"activation": {"rounding": "floor"}}, "rounding"),
        ("espdl", {"activation": {"dtype": "int7"}}, "steps"),
        ("vitis", {"activation": {"dtype": "int7"}}, "steps"),
        ("rknn", {"activation": {"dtype": "int7"}}, "steps"),
        ("onnx_qnn", {"activation": {"dtype": "int8"}}, "dtype"),
    ],
)
def test_numbers_that_a_fixed_arithmetic_does_not_have_are_refused(backend: str, config: dict, rule: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"\[{rule}\] tensor"):
        make_plan(prepare(convolutions().model(), backend, config))


def test_asymmetric_weights_are_refused_where_only_activations_have_a_zero_point() -> None:
    net = convolutions()
    net.output(net.node("Add", "y", net.floats(np.full((1, 1, 1, 1), 0.3)), output="z"))
    make_plan(prepare(net.model(), "rknn"))  # what is added has the format of activations
    with pytest.raises(UnsupportedError, match=r"\[zero-point-zero\] tensor 'w2'"):
        make_plan(prepare(net.model(), "rknn", {"weight": {"symmetric": False}}))


def test_integers_of_weights_can_be_limited_apart_from_those_of_activations() -> None:
    golden = GOLDEN["residual"]()
    with pytest.raises(UnsupportedError, match=r"-128 .. 127, sophgo_cv18x.* computes with -127 .. 127"):
        make_plan(prepare(golden.model, "sophgo_cv18x", {"weight": {"narrow_range": False}}))
