"""tensorrt:format=mxfp8 and nvfp4: the file with TensorRT's operators computes what was checked in onnxruntime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper

import onnxq
from onnxq.graph import Graph
from onnxq.lint.limits import lint
from tests.zoo_graphs.net import Net

SIZES = {"mxfp8": 32, "nvfp4": 16}


def net() -> onnx.ModelProto:
    made = Net("blocks")
    x = made.node("MatMul", made.input("x", [1, 6, 64]), made.weight(64, 96, fan_in=64), name="first")
    x = made.node("Gelu" if made.opset >= 20 else "Relu", x)
    x = made.node("MatMul", x, made.weight(96, 40, fan_in=96), name="second")
    made.output(made.node("MatMul", x, made.weight(40, 8, fan_in=40), output="y", name="odd"), [1, 6, 8])
    return made.model()


def feeds(count: int = 8) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    spread = np.exp2(rng.normal(0, 2, (1, 6, 64)))
    return [{"x": (rng.normal(size=(1, 6, 64)) * spread).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module", params=SIZES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, onnxq.Result]:
    folder = tmp_path_factory.mktemp(request.param)
    backend = f"tensorrt:format={request.param}"
    return request.param, onnxq.quantize(net(), backend=backend, data=feeds(), out=folder, config={"effort": 0})


def blocks(values: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Blocks along the last of the axes."""
    moved = np.moveaxis(values, axis, -1)
    return moved.reshape(*moved.shape[:-1], -1, size)


def spread(scales: np.ndarray, axis: int, size: int) -> np.ndarray:
    return np.repeat(scales.astype(np.float32), size, axis)


