"""If, Loop and Scan with layers inside, conditions computed from floats, and bodies that read outer tensors."""

from __future__ import annotations

import numpy as np

from tests.zoo_graphs.case import Case, Feeds, register
from tests.zoo_graphs.dense import ROWS, K
from tests.zoo_graphs.net import Net

SIZE = 12


def bright_and_dark(net: Net) -> Feeds:
    """Images whose mean is clearly above or below zero, so that both branches run."""
    return [{"x": (net.image(1, 3, SIZE, SIZE) * 0.5 + sign).astype(np.float32)} for sign in (1.0, -1.0, 1.0, -1.0)]


def is_bright(net: Net, x: str) -> str:
    mean = net.node("ReduceMean", x, keepdims=0)
    return net.node("Greater", mean, net.floats(0.0))


@register
def if_with_conv_in_both_branches() -> Case:
    net = Net("if_with_conv_in_both_branches")
    x = net.input("x", [1, 3, SIZE, SIZE])
    shared = net.conv_relu(x, 3, 8)
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.relu(then.conv(shared, 8, 8)), [1, 8, SIZE, SIZE])
    otherwise.output(otherwise.conv(shared, 8, 8, 1), [1, 8, SIZE, SIZE])
    y = net.node("If", is_bright(net, x), then_branch=then.graph(), else_branch=otherwise.graph())
    net.output(net.classifier(y, 8))
    return Case(
        net.model(), bright_and_dark(net), min_quantized=4, notes="branches read an outer tensor; float compare"
    )


@register
def if_with_conv_only_inside() -> Case:
    net = Net("if_with_conv_only_inside")
    x = net.input("x", [1, 3, SIZE, SIZE])
    weight = net.weight(4, 3, 3, 3, name="outer_weight")
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.node("Conv", x, weight, then.bias(4), pads=[1] * 4), [1, 4, SIZE, SIZE])
    otherwise.output(otherwise.node("Conv", x, weight, otherwise.bias(4), pads=[1] * 4), [1, 4, SIZE, SIZE])
    net.output(net.node("If", is_bright(net, x), then_branch=then.graph(), else_branch=otherwise.graph()))
    return Case(
        net.model(),
        bright_and_dark(net),
        min_quantized=2,
        notes="a weight of the outer graph, read in both bodies",
    )


@register
def if_on_a_graph_input() -> Case:
    net = Net("if_on_a_graph_input")
    x, flag = net.input("x", [1, 3, SIZE, SIZE]), net.input("flag", [], np.bool_)
    stem = net.conv_relu(x, 3, 4)
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.conv(stem, 4, 4), [1, 4, SIZE, SIZE])
    otherwise.output(otherwise.node("Identity", stem), [1, 4, SIZE, SIZE])
    net.output(net.node("If", flag, then_branch=then.graph(), else_branch=otherwise.graph()))
    feeds = [{"x": net.image(1, 3, SIZE, SIZE), "flag": np.asarray(flag)} for flag in (True, False, True)]
    return Case(
        net.model(),
        feeds,
        min_quantized=2,
        notes="a bool scalar among the inputs; one branch hands an outer tensor through",
    )


def recurrent_body(net: Net, weight: str) -> Net:
    """h -> tanh(h @ weight), with the iteration counter and the condition that Loop demands."""
    body = net.branch("body")
    iteration, going = body.input("iteration", [], np.int64), body.input("going", [], np.bool_)
    hidden = body.input("hidden", [ROWS, K])
    del iteration
    after = body.node("Tanh", body.node("MatMul", hidden, weight))
    body.output(body.node("Identity", going), [], np.bool_)
    body.output(after, [ROWS, K])
    body.output(body.node("Identity", after), [ROWS, K])
    return body


