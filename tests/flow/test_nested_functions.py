"""Functions three deep, as torch's dynamo exports have them: layers inside are quantized, trained and simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.graph import Graph

DOMAIN, OPSET, WIDTH = "pkg.torch.nn", 18, 16
WEIGHTS = ("norm", "w1", "b1", "w2", "b2")


def function(name: str, inputs: list[str], nodes: list[onnx.NodeProto], attributes: list[str]) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, inputs, ["out"], nodes, imports, attributes)


def handed_on(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    """The node with an attribute that is one of the function it stands in."""
    node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=name, type=onnx.AttributeProto.FLOAT))
    return node


def call(name: str, inputs: list[str], output: str, **attributes: float) -> onnx.NodeProto:
    return helper.make_node(name, inputs, [output], domain=DOMAIN, name=f"{name}_{output}", **attributes)


def functions() -> list[onnx.FunctionProto]:
    linear = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="matmul"),
        helper.make_node("Add", ["product", "b"], ["out"], name="add"),
    ]
    activation = [handed_on(helper.make_node("LeakyRelu", ["x"], ["out"], name="leaky"), "alpha")]
    mlp = [
        call("Linear", ["x", "w1", "b1"], "hidden"),
        handed_on(call("Activation", ["hidden"], "active"), "alpha"),
        call("Linear", ["active", "w2", "b2"], "out"),
    ]
    block = [
        helper.make_node("LayerNormalization", ["x", "norm"], ["normed"], name="norm", axis=-1),
        handed_on(call("Mlp", ["normed", "w1", "b1", "w2", "b2"], "changed"), "alpha"),
        helper.make_node("Add", ["x", "changed"], ["out"], name="residual"),
    ]
    return [
        function("Linear", ["x", "w", "b"], linear, []),
        function("Activation", ["x"], activation, ["alpha"]),
        function("Mlp", ["x", "w1", "b1", "w2", "b2"], mlp, ["alpha"]),
        function("Block", ["x", *WEIGHTS], block, ["alpha"]),
    ]


def decoder() -> onnx.ModelProto:
    """Two blocks with weights and slopes of their own; each calls Mlp, which calls Linear twice."""
    rng = np.random.default_rng(7)
    shapes = {"norm": (WIDTH,), "w1": (WIDTH, 32), "b1": (32,), "w2": (32, WIDTH), "b2": (WIDTH,)}
    held = [
        numpy_helper.from_array((rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32), f"{name}_{number}")
        for number in (0, 1)
        for name, shape in shapes.items()
    ]
    nodes = [
        call("Block", ["x", *(f"{name}_0" for name in WEIGHTS)], "middle", alpha=0.25),
        call("Block", ["middle", *(f"{name}_1" for name in WEIGHTS)], "y", alpha=0.5),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "decoder", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions(), ir_version=9)


def feeds(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(11)
    return [{"x": rng.normal(size=(1, 6, WIDTH)).astype(np.float32)} for _ in range(count)]


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(["y"], feed)[0]


def test_every_call_becomes_nodes_of_its_own_with_the_attributes_handed_down() -> None:
    model = decoder()
    onnx.checker.check_model(model, full_check=True)
    graph = Graph.from_model(model)
    assert [node.op for node in graph.nodes() if node.op == "MatMul"] == ["MatMul"] * 4
    assert [node.attrs["alpha"] for node in graph.nodes("LeakyRelu")] == [0.25, 0.5]
    names = [node.name for node in graph.nodes()]
    assert len(set(names)) == len(names) == 14
    for feed in feeds(2):
        assert np.array_equal(run(graph.to_model(), feed), run(model, feed))


@pytest.mark.parametrize("backend", ["tensorrt:tables=no", "tensorrt:rest=fp16", "onnxruntime", "openvino"])
def test_layers_inside_are_quantized(backend: str, tmp_path: Path) -> None:
    result = onnxq.quantize(decoder(), backend=backend, data=feeds(8), out=tmp_path, config={"effort": 0})
    layers = Graph.from_model(decoder()).nodes("MatMul")
    assert {node.name for node in layers} <= set(result.plan.quantized)
    assert {f"{name}_{number}" for name in ("w1", "w2") for number in (0, 1)} <= set(result.plan.placements)
    assert result.report["sqnr_db"]["y"] > 25
    assert not onnx.load(result.model).functions


def test_torch_computes_and_trains_them() -> None:
    torch = pytest.importorskip("torch")
    from onnxq.torchnet import TorchNet

    graph = Graph.from_model(decoder())
    graph.infer_shapes()
    net = TorchNet(graph)
    for feed in feeds(2):
        made = net.run({"x": torch.from_numpy(feed["x"])})["y"]
        assert np.allclose(made.detach().numpy(), run(decoder(), feed), atol=1e-5)
    made.square().sum().backward()
    assert all(value.grad is not None and bool(value.grad.abs().sum() > 0) for value in net.parameters())
