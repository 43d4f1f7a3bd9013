"""Where a graph is cut: layers, residual blocks, attention and MLP, a number of layers; nothing is lost in between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq import demo
from onnxq.graph import Graph
from onnxq.ptq.reconstruction.blocks import MOST_LAYERS, Segment, partition
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net


def planned(model, backend: str = "academic") -> tuple[Graph, QuantPlan]:
    prepared = prepare(model, backend)
    plan = make_plan(prepared).active
    prepared.graph.sort()
    return prepared.graph, plan


def layers_of(segments: list[Segment]) -> list[tuple[str, ...]]:
    return [segment.layers for segment in segments if segment.layers]


def check_complete(graph: Graph, segments: list[Segment]) -> None:
    """Every node once, in order; what a segment reads was made or given before; all outputs are made."""
    assert [name for segment in segments for name in segment.nodes] == [node.name for node in graph.gs.nodes]
    known = set(graph.input_names)
    for segment in segments:
        assert known.issuperset(segment.reads)
        made = {t.name for name in segment.nodes for t in graph.node(name).outputs}
        assert made.issuperset(segment.makes)
        known.update(segment.makes)
    assert known.issuperset(graph.output_names)


@pytest.mark.parametrize("block", ["auto", "layer", "2", "100"])
@pytest.mark.parametrize("name", GOLDEN)
def test_every_node_is_in_exactly_one_segment(name: str, block: str) -> None:
    graph, plan = planned(GOLDEN[name]().model)
    segments = partition(graph, plan, block)
    check_complete(graph, segments)
    weights = [placement.tensor for placement in plan if placement.role == "weight"]
    inside_bodies = {w for w in weights if graph.scope_of(graph.consumers(w)[0].node) is not graph.gs}
    assert {w for segment in segments for w in segment.weights} == set(weights) - inside_bodies


def test_a_layer_goes_with_its_batch_norm_its_activation_and_the_residual_add_behind_it() -> None:
    graph, plan = planned(demo.model_path())
    second = next(s for s in partition(graph, plan, "layer") if s.layers == ("residual2.conv",))
    assert second.nodes == ("residual2.conv", "residual2.bn", "residual.add", "residual.relu")
    assert second.reads == ("residual1.relu.out", "stem.relu.out")
    assert second.makes == ("residual.relu.out",)


def test_blocks_of_the_demo_network_are_its_residual_block_and_its_separable_convolution() -> None:
    graph, plan = planned(demo.model_path())
    assert layers_of(partition(graph, plan)) == [
        ("stem.conv",),
        ("residual1.conv", "residual2.conv"),
        ("depthwise.conv", "pointwise.conv"),
        ("head.conv",),
        ("classifier",),
    ]


def test_attention_and_mlp_of_a_transformer_are_blocks() -> None:
    graph, plan = planned(GOLDEN["transformer"]().model)
    attention, mlp, classifier = (s for s in partition(graph, plan) if s.layers)
    assert [len(s.layers) for s in (attention, mlp, classifier)] == [4, 2, 1]
    assert attention.reads == ("tokens",)
    assert mlp.reads == attention.makes


def test_a_mask_that_every_block_reads_does_not_hide_the_borders() -> None:
    net = Net("masked")
    x = net.input("x", [1, 6, 8])
    mask = net.input("mask", [1, 6, 1], np.int64)
    factor = net.node("Cast", mask, to=1)
    for _ in range(3):
        inner = net.node("Relu", net.linear(net.node("Mul", x, factor), 8, 8))
        x = net.node("Add", x, net.linear(inner, 8, 8))
    net.output(x)
    graph, plan = planned(net.model())
    segments = [s for s in partition(graph, plan) if s.layers]
    assert [len(s.layers) for s in segments] == [2, 2, 2]
    assert all(len(s.makes) == 1 for s in segments)


def test_what_a_block_is_given_from_outside_does_not_hide_the_borders_in_front_of_it() -> None:
    """As a decoder is given keys and values of the past for each of its layers."""
    net = Net("past")
    x = net.input("x", [1, 6, 8])
    for number in range(3):
        past = net.input(f"past{number}", [1, 6, 8])
        inner = net.node("Relu", net.node("Add", net.linear(x, 8, 8), past))
        x = net.node("Add", x, net.linear(inner, 8, 8))
    net.output(x)
    graph, plan = planned(net.model())
    segments = [s for s in partition(graph, plan) if s.layers]
    assert [len(s.layers) for s in segments] == [2, 2, 2]
    assert [name for s in segments for name in s.reads if name.startswith("past")] == ["past0", "past1", "past2"]


def test_bodies_of_control_flow_run_but_are_not_fitted() -> None:
    graph, plan = planned(GOLDEN["if_body"]().model)
    for block in ("auto", "layer", "100"):
        (alone,) = (s for s in partition(graph, plan, block) if any(graph.node(n).op == "If" for n in s.nodes))
        assert len(alone.nodes) == 1
        assert alone.weights == ()
        assert len(alone.reads) == 2  # the condition, and what the branches read from outside


def test_a_long_part_without_borders_is_cut_where_few_tensors_are_alive() -> None:
    net = Net("dense")
    x = net.conv_relu(net.input("x", [1, 3, 8, 8]), 3, 4)
    early = x
    for _ in range(2 * MOST_LAYERS):
        x = net.conv_relu(x, 4, 4)
    net.output(net.node("Add", x, early))  # keeps the first result alive to the end
    graph, plan = planned(net.model())
    segments = partition(graph, plan)
    check_complete(graph, segments)
    assert max(len(s.layers) for s in segments) <= MOST_LAYERS
    assert len(layers_of(segments)) > 2


def test_a_weight_that_two_segments_read_belongs_to_none() -> None:
    net = Net("shared")
    weight = net.weight(4, 4, 3, 3)
    x = net.node("Conv", net.input("x", [1, 4, 8, 8]), weight, pads=[1] * 4)
    net.output(net.node("Conv", net.node("Relu", x), weight, pads=[1] * 4))
    graph, plan = planned(net.model(), "academic")
    for segment in partition(graph, plan, "layer"):
        for name in segment.weights:
            assert len(graph.consumers(name)) == 1
    assert sum(len(s.weights) for s in partition(graph, plan, "2")) >= 1


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_graph_of_branches_and_joins_is_cut_completely(data: st.DataObject) -> None:
    net = Net("random")
    alive = [net.input("x", [1, 4, 6, 6])]
    for _ in range(data.draw(st.integers(1, 8))):
        one, other = (data.draw(st.sampled_from(alive)) for _ in range(2))
        kind = data.draw(st.sampled_from(["conv", "add", "relu", "pool"]))
        made = {
            "conv": lambda one=one: net.conv(one, 4, 4),
            "add": lambda one=one, other=other: net.node("Add", one, other),
            "relu": lambda one=one: net.node("Relu", one),
            "pool": lambda one=one: net.node("MaxPool", one, kernel_shape=[3, 3], pads=[1] * 4),
        }[kind]()
        alive.append(made)
    net.output(net.conv(alive[-1], 4, 4))
    graph, plan = planned(net.model())
    for block in ("auto", "layer", "3"):
        check_complete(graph, partition(graph, plan, block))
