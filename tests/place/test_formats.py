"""Formats by sign, position and rule: unsigned behind a Relu, 8 bits at both ends, a rule's own bits."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.config import read_config, resolve
from onnxq.graph import Graph
from onnxq.graph.signs import Signs
from onnxq.passes import run_passes
from onnxq.place import place
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import Backend, Limits, NodeFacts, OpRule, PerTensor, QuantPlan, QuantSpec, SameScaleRule, Scheme
from tests.zoo_graphs.net import Net

INT8, UINT8, INT4 = QuantSpec("int8"), QuantSpec("uint8"), QuantSpec("int4")


def chip(scheme: Scheme | None = None, **changes: object) -> Backend:
    values: dict[str, object] = {
        "name": "chip",
        "summary": "a chip",
        "scheme": scheme or Scheme(INT8, INT8),
        "rules": (
            OpRule(("Conv",), weight=1, bias=2, output=True),
            OpRule(("Gemm",), weight=1, bias=2),
            OpRule(("Add",), inputs=(0, 1)),
        ),
        "same_scale": (SameScaleRule(("MaxPool",)), SameScaleRule(("Concat",), inputs=None)),
        "limits": Limits(dtypes=("int8", "uint8", "int4", "int32")),
    }
    return Backend(**{**values, **changes})  # type: ignore[arg-type]


def planned(net: Net, backend: Backend) -> QuantPlan:
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    return place(graph, backend)


def three_layers() -> Net:
    net = Net("three_layers")
    x = net.input("x", [1, 3, 8, 8])
    a = net.node("Conv", x, net.weight(4, 3, 3, 3, name="w1"), net.bias(4, name="b1"), output="a", name="first")
    b = net.node("Conv", net.node("Relu", a, output="r"), net.weight(4, 4, 3, 3, name="w2"), output="b", name="middle")
    net.output(net.node("Conv", b, net.weight(4, 4, 3, 3, name="w3"), output="c", name="last"))
    return net


def test_what_cannot_be_negative_gets_the_unsigned_format() -> None:
    plan = planned(three_layers(), chip(Scheme(INT8, INT8, unsigned=UINT8)))
    assert {name: plan[name].spec.dtype for name in ("x", "r", "b", "c")} == {
        "x": "int8",
        "r": "uint8",
        "b": "int8",
        "c": "int8",
    }


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda n: n.node("Relu", "x"), True),
        (lambda n: n.node("Sigmoid", "x"), True),
        (lambda n: n.node("Clip", "x", n.floats(0.0), n.floats(6.0)), True),
        (lambda n: n.node("Clip", "x", n.floats(-1.0), n.floats(6.0)), False),
        (lambda n: n.node("Clip", "x", "", n.floats(6.0)), False),
        (lambda n: n.node("Clip", "x", n.constant(np.array(["text"], dtype=object))), False),
        (lambda n: n.node("MaxPool", n.node("Relu", "x"), kernel_shape=[2, 2]), True),
        (lambda n: n.node("Add", n.node("Relu", "x"), n.node("Sigmoid", "x")), True),
        (lambda n: n.node("Add", n.node("Relu", "x"), "x"), False),
        (lambda n: n.node("Sub", n.node("Relu", "x"), n.node("Relu", "x")), False),
        (lambda n: n.node("Concat", n.node("Relu", "x"), n.node("Relu", "x"), axis=1), True),
        (lambda n: n.node("LeakyRelu", "x"), False),
        (lambda n: n.node("Mul", "x", "x"), False),
    ],
)
def test_the_sign_of_a_result_follows_from_the_operators(build, expected: bool) -> None:
    net = Net("signs")
    net.input("x", [1, 3, 8, 8])
    made = net.output(build(net))
    graph = Graph.from_model(net.model())
    assert Signs(graph).never_negative(graph.tensor(made)) is expected


def test_the_sign_of_a_long_chain_is_found_without_recursion() -> None:
    net = Net("chain")
    x = net.node("Relu", net.input("x", [1, 8]))
    for _ in range(3000):
        x = net.node("Add", x, x)
    net.output(x)
    graph = Graph.from_model(net.model())
    assert Signs(graph).never_negative(graph.tensor(x))


def test_first_and_last_layer_have_formats_of_their_own() -> None:
    backend = chip(Scheme(INT4, INT4, ends=(INT8, INT8)), rules=(OpRule(("Conv",), weight=1),))
    plan = planned(three_layers(), backend)
    assert {name: plan[name].spec.dtype for name in ("x", "w1", "r", "w2", "b", "w3")} == {
        "x": "int8",
        "w1": "int8",
        "r": "int4",
        "w2": "int4",
        "b": "int8",
        "w3": "int8",
    }


def test_a_rule_can_have_its_own_bits_and_more_bits_win_where_two_rules_meet() -> None:
    net = three_layers()
    net.output(net.node("Add", "b", "b", output="d"))
    rules = (
        OpRule(("Conv",), weight=1, activation_spec=INT4, weight_spec=INT4),
        OpRule(("Add",), inputs=(0, 1)),
    )
    plan = planned(net, chip(rules=rules))
    assert plan["w1"].spec == INT4
    assert plan["r"].spec == INT4
    assert plan["b"].spec == INT8, "read by a Conv with 4 bits and an Add with 8"


def test_a_bias_that_is_not_int32_has_a_range_of_its_own() -> None:
    spec = QuantSpec("int8", power_of_two=True)
    plan = planned(three_layers(), chip(Scheme(INT8, INT8, bias=spec)))
    assert plan["b1"].derive is None
    assert plan["b1"].spec == spec
    assert plan["b1"].role == "bias"


def test_weights_alone_need_no_bias_scale() -> None:
    plan = planned(three_layers(), chip(Scheme(None, INT8, bias=QuantSpec("int32"))))
    assert {p.role for p in plan} == {"weight"}


def test_a_pair_that_is_left_alone_gets_no_quantizer_between() -> None:
    net = Net("pair")
    x = net.input("x", [1, 4, 8, 8])
    net.output(net.node("Add", net.node("Mul", x, x, output="m"), net.conv(x, 4, 4), output="y"))
    assert "m" in planned(net, chip())
    assert "m" not in planned(net, chip(unquantized_pairs=(("Add", "Mul"),)))


def test_every_float_input_of_the_graph_is_quantized_where_the_target_wants_it() -> None:
    net = Net("inputs")
    x = net.input("x", [1, 4])
    net.output(net.node("Erf", x, output="y"))
    net.output(net.gemm(net.input("z", [1, 4]), 4, 4))
    assert "x" not in planned(net, chip())
    plan = planned(net, chip(quantize_inputs=True))
    assert plan["x"].edges is None
    assert plan["x"].why == "input of the graph"


def test_a_known_range_needs_no_observing_and_is_not_that_of_a_whole_group() -> None:
    net = Net("known")
    x = net.input("x", [1, 4, 8, 8])
    s = net.node("Sigmoid", net.conv(x, 4, 4), output="s")
    net.output(net.conv(s, 4, 4))
    backend = chip(fixed_ranges={"Sigmoid": (0.0, 1.0)})
    assert planned(net, backend)["s"].observer == "fixed:0.0,1.0"
    tied = Net("tied")
    x = tied.input("x", [1, 4, 8, 8])
    c = tied.conv(x, 4, 4)
    s = tied.node("Sigmoid", c, output="s")
    tied.output(tied.conv(tied.node("Concat", s, c, axis=1, output="j"), 8, 4))
    rules = (OpRule(("Conv",), weight=1, output=True), OpRule(("Sigmoid",), output=True))
    plan = planned(tied, chip(rules=rules, fixed_ranges={"Sigmoid": (0.0, 1.0)}))
    assert plan[plan.leader("s")].observer == "minmax"


def test_tied_tensors_share_one_format_signed_where_one_of_them_is() -> None:
    net = Net("mixed_signs")
    x = net.input("x", [1, 4, 8, 8])
    a = net.conv(x, 4, 4)
    b = net.conv_relu(x, 4, 4)
    net.output(net.conv(net.node("Concat", a, b, axis=1, output="j"), 8, 4))
    plan = planned(net, chip(Scheme(INT8, INT8, unsigned=UINT8)))
    assert {plan[name].spec.dtype for name in (a, b, "j")} == {"int8"}
    assert isinstance(plan["j"].spec.granularity, PerTensor)


def test_the_bias_of_a_matmul_is_asked_for_once_although_add_has_a_rule() -> None:
    net = Net("matmul_add")
    x = net.input("x", [2, 4])
    product = net.node("MatMul", x, net.weight(4, 4, name="w"), name="product")
    net.output(net.node("Add", product, net.bias(4, name="b"), output="y", name="sum"))
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    run_passes(graph, ["fuse_matmul_add"])
    rules = (
        OpRule(("MatMul",), inputs=(0,), weight=1, output=True),
        OpRule(("Add",), inputs=(0, 1), output=True),
    )
    plan = place(graph, chip(Scheme(INT8, INT8, bias=QuantSpec("int32")), rules=rules))
    assert set(plan.placements) == {"x", "w", "b", "y"}
    assert plan["b"].role == "bias"
    assert plan.fused == {"sum": "product"}


def test_settings_of_the_user_reach_every_format_of_a_target() -> None:
    backend = chip(
        Scheme(INT8, INT8, unsigned=UINT8, ends=(INT8, INT8)),
        rules=(OpRule(("Conv",), weight=1, activation_spec=INT4, weight_spec=INT4),),
    )
    changed = resolve(read_config({"activation": {"power_of_two": True}, "weight": {"narrow_range": True}}), backend)
    assert changed.scheme.unsigned == UINT8.replace(power_of_two=True)
    assert changed.rules[0].activation_spec == INT4.replace(power_of_two=True)
    assert changed.rules[0].weight_spec == INT4.replace(narrow_range=True)
    assert changed.scheme.ends == (INT8.replace(power_of_two=True), INT8.replace(narrow_range=True))
    same = resolve(read_config({"activation": {"dtype": "int8"}}), backend)
    assert same.scheme.unsigned == UINT8, "the type that the target has anyway changes nothing"
    typed = resolve(read_config({"activation": {"dtype": "int16"}}), backend)
    assert typed.scheme.ends == (INT8, INT8), "how many bits the ends have is the target's choice"
    assert typed.scheme.unsigned is None
    assert typed.rules[0].activation_spec == QuantSpec("int16")


def test_an_input_that_only_masks_a_softmax_is_not_quantized() -> None:
    net = Net("masked")
    scores = net.node("MatMul", net.input("x", [1, 4, 8]), net.weight(8, 4))
    masked = net.node("Add", scores, net.input("mask", [1, 4, 4]))
    net.output(net.node("Softmax", masked, axis=-1))
    plan = planned(net, chip(quantize_inputs=True))
    assert "x" in plan
    assert "mask" not in plan


def grouped(node: NodeFacts) -> str | None:
    return "grouped" if node.attrs.get("group", 1) != 1 else None


def test_where_one_rule_declines_a_node_the_next_one_may_take_it() -> None:
    net = Net("falls_back")
    x = net.input("x", [1, 4, 8, 8])
    a = net.node("Conv", x, net.weight(4, 1, 3, 3, name="deep"), group=4, output="a")
    net.output(net.node("Conv", a, net.weight(4, 4, 3, 3, name="full"), output="y"))
    rules = (
        OpRule(("Conv",), weight=1, activation_spec=INT4, weight_spec=INT4, output=True, decline=grouped),
        OpRule(("Conv",), weight=1, output=True),
    )
    plan = planned(net, chip(rules=rules))
    assert plan["deep"].spec == INT8
    assert plan["full"].spec == INT4
    assert plan["y"].spec == INT8, "what leaves the graph has the target's ordinary format"


def test_another_type_brings_its_own_bounds_with_it() -> None:
    seven_bits = chip(Scheme(QuantSpec("uint8", symmetric=False), QuantSpec("int8", quant_min=-64, quant_max=63)))
    changed = resolve(read_config({"activation": {"dtype": "fp8_e4m3"}, "weight": {"dtype": "int4"}}), seven_bits)
    assert changed.scheme.activation == QuantSpec("fp8_e4m3")
    assert changed.scheme.weight == INT4
    narrow = chip(Scheme(QuantSpec("int8", narrow_range=True), INT8))
    assert resolve(read_config({"activation": {"dtype": "uint8"}}), narrow).scheme.activation == UINT8


@pytest.mark.parametrize("backend", ["qnn", "snpe", "tengine_u8", "espdl"])
@pytest.mark.parametrize("value", [-10000.0, -3.4e38])
def test_what_reads_a_masked_tensor_stays_float(backend: str, value: float) -> None:
    net = Net("attention")
    x = net.input("x", [1, 4, 8])
    scores = net.node("MatMul", x, net.weight(8, 4))
    masked = net.node("Add", scores, net.floats(np.full((1, 1, 4), value)), output="masked")
    net.output(net.node("MatMul", net.node("Softmax", masked, axis=-1, output="p", name="softmax"), x))
    prepared = prepare(net.model(), backend)
    plan = make_plan(prepared)
    assert "masked" not in plan
    assert "mask values" in plan.left_float["softmax"]


def test_a_product_that_makes_a_mask_stays_float() -> None:
    net = Net("made_mask")
    x = net.input("x", [1, 4, 8])
    net.output(net.node("Mul", x, net.floats(-3.4e38), output="mask", name="makes_mask"))
    net.output(net.node("MatMul", x, net.weight(8, 4)))
    plan = make_plan(prepare(net.model(), "espdl"))
    assert "mask" not in plan
    assert "mask values" in plan.left_float["makes_mask"]


def test_the_bias_of_a_classifier_in_front_of_a_softmax_is_no_mask() -> None:
    net = Net("classifier")
    product = net.node("MatMul", net.input("x", [2, 8]), net.weight(8, 4), name="product")
    logits = net.node("Add", product, net.bias(4, name="b"), output="logits", name="sum")
    net.output(net.node("Softmax", logits, axis=-1))
    plan = make_plan(prepare(net.model(), "vitis"))
    assert plan["b"].role == "bias"
    assert plan.fused["sum"] == "product"
    assert "logits" in plan
