"""Sophgo tables: what tpu-mlir reads from them is what onnxq has chosen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.emit import emit, read_back
from onnxq.errors import CheckFailed, UnsupportedError
from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.targets.sophgo.cali_table import decimal
from onnxq.types import Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from tests.zoo import ZOO

ROW = re.compile(r"\S+\s+[-0-9.e]+\s+[-0-9.e]+\s+[-0-9.e]+")
"""The regular expression with which tpu-mlir takes a row of thresholds; anything else is dropped."""

MODES = (
    *("INT8", "UINT8", "INT4", "BF16", "F16", "F32", "W8F16", "W8BF16", "W4F16", "W4BF16", "F8", "F8E4M3", "F8E5M2"),
    *("W4F8E4M3", "W4F8E5M2", "W4INT8", "INT8F16DYN", "INT8BF16DYN", "INT4F16DYN", "INT4BF16DYN"),
    *("F8E4M3F16DYN", "F8E4M3BF16DYN", "F4F16DYN", "F4BF16DYN"),
)
"""What tpu-mlir 1.30 understands; any other word ends its run."""


def small_net(input_name: str = "x") -> onnx.ModelProto:
    """Conv, Relu, Conv, an Add with what the Relu made, AveragePool, Flatten, Gemm, Softmax."""
    rng = np.random.default_rng(5)

    def held(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", [input_name, "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["sum"]),
        helper.make_node("AveragePool", ["sum"], ["pool"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], transB=1),
        helper.make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    weights = [held("w1", 4, 3, 3, 3), held("b1", 4), held("w2", 4, 4, 3, 3), held("w3", 5, 16), held("b3", 5)]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(input_name: str = "x") -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [{input_name: rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bm1688")
    onnxq.quantize(small_net(), backend="sophgo_bm1688", data=samples(), out=folder, config={"effort": 0})
    return folder


def blocks(path: Path) -> dict[str, list[str]]:
    """The lines of a calibration table by the mark above them; "" holds the first block."""
    found: dict[str, list[str]] = {"": []}
    block = ""
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            marks = ("#int4_th", "#int4_op", "#asym_op", "#weight_scale")
            block = next((mark for mark in marks if mark in line), block)
            found.setdefault(block, [])
        else:
            found[block].append(line)
    return found


def table(folder: Path) -> Path:
    return folder / "model_cali_table_from_sophgo_mq_sophgo_tpu"


def test_thresholds_give_tpu_mlir_the_scales_of_the_parameters(written: Path) -> None:
    tensors = json.loads((written / "qparams.json").read_text())["tensors"]
    names = {"x": "x", "r1": "r1_Relu", "c2": "c2_Conv", "sum": "sum_Add", "pool": "pool_AveragePool"}
    names |= {"flat": "flat_Flatten", "scores": "scores_Gemm"}
    rows = {line.split()[0]: [float(n) for n in line.split()[1:]] for line in blocks(table(written))[""]}
    for tensor, name in names.items():
        threshold, low, _ = rows[name]
        signed = low < 0
        assert signed == (tensors[tensor]["spec"]["dtype"] == "int8"), tensor
        assert threshold / (127 if signed else 255) == pytest.approx(tensors[tensor]["scale"], rel=2e-7), tensor


def test_what_a_relu_makes_is_unsigned_on_bm_chips_and_signed_on_cv18x(written: Path, tmp_path: Path) -> None:
    onnxq.quantize(small_net(), backend="sophgo_cv18x", data=samples(), out=tmp_path, config={"effort": 0})
    for folder, lowest in ((written, 0.0), (tmp_path, -1.0)):
        row = next(line for line in blocks(table(folder))[""] if line.startswith("r1_Relu "))
        assert np.sign(float(row.split()[2])) == lowest


def test_every_row_is_one_that_tpu_mlir_takes(written: Path) -> None:
    for line in blocks(table(written))[""]:
        assert ROW.fullmatch(line)
        assert len(line.split(" ")) == 4  # another reader splits at single blanks


def test_every_float_tensor_of_the_model_has_a_row(written: Path) -> None:
    model = onnx.load(written / "model_deploy_model.onnx")
    fused = {"c1"}  # the Conv in front of a Relu: the pair has the Relu's name
    wanted = {f"{node.output[0]}_{node.op_type}" for node in model.graph.node if node.output[0] not in fused} | {"x"}
    assert wanted <= {line.split()[0] for line in blocks(table(written))[""]}


def test_int4_thresholds_stand_in_front_of_the_weights(written: Path) -> None:
    lines = table(written).read_text().splitlines()
    assert lines.index("#int4_th") < lines.index("#weight_scale")


def test_weight_rows_hold_one_scale_for_each_channel_under_the_name_of_the_relu(written: Path) -> None:
    tensors = json.loads((written / "qparams.json").read_text())["tensors"]
    rows = {line.split()[0]: line.split()[1:] for line in blocks(table(written))["#weight_scale"]}
    count, *numbers = rows["r1_Relu_weight"]
    assert int(count) == 4
    assert numbers[4] == "4"
    assert numbers[5:] == ["0"] * 4
    assert [float(n) for n in numbers[:4]] == pytest.approx(tensors["w1"]["scale"], rel=2e-7)
    assert rows["scores_Gemm_weight"][0] == "1"


def test_operators_that_stay_float_are_f32_on_bm_chips_and_bf16_on_cv18x(written: Path, tmp_path: Path) -> None:
    onnxq.quantize(small_net(), backend="sophgo_cv18x", data=samples(), out=tmp_path, config={"effort": 0})
    for folder, mode in ((written, "F32"), (tmp_path, "BF16")):
        text = (folder / "model_q_table_from_sophgo_mq_sophgo_tpu").read_text()
        rows = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
        assert rows["y_Softmax"] == mode
        assert rows["r1_Relu"] == rows["scores_Gemm"] == rows["pool_AveragePool"] == "INT8"
        assert set(rows.values()) <= set(MODES)


def test_a_blank_in_a_name_is_refused_with_the_tensor_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"tensor 'my input' .*Rename it"):
        onnxq.quantize(
            small_net("my input"), backend="sophgo_bm1688", data=samples("my input"), out=tmp_path, config={"effort": 0}
        )


@pytest.mark.parametrize("value", [3.8994217, 1e-5, 123456.75, 0.0, -0.00366151234, 1.5e-12, 99.999999])
def test_numbers_are_plain_decimals_that_keep_eight_digits(value: float) -> None:
    text = decimal(value)
    assert re.fullmatch(r"-?\d+\.\d{7,}", text)
    assert float(text) == pytest.approx(value, rel=5e-9)


def hand_made(spec: QuantSpec, weight: QuantSpec) -> tuple[Graph, QuantPlan, QParamsTable]:
    """One Conv whose input and result have `spec`."""
    values = np.ones((2, 3, 1, 1), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, 4])],
        [numpy_helper.from_array(values, "w")],
    )
    model = Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    plan = QuantPlan("sophgo_academic", quantized={"conv": "by hand"})
    qparams = QParamsTable()
    for name, kind in (("x", spec), ("y", spec), ("w", weight)):
        plan.placements[name] = Placement(name, kind, "weight" if name == "w" else "activation", "by hand")
        zero = 0 if kind.symmetric else -3
        qparams.put(name, QParams(kind, np.float32(0.25), np.int32(zero)), "by hand")
    return model, plan, qparams


@pytest.mark.parametrize(
    ("spec", "weight", "mode", "row"),
    [
        (QuantSpec("int8"), QuantSpec("int8"), "INT8", (31.75, -32.0, 31.75)),
        (QuantSpec("uint8"), QuantSpec("int8"), "INT8", (63.75, 0.0, 63.75)),
        (QuantSpec("int8", symmetric=False), QuantSpec("int8"), "INT8", (32.5, -31.25, 32.5)),
        (QuantSpec("int8"), QuantSpec("int4"), "W4INT8", (31.75, -32.0, 31.75)),
        (QuantSpec("fp8_e4m3"), QuantSpec("fp8_e4m3"), "F8E4M3", (112.0, -112.0, 112.0)),
        (QuantSpec("fp8_e5m2"), QuantSpec("fp8_e5m2"), "F8E5M2", (14336.0, -14336.0, 14336.0)),
    ],
)
def test_each_format_has_its_mode_and_its_threshold(
    spec: QuantSpec, weight: QuantSpec, mode: str, row: tuple[float, float, float], tmp_path: Path
) -> None:
    graph, plan, qparams = hand_made(spec, weight)
    backend = get_backend("sophgo_academic:precision=INT8")
    emit(graph, plan, qparams, backend, tmp_path, "model")
    text = table(tmp_path).read_text()
    found = next(line for line in text.splitlines() if line.startswith("y_Conv "))
    assert tuple(float(n) for n in found.split()[1:]) == row
    assert ("mqbench-fp8" in text.splitlines()[0]) == spec.dtype.startswith("fp8")
    assert f"y_Conv {mode}\n" in (tmp_path / "model_q_table_from_sophgo_mq_sophgo_tpu").read_text()
    assert read_back(graph, plan, qparams, backend, tmp_path, "model") == []


def test_int4_operators_are_listed_with_their_thresholds(tmp_path: Path) -> None:
    graph, plan, qparams = hand_made(QuantSpec("int4"), QuantSpec("int4"))
    backend = get_backend("sophgo_bm1688:precision=INT4")
    emit(graph, plan, qparams, backend, tmp_path, "model")
    found = blocks(table(tmp_path))
    assert "x 1.75000000 -2.00000000 1.75000000" in found["#int4_th"]
    assert found[""][0].startswith("x 2.11666667 ")  # in 8 bits first: 127 steps of 0.25 / 15
    assert found["#int4_op"] == ["y_Conv"]
    assert table(tmp_path).read_text().startswith("# work_mode:int4_and_int8_mix ")
    assert read_back(graph, plan, qparams, backend, tmp_path, "model") == []


@pytest.mark.parametrize(("dtype", "steps", "parts"), [("int8", (-8, 7), 15), ("uint8", (0, 15), 17)])
def test_rounding_to_eight_bits_and_then_to_four_is_rounding_to_four(
    dtype: str, steps: tuple[int, int], parts: int
) -> None:
    values = np.linspace(-10.0, 18.0, 200_003)
    limits = np.iinfo(dtype)
    eight = np.clip(np.rint(values * parts), limits.min, limits.max)
    both = np.clip(np.sign(eight) * np.floor(np.abs(eight) / parts + 0.5), *steps)
    np.testing.assert_array_equal(both, np.clip(np.rint(values), *steps))


def relu_behind_a_layer(spec: QuantSpec) -> tuple[Graph, QuantPlan, QParamsTable]:
    """A Conv with a Relu inside, whose result has `spec`."""
    graph, plan, qparams = hand_made(QuantSpec("int8"), QuantSpec("int8"))
    model = graph.to_model()
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"], name="relu"))
    model.graph.output[0].name = "z"
    plan.fused["relu"] = "conv"
    plan.placements["z"] = Placement("z", spec, "activation", "by hand")
    qparams.put("z", QParams(spec, np.float32(0.25), np.int32(0)), "by hand")
    del plan.placements["y"]
    return Graph.from_model(model), plan, qparams


@pytest.mark.parametrize(("target", "dtype"), [("sophgo_bm1688", "int8"), ("sophgo_bm1688:precision=INT4", "int4")])
def test_a_signed_format_behind_a_relu_is_refused_where_the_chip_makes_it_unsigned(
    target: str, dtype: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=rf"'z' .* is {dtype}, .* u{dtype} whatever.*Leave dtype"):
        emit(*relu_behind_a_layer(QuantSpec(dtype)), get_backend(target), tmp_path, "model")
    emit(*relu_behind_a_layer(QuantSpec(f"u{dtype}")), get_backend(target), tmp_path, "model")


def test_cv18x_holds_a_signed_format_behind_a_relu_and_no_unsigned_one(tmp_path: Path) -> None:
    backend = get_backend("sophgo_cv18x")
    emit(*relu_behind_a_layer(QuantSpec("int8")), backend, tmp_path, "model")
    row = next(line for line in blocks(table(tmp_path))[""] if line.startswith("z_Relu "))
    assert float(row.split()[1]) == 127 * 0.25
    with pytest.raises(CheckFailed, match=r"z_Relu.*signed, it is uint8"):
        emit(*relu_behind_a_layer(QuantSpec("uint8")), backend, tmp_path, "model")


@pytest.mark.parametrize("target", ["sophgo_cv18x", "sophgo_mars3"])
def test_a_setting_of_uint8_is_refused_for_chips_without_unsigned_tensors(target: str, tmp_path: Path) -> None:
    settings = {"activation": {"dtype": "uint8"}}
    with pytest.raises(UnsupportedError, match=r"\[dtype\].*uint8, sophgo_\w+ takes int8"):
        onnxq.quantize(small_net(), backend=target, data=samples(), config=settings, out=tmp_path)


def test_the_type_that_bm_chips_have_anyway_changes_no_table(written: Path, tmp_path: Path) -> None:
    settings = {"activation": {"dtype": "int8"}, "effort": 0}
    onnxq.quantize(small_net(), backend="sophgo_bm1688", data=samples(), config=settings, out=tmp_path)
    assert table(tmp_path).read_text() == table(written).read_text()


def test_a_format_that_tpu_mlir_does_not_have_is_refused(tmp_path: Path) -> None:
    settings = {"activation": {"dtype": "int7"}}
    with pytest.raises(UnsupportedError, match=r"\[steps\].*-64 .. 63"):
        onnxq.quantize(small_net(), backend="sophgo_bm1688", data=samples(), config=settings, out=tmp_path)


@pytest.mark.parametrize("name", ["loop_with_matmul_body", "scan_with_gemm_body", "lstm_between_layers"])
def test_bodies_and_omitted_outputs_have_names(name: str, tmp_path: Path) -> None:
    case = ZOO[name]()
    result = onnxq.quantize(
        case.model, backend="sophgo_bm1688", data=case.feeds, out=tmp_path / "out", config={"effort": 0}
    )
    assert min(float(value) for value in result.report["sqnr_db"].values()) > 20
