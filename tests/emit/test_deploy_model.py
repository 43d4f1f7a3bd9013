"""The float model beside a table: constants within their ranges, for those who read them quantized."""

import numpy as np
import pytest

from onnxq.emit.deploy import deploy_model
from onnxq.graph import Graph
from onnxq.numerics import dequantize, quantize
from onnxq.types import BiasOf, Edge, PerChannel, Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from tests.zoo_graphs.net import Net


@pytest.fixture
def graph():
    """Two Gemms with one weight, [out, in] = [3, 4], whose largest value is 1."""
    net = Net("shared")
    weight = net.floats(np.linspace(-1, 1, 12).reshape(3, 4), "w")
    x = net.input("x", [1, 4])
    net.output(net.node("Gemm", x, weight, net.floats([5.0, -5.0, 0.1], "b"), transB=1, name="first"))
    net.output(net.node("Gemm", x, weight, transB=1, name="second"))
    return Graph.from_model(net.model())


def plan_of(spec, scale, zero_point=0, *, edges=None, bias=None):
    """The weight with a range of its own, and a bias."""
    placements = {"w": Placement("w", spec, "weight", "test", edges=edges)}
    table = QParamsTable()
    table.put("w", QParams(spec, np.float32(scale), np.int32(zero_point)), "test")
    if bias is not None:
        placements["b"] = bias
        table.put("b", QParams(bias.spec, np.float32(0.01), np.int32(0)), "test")
    return QuantPlan("test", placements), table


def test_weights_are_clipped_and_not_rounded(graph):
    plan, table = plan_of(QuantSpec("uint8", symmetric=False), 0.005, 128)
    wanted = np.clip(np.linspace(-1, 1, 12), -128 * np.float32(0.005), 127 * np.float32(0.005)).reshape(3, 4)
    found = deploy_model(graph, plan, table)
    np.testing.assert_allclose(found.values("w"), wanted, rtol=1e-6)
    assert np.abs(graph.values("w")).max() == 1, "the graph that was given stays as it is"


def test_channels_have_ranges_of_their_own(graph):
    plan, table = plan_of(QuantSpec("int8", granularity=PerChannel(0)), [0.005, 1.0, 0.001], np.zeros(3))
    held = deploy_model(graph, plan, table).values("w")
    assert held[0].min() == pytest.approx(-0.64)
    np.testing.assert_array_equal(held[1], graph.values("w")[1])
    assert held[2].max() == pytest.approx(0.127)


def test_a_layer_that_stays_float_keeps_the_weight_as_it_was(graph):
    plan, table = plan_of(QuantSpec("int8"), 0.005, edges=(Edge("first", 1),))
    found = deploy_model(graph, plan, table)
    first, second = found.node("first").inputs[1], found.node("second").inputs[1]
    assert first.name == "w", "tables name it so"
    assert found.values(first).max() == pytest.approx(0.635)
    np.testing.assert_array_equal(found.values(second), graph.values("w"))


def test_integers_that_an_algorithm_has_fixed_are_what_the_tool_finds(graph):
    plan, table = plan_of(QuantSpec("int8"), 0.01)
    codes = (quantize(graph.values("w"), table["w"]) + 1).astype(np.int8)  # one step above the nearest
    table.integer_weights["w"] = codes
    held = deploy_model(graph, plan, table).values("w")
    np.testing.assert_array_equal(held, dequantize(codes, table["w"]))
    np.testing.assert_array_equal(quantize(held, table["w"]), codes)


def test_biases_with_a_range_of_their_own_are_clipped_and_derived_ones_are_not(graph):
    own = Placement("b", QuantSpec("int8"), "bias", "test")
    held = deploy_model(graph, *plan_of(QuantSpec("int8"), 1.0, bias=own)).values("b")
    np.testing.assert_allclose(held, [1.27, -1.28, 0.1], rtol=1e-6)
    derived = Placement("b", QuantSpec("int32"), "bias", "test", derive=BiasOf("x", "w"))
    held = deploy_model(graph, *plan_of(QuantSpec("int8"), 1.0, bias=derived)).values("b")
    np.testing.assert_array_equal(held, np.float32([5.0, -5.0, 0.1]))