@register
def loop_with_matmul_body() -> Case:
    net = Net("loop_with_matmul_body")
    start = net.linear(net.input("x", [ROWS, K]), K, K)
    body = recurrent_body(net, net.weight(K, K, gain=1.0))
    outputs = ("final", "history")
    net.many("Loop", [net.constant(np.int64(3)), "", start], outputs, body=body.graph())
    net.output(net.gemm("final", K, 8))
    net.output("history", [None, ROWS, K])
    return Case(
        net.model(),
        [{"x": net.normal(ROWS, K)} for _ in range(4)],
        minimum_db=25.0,
        min_quantized=3,
        notes="the weight is outer",
    )


@register
def scan_with_gemm_body() -> Case:
    net = Net("scan_with_gemm_body")
    x = net.linear(net.input("x", [5, ROWS, K]), K, K)
    body = net.branch("body")
    hidden, step = body.input("hidden", [ROWS, K]), body.input("step", [ROWS, K])
    after = body.node("Tanh", body.node("Add", body.gemm(hidden, K, K), step))
    body.output(body.node("Identity", after), [ROWS, K])
    body.output(after, [ROWS, K])
    start = net.floats(np.zeros((ROWS, K)))
    net.many("Scan", [start, x], ("last", "all"), body=body.graph(), num_scan_inputs=1)
    net.output(net.gemm("last", K, 8))
    net.output("all", [5, ROWS, K])
    return Case(net.model(), [{"x": net.normal(5, ROWS, K)} for _ in range(4)], minimum_db=25.0, min_quantized=3)


@register
def if_inside_loop() -> Case:
    net = Net("if_inside_loop")
    start = net.linear(net.input("x", [ROWS, K]), K, K)
    body = net.branch("body")
    iteration, going = body.input("iteration", [], np.int64), body.input("going", [], np.bool_)
    hidden = body.input("hidden", [ROWS, K])
    first = body.node("Equal", iteration, body.constant(np.int64(0)))
    then, otherwise = body.branch("then"), body.branch("otherwise")
    then.output(then.relu(then.linear(hidden, K, K)), [ROWS, K])
    otherwise.output(otherwise.node("MatMul", hidden, otherwise.weight(K, K, gain=1.0)), [ROWS, K])
    after = body.node("If", first, then_branch=then.graph(), else_branch=otherwise.graph())
    body.output(body.node("Identity", going), [], np.bool_)
    body.output(after, [ROWS, K])
    result = net.node("Loop", net.constant(np.int64(2)), net.constant(np.bool_(True)), start, body=body.graph())
    net.output(net.gemm(result, K, 8))
    return Case(net.model(), [{"x": net.normal(ROWS, K)} for _ in range(4)], minimum_db=25.0, min_quantized=4)


@register
def same_names_in_both_branches() -> Case:
    net = Net("same_names_in_both_branches")
    x = net.input("x", [1, 3, SIZE, SIZE])
    stem = net.conv_relu(x, 3, 4)
    branches = []
    for name in ("then", "otherwise"):
        branch = net.branch(name)
        weight = branch.weight(4, 4, 3, 3, name="kernel")
        branch.output(branch.node("Conv", stem, weight, output="inner", name="conv", pads=[1] * 4), [1, 4, SIZE, SIZE])
        branches.append(branch.graph())
    y = net.node("If", is_bright(net, x), then_branch=branches[0], else_branch=branches[1])
    net.output(net.conv(y, 4, 4))
    return Case(
        net.model(), bright_and_dark(net), min_quantized=4, notes="tensors and nodes of both branches share names"
    )


@register
def if_before_opset_11() -> Case:
    net = Net("if_before_opset_11", opset=10)
    x = net.input("x", [1, 3, SIZE, SIZE])
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.conv(x, 3, 4), [1, 4, SIZE, SIZE])
    otherwise.output(otherwise.relu(otherwise.conv(x, 3, 4)), [1, 4, SIZE, SIZE])
    net.output(net.node("If", is_bright(net, x), then_branch=then.graph(), else_branch=otherwise.graph()))
    return Case(net.model(), bright_and_dark(net), min_quantized=2, notes="branches had to agree in shape then")
