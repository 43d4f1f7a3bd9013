"""tensorrt:format=fp8: attention as TensorRT's fused kernels want it, and convolutions that have kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import onnxq
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    golden = GOLDEN["transformer"]()
    folder: Path = tmp_path_factory.mktemp("attention")
    backend = "tensorrt:version=11,rest=fp16,format=fp8"
    result = onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=folder, config={"effort": 0})
    model = onnx.load(result.model)
    onnx.checker.check_model(model, full_check=True)
    return model


def test_both_products_of_attention_read_float8(attention: onnx.ModelProto) -> None:
    makers = {name: node for node in attention.graph.node for name in node.output}
    constants = {item.name for item in attention.graph.initializer}
    products = [
        node
        for node in attention.graph.node
        if node.op_type == "MatMul" and not {makers[makers[name].input[0]].input[0] for name in node.input} & constants
    ]
    assert len(products) == 2  # queries with keys, probabilities with values
    for node in products:
        for name in node.input:
            assert makers[name].op_type == "DequantizeLinear"
            assert makers[makers[name].input[0]].op_type == "QuantizeLinear"
    scores = products[0].output[0]
    reader = next(node for node in attention.graph.node if scores in node.input)
    assert reader.op_type in ("Softmax", "Add")  # the factor is in front of the product
    query = makers[makers[makers[products[0].input[0]].input[0]].input[0]]
    assert query.op_type in ("Div", "Mul")


def test_probabilities_have_the_scale_of_the_format(attention: onnx.ModelProto) -> None:
    (softmax,) = (node for node in attention.graph.node if node.op_type == "Softmax")
    (quantizer,) = (node for node in attention.graph.node if softmax.output[0] in node.input)
    constants = {item.name: item for item in attention.graph.initializer}
    scale = numpy_helper.to_array(constants[quantizer.input[1]])
    assert scale.dtype == np.float16
    assert scale == np.float16(1 / 448)
    assert constants[quantizer.input[2]].data_type == TensorProto.FLOAT8E4M3FN


def test_weights_have_one_scale(attention: onnx.ModelProto) -> None:
    constants = {item.name: numpy_helper.to_array(item) for item in attention.graph.initializer}
    scales = [constants[node.input[1]].size for node in attention.graph.node if node.op_type == "QuantizeLinear"]
    assert set(scales) == {1}


def test_convolutions_of_few_channels_stay_float(tmp_path: Path) -> None:
    net = Net("channels")
    x = net.node("Relu", net.conv(net.input("x", [1, 3, 8, 8]), 3, 16))
    net.output(net.node("Conv", x, net.weight(16, 16, 1, 1), output="y", name="wide"), [1, 16, 8, 8])
    feeds = [{"x": np.random.default_rng(i).normal(size=(1, 3, 8, 8)).astype(np.float32)} for i in range(4)]
    plan = onnxq.quantize(
        net.model(), backend="tensorrt:format=fp8", data=feeds, out=tmp_path, config={"effort": 0}
    ).plan
    assert "wide" in plan.quantized
    assert [reason.code for reason in plan.left_float.values()] == ["declined_by_target", "not_fused"]


def test_other_formats_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(onnxq.ConfigError, match="Known: int8, fp8"):
        onnxq.get_backend("tensorrt:format=fp4")
