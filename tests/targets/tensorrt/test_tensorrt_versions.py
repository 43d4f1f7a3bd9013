"""TensorRT 10 and 11: which files are written, which commands follow, and what the parser of either refuses."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.lint.limits import lint
from onnxq.pipeline.vendor_steps import vendor_steps
from tests.golden_graphs import GOLDEN

COMMON = {"config.json", "model.onnx", "plan.json", "qparams.json", "report.html", "report.json"}
TABLES = {"model_calibration.cache", "model_clip_ranges.json", "model_deploy_model.onnx"}


@pytest.mark.parametrize(
    ("backend", "files"),
    [
        ("tensorrt", COMMON | TABLES),
        ("tensorrt:version=11", COMMON),
        ("tensorrt:rest=fp16", COMMON),
        ("tensorrt:rest=fp16,tables=yes", COMMON | TABLES),
        ("tensorrt:tables=no", COMMON),
    ],
)
def test_tables_are_for_versions_with_calibrators(backend: str, files: set[str], tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=tmp_path, config={"effort": 0})
    assert {path.name for path in tmp_path.iterdir()} == files


def test_commands_have_the_flags_that_the_version_knows() -> None:
    def lines(backend: str) -> list[str]:
        return [str(step["line"]) for step in vendor_steps(onnxq.get_backend(backend), "net")]

    plain = "trtexec --onnx=net.onnx --saveEngine=net.plan"
    assert lines("tensorrt:version=11") == lines("tensorrt:version=11,rest=bf16") == [plain]
    assert any("--int8 --calib=" in line for line in lines("tensorrt"))
    assert lines("tensorrt:rest=fp16") == [plain, "trtexec --onnx=net.onnx --stronglyTyped --saveEngine=net.plan"]


def test_version_11_has_no_tables_to_ask_for() -> None:
    with pytest.raises(ConfigError, match=r"no calibrators.*version=10"):
        onnxq.get_backend("tensorrt:version=11,tables=yes")
    with pytest.raises(ConfigError, match="Known: 10, 11"):
        onnxq.get_backend("tensorrt:version=12")


def weight_model(
    weight: np.ndarray,
    scale: np.ndarray,
    *,
    opset: int = 21,
    zero: np.ndarray | None = None,
    attributes: dict[str, object] | None = None,
    real: int = TensorProto.FLOAT,
    other: int | None = None,
) -> Graph:
    """x times a dequantized weight; `other` is the type of x."""
    constants = {"w": weight, "s": scale} | ({} if zero is None else {"z": zero})
    inputs = ["w", "s", "z"] if zero is not None else ["w", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["wd"], name="weight", **(attributes or {})),
        helper.make_node("MatMul", ["x", "wd"], ["y"], name="product"),
    ]
    given = helper.make_tensor_value_info("x", real if other is None else other, [2, weight.shape[0]])
    made = helper.make_tensor_value_info("y", real, [2, weight.shape[1]])
    held = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "weight", [given], [made], held)
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))


def rules(graph: Graph, backend: str = "tensorrt:version=11") -> list[str]:
    return [finding.rule for finding in lint(graph, onnxq.get_backend(backend))]


def codes(rows: int, columns: int, kind: object = ml_dtypes.int4) -> np.ndarray:
    return np.ones((rows, columns), kind)  # type: ignore[call-overload]


def test_whole_blocks_along_one_axis_pass() -> None:
    scale = np.full((2, 6), 0.5, np.float32)
    assert rules(weight_model(codes(64, 6), scale, attributes={"axis": 0, "block_size": 32})) == []
    half = weight_model(codes(64, 6), scale.astype(np.float16), attributes={"axis": 0, "block_size": 32}, real=10)
    assert rules(half) == []


def test_a_shorter_last_block_is_refused() -> None:
    scale = np.full((3, 6), 0.5, np.float32)
    assert rules(weight_model(codes(80, 6), scale, attributes={"axis": 0, "block_size": 32})) == ["whole-blocks"]


def test_blocks_along_two_axes_are_refused() -> None:
    assert "one-blocked-axis" in rules(weight_model(codes(64, 6), np.full((2, 2), 0.5, np.float32)))


def test_numbers_of_four_bits_come_in_pairs() -> None:
    assert rules(weight_model(codes(5, 3), np.float32(0.5))) == ["even-count"]
    assert rules(weight_model(codes(5, 3, np.int8), np.float32(0.5))) == []


def test_zero_points_other_than_zero_and_unsigned_integers_are_refused() -> None:
    found = rules(weight_model(np.ones((4, 4), np.uint8), np.float32(0.5), zero=np.uint8(3)))
    assert {"dtype", "zero-point-zero"} <= set(found)


def test_a_strongly_typed_network_converts_nothing() -> None:
    mixed = weight_model(codes(4, 4), np.float32(0.5), other=TensorProto.FLOAT16)
    assert rules(mixed) == ["mixed-types"]
    assert rules(mixed, "tensorrt:rest=fp16") == ["mixed-types"]
    assert rules(mixed, "tensorrt") == []  # version 10 inserts conversions


def test_a_newer_opset_than_the_parser_knows_is_refused() -> None:
    graph = weight_model(codes(4, 4), np.float32(0.5), opset=26)
    assert "opset" in rules(graph)
    assert "opset" not in rules(weight_model(codes(4, 4), np.float32(0.5), opset=25))


@pytest.mark.parametrize(("size", "found"), [(16, []), (32, ["block-size"])])
def test_nvfp4_has_blocks_of_16(size: int, found: list[str]) -> None:
    node = helper.make_node(
        "TRT_FP4DynamicQuantize", ["x", "g"], ["q", "s"], domain="trt", axis=-1, block_size=size, name="dynamic"
    )
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in ("x", "q", "s")]
    held = numpy_helper.from_array(np.float32(0.1), "g")
    graph = helper.make_graph([node], "dynamic", tensors[:1], tensors[1:], [held])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("trt", 1)]
    assert rules(Graph.from_model(helper.make_model(graph, opset_imports=opsets, ir_version=11))) == found


def test_a_division_in_another_precision_than_the_scale_is_not_what_runs() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize", precision=TensorProto.FLOAT16),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="dequantize"),
    ]
    held = [numpy_helper.from_array(values, name) for name, values in {"s": np.float32(0.1), "z": np.int8(0)}.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "precision", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    assert rules(Graph.from_model(model)) == ["precision"]


def test_what_is_written_for_version_11_passes(tmp_path: Path) -> None:
    golden = GOLDEN["transformer"]()
    backend = "tensorrt:version=11,rest=fp16"
    result = onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=tmp_path, config={"effort": 0})
    onnx.checker.check_model(str(result.model), full_check=True)
    assert rules(Graph.load(result.model), backend) == []