class Parser:
    """What the operators of NVIDIA's parser say, in numpy: the second opinion about the file."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}

    def run(self, feed: dict[str, np.ndarray]) -> np.ndarray:
        values: dict[str, Any] = {**self.constants, **feed}
        for node in self.nodes:
            attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
            made = getattr(self, node.op_type)(*(values[name] for name in node.input), **attrs)
            values.update(zip(node.output, made if isinstance(made, tuple) else (made,), strict=True))
        return np.asarray(values["y"])

    def MatMul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # noqa: N802
        return np.asarray(np.matmul(a, b), np.float32)

    def Relu(self, x: np.ndarray) -> np.ndarray:  # noqa: N802
        return np.maximum(x, 0)

    def TRT_MXFP8DynamicQuantize(  # noqa: N802
        self, x: np.ndarray, *, axis: int, block_size: int, output_dtype: int
    ) -> tuple[np.ndarray, np.ndarray]:
        assert (block_size, output_dtype) == (32, TensorProto.FLOAT8E4M3FN)
        largest = np.abs(blocks(x, axis, block_size)).max(-1)
        exponent = np.ceil(np.log2(np.maximum(largest, 1e-30).astype(np.float64) / 448)).astype(np.int64)
        scales = np.moveaxis(np.exp2(exponent.astype(np.float64)), -1, axis)
        numbers = (x / spread(scales, axis, block_size)).astype(ml_dtypes.float8_e4m3fn)
        return numbers, np.moveaxis(exponent + 127, -1, axis).astype(np.uint8)

    def TRT_MXFP8DequantizeLinear(  # noqa: N802
        self, x: np.ndarray, scale: np.ndarray, *, axis: int, block_size: int, output_dtype: int
    ) -> np.ndarray:
        assert (x.dtype, scale.dtype, output_dtype) == (ml_dtypes.float8_e4m3fn, np.uint8, TensorProto.FLOAT)
        return x.astype(np.float32) * spread(np.exp2(scale.astype(np.float64) - 127), axis, block_size)

    def TRT_FP4DynamicQuantize(  # noqa: N802
        self, x: np.ndarray, scale: np.ndarray, *, axis: int, block_size: int, scale_type: int
    ) -> tuple[np.ndarray, np.ndarray]:
        assert (block_size, scale_type, scale.shape) == (16, TensorProto.FLOAT8E4M3FN, ())
        largest = np.abs(blocks(x, axis, block_size)).max(-1)
        scales = np.clip(largest / np.float32(6 * scale), 2.0**-9, 448).astype(ml_dtypes.float8_e4m3fn)
        scales = np.moveaxis(scales, -1, axis)
        divided = x / spread(scales.astype(np.float32) * scale, axis, block_size)
        return divided.astype(ml_dtypes.float4_e2m1fn), scales

    def DequantizeLinear(  # noqa: N802
        self, x: np.ndarray, scale: np.ndarray, *, axis: int = 1, block_size: int = 0
    ) -> np.ndarray:
        factor = spread(scale, axis, block_size) if block_size else scale
        return np.asarray(x.astype(np.float32) * factor, np.float32)


def test_the_file_computes_what_onnxruntime_checked(written: tuple[str, onnxq.Result]) -> None:
    _, result = written
    parser = Parser(onnx.load(result.model.with_name("model_tensorrt.onnx")))
    session = ort.InferenceSession(str(result.model), providers=["CPUExecutionProvider"])
    for feed in feeds(3):
        wanted = session.run(["y"], feed)[0]
        assert np.abs(parser.run(feed) - wanted).max() < 1e-5 * np.abs(wanted).max()  # sums in another order


def test_operators_and_types_are_those_of_the_parser(written: tuple[str, onnxq.Result]) -> None:
    name, result = written
    model = onnx.load(result.model.with_name("model_tensorrt.onnx"))
    onnx.checker.check_model(model)
    dynamic = {"mxfp8": "TRT_MXFP8DynamicQuantize", "nvfp4": "TRT_FP4DynamicQuantize"}[name]
    found = [node for node in model.graph.node if node.op_type == dynamic]
    assert len(found) == 2
    for node in found:
        attrs = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        assert (node.domain, attrs["axis"], attrs["block_size"]) == ("trt", 2, SIZES[name])
    types = Counter(item.data_type for item in model.graph.initializer if len(item.dims) == 2)
    wanted = {
        "mxfp8": {TensorProto.FLOAT8E4M3FN: 2, TensorProto.UINT8: 2, TensorProto.FLOAT: 1},
        "nvfp4": {TensorProto.FLOAT4E2M1: 2, TensorProto.FLOAT8E4M3FN: 2, TensorProto.FLOAT: 1},
    }
    assert types == wanted[name]
    assert [finding.rule for finding in lint(Graph.load(result.model), onnxq.get_backend("tensorrt:version=11"))] == []


def test_what_is_no_whole_number_of_blocks_stays_float(written: tuple[str, onnxq.Result]) -> None:
    name, result = written
    assert set(result.plan.quantized) == {"first", "second"}
    reason = result.plan.left_float["odd"]
    assert reason.code == "declined_by_target"
    assert reason == f"it sums over 40 numbers, which are no whole blocks of {SIZES[name]}"


def test_a_changed_weight_is_noticed(written: tuple[str, onnxq.Result], tmp_path: Path) -> None:
    from onnxq.emit import read_back
    from onnxq.session.prepare import prepare

    name, result = written
    model = onnx.load(result.model.with_name("model_tensorrt.onnx"))
    (item,) = (one for one in model.graph.initializer if list(one.dims) == [64, 96])
    item.raw_data = bytes([item.raw_data[0] ^ 1]) + item.raw_data[1:]
    onnx.save(model, tmp_path / "model_tensorrt.onnx")
    prepared = prepare(net(), f"tensorrt:format={name}")
    problems = read_back(prepared.graph, result.plan, result.qparams, prepared.backend, tmp_path, "model")
    assert len(problems) == 1
    assert "has other values in model_tensorrt.onnx" in problems[0]


@pytest.mark.parametrize("name", SIZES)
def test_the_rest_is_half_precision_around_them(name: str, tmp_path: Path) -> None:
    backend = f"tensorrt:version=11,rest=fp16,format={name}"
    onnxq.quantize(net(), backend=backend, data=feeds(), out=tmp_path, config={"effort": 0})
    model = onnx.load(tmp_path / "model_tensorrt.onnx")
    onnx.checker.check_model(model)
    weights = [item.data_type for item in model.graph.initializer if list(item.dims) == [40, 8]]
    assert weights == [TensorProto.FLOAT16]
    makers = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.name in ("first", "second"):
            for made in node.input:  # as ModelOpt writes it: DequantizeLinear, Cast, MatMul
                assert makers[made].op_type == "Cast"
                assert makers[makers[made].input[0]].op_type.endswith("DequantizeLinear")


def test_tables_are_refused() -> None:
    with pytest.raises(onnxq.ConfigError, match="the tables are for int8"):
        onnxq.get_backend("tensorrt:format=nvfp4,tables=yes")
