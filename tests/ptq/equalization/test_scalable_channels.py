"""Scales that are drawn at random for everything that can be scaled leave the outputs of the float model equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.ptq.equalization.scalable_channels import (
    ScalableChannels,
    apply_scales,
    declined_lines,
    find_scalable_channels,
)
from onnxq.session.prepare import prepare
from tests.golden_graphs import GOLDEN
from tests.networks.exported import NETWORKS, exported, samples
from tests.ptq.equalization.prepared import largest_change
from tests.zoo_graphs.net import Net

EQUAL = 1e-5


def scaled_at_random(graph: Graph, seed: int = 0) -> tuple[Graph, ScalableChannels]:
    """The graph with every scale between 0.03 and 30, Clip with bounds apart."""
    changed = graph.copy()
    scalable = find_scalable_channels(changed)
    for bound in scalable.bounds:
        scalable = scalable.without(bound.layout, "it is clipped")
    scales = np.ones(scalable.classes)
    random = np.random.default_rng(seed)
    for group in scalable.groups:
        scales[group] = 10 ** random.uniform(-1.5, 1.5, len(group))
    apply_scales(changed, scalable, scales)
    return changed, scalable


def check(net: Net, *shape: int, groups: list[int]) -> ScalableChannels:
    """Scale a net with input "x" at random; its groups have these sizes, and its outputs stay."""
    feeds = [{"x": net.normal(*shape)} for _ in range(3)]
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    changed, scalable = scaled_at_random(graph)
    assert [len(group) for group in scalable.groups] == groups
    assert largest_change(graph, changed, feeds) < EQUAL
    return scalable


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_graphs_compute_the_same_with_other_scales(name: str) -> None:
    golden = GOLDEN[name]()
    graph = Graph.from_model(golden.model)
    graph.infer_shapes()
    changed, scalable = scaled_at_random(graph)
    assert scalable.groups
    assert largest_change(graph, changed, golden.samples[:4]) < EQUAL


@pytest.mark.parametrize("name", NETWORKS)
def test_exported_networks_compute_the_same_with_other_scales(name: str) -> None:
    graph = prepare(exported(name), "onnxruntime").graph
    data = samples(name, 3)
    feeds = [{key: values[number : number + 1] for key, values in data.items()} for number in range(3)]
    changed, scalable = scaled_at_random(graph)
    assert scalable.groups
    assert largest_change(graph, changed, feeds) < EQUAL


@pytest.mark.parametrize(
    "activation",
    [
        lambda net, x: net.node("LeakyRelu", x, alpha=0.2),
        lambda net, x: net.node("PRelu", x, net.floats(net.rng.uniform(-0.5, 0.9, (6, 1, 1)))),
        lambda net, x: net.node("Clip", x, net.floats(0.0)),
        lambda net, x: net.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
        lambda net, x: net.node("AveragePool", x, kernel_shape=[2, 2]),
        lambda net, x: net.node("Pad", x, net.ints(0, 0, 1, 1, 0, 0, 1, 1)),
        lambda net, x: net.node("Mul", x, net.floats(0.3)),
        lambda net, x: net.node("Dropout", x),
        lambda net, x: net.node("Transpose", net.node("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2]),
        lambda net, x: net.node("Resize", x, "", net.floats([1.0, 1.0, 2.0, 2.0]), mode="linear"),
        lambda net, x: net.node("ReduceMax", x, axes=[2]),
    ],
)
def test_operators_between_two_convolutions_carry_scales(activation: Callable[[Net, str], str]) -> None:
    net = Net("between")
    x = net.input("x", [1, 3, 8, 8])
    net.output(net.conv(activation(net, net.conv(x, 3, 6)), 6, 4))
    check(net, 1, 3, 8, 8, groups=[6])


@pytest.mark.parametrize(("group", "channels"), [(2, 6), (6, 6), (3, 12)])
def test_grouped_convolutions_meet_their_own_channels(group: int, channels: int) -> None:
    net = Net("grouped")
    x = net.input("x", [1, 3, 8, 8])
    hidden = net.relu(net.conv(net.conv_relu(x, 3, 6), 6, channels, group=group))
    net.output(net.conv(hidden, channels, 4, 1))
    check(net, 1, 3, 8, 8, groups=[6, channels])


def test_transposed_convolutions_take_scales_up_on_both_sides() -> None:
    net = Net("transposed")
    x = net.input("x", [1, 3, 6, 6])
    weight = net.weight(6, 4, 3, 3)
    hidden = net.relu(net.node("ConvTranspose", net.conv_relu(x, 3, 6), weight, net.bias(8), group=2, strides=[2, 2]))
    net.output(net.conv(hidden, 8, 2))
    check(net, 1, 3, 6, 6, groups=[6, 8])


def test_flatten_spreads_a_channel_over_its_columns() -> None:
    net = Net("flat")
    x = net.input("x", ["batch", 3, 4, 4])
    net.output(net.gemm(net.node("Flatten", net.conv_relu(x, 3, 5)), 80, 7))
    check(net, 2, 3, 4, 4, groups=[5])


def test_gemm_matmul_and_their_biases_take_scales_up() -> None:
    net = Net("linear")
    x = net.input("x", [4, 6])
    hidden = net.relu(net.node("Gemm", x, net.weight(6, 8), net.bias(8), alpha=0.5, beta=2.0))
    net.output(net.gemm(net.relu(net.linear(hidden, 8, 10)), 10, 3))
    check(net, 4, 6, groups=[8, 10])


def test_all_branches_that_are_added_have_the_scales_of_the_sum() -> None:
    net = Net("added")
    x = net.input("x", [1, 3, 8, 8])
    stem = net.conv_relu(x, 3, 6)
    joined = net.relu(net.node("Add", net.conv(net.conv_relu(stem, 6, 5), 5, 6), stem))
    net.output(net.conv(joined, 6, 2))
    net.output(net.conv(stem, 6, 2))
    check(net, 1, 3, 8, 8, groups=[6, 5])


def test_concat_and_split_map_ranges_of_channels() -> None:
    net = Net("joined")
    x = net.input("x", [1, 3, 8, 8])
    joined = net.node("Concat", net.conv_relu(x, 3, 4), net.conv_relu(x, 3, 6), axis=1)
    first, second = net.many("Split", [joined, net.ints(7, 3)], ["first", "second"], axis=1)
    net.output(net.conv(first, 7, 2))
    net.output(net.conv(second, 3, 2))
    check(net, 1, 3, 8, 8, groups=[10])


def test_one_branch_that_cannot_be_scaled_leaves_the_others_of_a_concat_free() -> None:
    net = Net("half")
    x = net.input("x", [1, 3, 8, 8])
    joined = net.node("Concat", net.conv_relu(x, 3, 4), net.node("Sigmoid", net.conv(x, 3, 6)), x, axis=1)
    net.output(net.conv(joined, 13, 2))
    scalable = check(net, 1, 3, 8, 8, groups=[4])
    assert any("Sigmoid" in line for line in declined_lines(scalable))


def test_a_gate_passes_the_scales_of_what_it_opens() -> None:
    net = Net("gate")
    x = net.input("x", [1, 3, 8, 8])
    features = net.conv_relu(x, 3, 6)
    squeezed = net.conv_relu(net.node("GlobalAveragePool", features), 6, 2, 1)
    gate = net.node("Sigmoid", net.conv(squeezed, 2, 6, 1))
    net.output(net.conv(net.node("Mul", features, gate), 6, 2))
    check(net, 1, 3, 8, 8, groups=[6, 2])


def test_a_layer_norm_takes_scales_up_whole_or_in_small_operators() -> None:
    net = Net("norms")
    x = net.input("x", [2, 5, 8])
    whole = net.node("LayerNormalization", x, net.floats(net.rng.uniform(0.5, 2, 8)), net.bias(8))
    mean = net.node("ReduceMean", x, axes=[-1])
    centered = net.node("Sub", x, mean)
    spread = net.node("Sqrt", net.node("ReduceMean", net.node("Mul", centered, centered), axes=[-1]))
    scaled = net.node("Mul", net.node("Div", centered, spread), net.floats(net.rng.uniform(0.5, 2, 8)))
    parts = net.node("Add", scaled, net.bias(8))
    net.output(net.linear(whole, 8, 4))
    net.output(net.linear(parts, 8, 4))
    check(net, 2, 5, 8, groups=[8, 8])


def test_the_values_of_attention_pass_their_scales_to_the_layer_behind() -> None:
    golden = GOLDEN["transformer"]()
    graph = Graph.from_model(golden.model)
    graph.infer_shapes()
    scalable = find_scalable_channels(graph)
    scalable = [item.node for item in scalable.made if all(n not in scalable.reasons for n in item.variables.tolist())]
    assert sum(graph.node(name).op == "MatMul" for name in scalable) == 1  # value, and neither query nor key


def test_what_a_residual_of_a_post_norm_block_reads_cannot_be_scaled() -> None:
    net = Net("post norm")
    x = net.input("x", [2, 5, 8])

    def norm(x: str) -> str:
        return net.node("LayerNormalization", x, net.floats(np.ones(8)), net.bias(8))

    inside = norm(x)
    net.output(norm(net.node("Add", inside, net.linear(net.relu(net.linear(inside, 8, 12)), 12, 8))))
    scalable = check(net, 2, 5, 8, groups=[12])
    assert any("LayerNormalization" in line and "normalises" in line for line in declined_lines(scalable))


def test_shared_weights_and_tensors_read_inside_bodies_are_held() -> None:
    net = Net("shared")
    x = net.input("x", [1, 4, 8, 8])
    weight = net.weight(4, 4, 3, 3)
    first = net.relu(net.node("Conv", x, weight, pads=[1] * 4))
    net.output(net.node("Conv", first, weight, pads=[1] * 4))
    scalable = check(net, 1, 4, 8, 8, groups=[])
    assert not scalable.edits


def test_a_constant_added_to_all_channels_alike_holds_them() -> None:
    net = Net("number")
    x = net.input("x", [1, 3, 8, 8])
    net.output(net.conv(net.relu(net.node("Add", net.conv(x, 3, 6), net.floats(0.5))), 6, 2))
    scalable = check(net, 1, 3, 8, 8, groups=[])
    assert any("no value of its own for each channel" in line for line in declined_lines(scalable))


def test_a_product_with_a_vector_on_the_left_holds_what_it_reads() -> None:
    net = Net("vector")
    x = net.input("x", [2, 6, 8])
    summed = net.node("MatMul", net.weight(6, fan_in=6), net.linear(x, 8, 8))
    net.output(net.node("MatMul", net.weight(3, 8), net.node("Transpose", summed, perm=[1, 0])))
    scalable = check(net, 2, 6, 8, groups=[])
    assert any("multiplies a vector" in line for line in declined_lines(scalable))


def test_a_sum_with_more_axes_than_one_of_its_terms_can_be_turned() -> None:
    net = Net("broadcast")
    x = net.input("x", [2, 3, 5, 8])
    less = net.relu(net.linear(net.node("ReduceMean", x, axes=[0], keepdims=0), 8, 8))
    net.output(net.linear(net.node("Transpose", net.node("Add", x, less), perm=[0, 2, 1, 3]), 8, 4))
    check(net, 2, 3, 5, 8, groups=[])


def test_tensors_without_values_are_held() -> None:
    net = Net("none")
    x = net.input("x", [1, 3, 8, 8])
    hidden = net.conv_relu(x, 3, 6)
    none = net.node("Slice", hidden, net.ints(0), net.ints(0), net.ints(1))
    rows = net.node("Reshape", none, net.ints(0, 64), allowzero=1)
    net.output(net.node("Concat", net.node("Reshape", net.conv(hidden, 6, 2), net.ints(2, 64)), rows, axis=0))
    net.output(net.conv(net.conv_relu(x, 3, 5), 5, 2))
    scalable = check(net, 1, 3, 8, 8, groups=[5])
    assert any("without values" in line for line in declined_lines(scalable))


@pytest.mark.parametrize(("nothing", "groups"), [(0, []), (1, [6])])
def test_axes_that_are_empty_stand_for_all_or_for_none(nothing: int, groups: list[int]) -> None:
    net = Net("reduced", opset=18)
    x = net.input("x", [1, 3, 8, 8])
    axes = net.constant(np.zeros(0, np.int64))
    mean = net.node("ReduceMean", net.conv_relu(x, 3, 6), axes, noop_with_empty_axes=nothing)
    net.output(net.conv(net.node("Add", net.conv(x, 3, 6), mean), 6, 2))
    check(net, 1, 3, 8, 8, groups=groups)


def test_names_of_an_earlier_version_go_on_working() -> None:
    from onnxq.ptq.equalization import scalable_channels

    with pytest.warns(DeprecationWarning, match="find_freedom is now called find_scalable_channels"):
        assert scalable_channels.find_freedom is find_scalable_channels
