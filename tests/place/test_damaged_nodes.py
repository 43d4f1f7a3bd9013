"""Models that onnxruntime will refuse are placed without a fault: a body without results, names of other domains."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.session.prepare import make_plan, prepare
from tests.zoo_graphs.net import Net

NOTHING = helper.make_graph([], "nothing", [], [])


def with_node(given: onnx.NodeProto) -> onnx.ModelProto:
    """A convolution with a copy of this node behind it, which reads 'h' and makes 'y'."""
    net = Net("damaged")
    net.output(net.node("Relu", net.conv_relu(net.input("x", [1, 3, 4, 4]), 3, 4)))
    model = net.model()
    result = model.graph.node[-1].output[0]
    node = model.graph.node.add()
    node.CopyFrom(given)
    node.input[:] = [result if name == "h" else name for name in given.input]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


NODES = {
    "a Loop whose body makes nothing": helper.make_node("Loop", ["", "", "h"], ["y"], name="n", body=NOTHING),
    "a Loop of another domain": helper.make_node("Loop", ["h"], ["y"], name="n", domain="own"),
    "a Scan of another domain": helper.make_node("Scan", ["h"], ["y"], name="n", domain="own"),
}


@pytest.mark.parametrize("backend", ["onnxruntime", "academic", "openvino:weights=int8"])
@pytest.mark.parametrize("name", NODES)
def test_what_does_not_concern_the_node_is_placed(name: str, backend: str) -> None:
    plan = make_plan(prepare(with_node(NODES[name]), backend))
    assert any(node.startswith("node_Conv") for node in plan.quantized), plan.quantized
