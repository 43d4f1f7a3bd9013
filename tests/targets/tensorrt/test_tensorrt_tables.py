"""Ranges for TensorRT without Q and DQ: what the files say, and that damage is noticed."""

import json
import struct

import numpy as np
import onnx
import pytest

import onnxq
from tests.formats.written import write_golden, write_model
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net

JSON, CACHE = "model_clip_ranges.json", "model_calibration.cache"


@pytest.fixture(scope="module")
def residual(tmp_path_factory):
    return write_golden("residual", "tensorrt", tmp_path_factory.mktemp("residual"))


def activations(written):
    """The scales of the plan, and that of what a Flatten carries to the classifier."""
    scales = {p.tensor: written.qparams[p.tensor].scale for p in written.plan if p.role == "activation"}
    (flatten,) = written.graph.nodes("Flatten")
    return scales | {flatten.inputs[0].name: scales[flatten.outputs[0].name]}


def test_the_files_are_the_qdq_model_two_tables_and_the_float_model(residual):
    names = {path.name for path in residual.folder.iterdir()} - {
        "plan.json",
        "qparams.json",
        "config.json",
        "report.json",
        "report.html",
    }
    assert names == {"model.onnx", "model_deploy_model.onnx", JSON, CACHE}
    assert residual.problems() == []
    deployed = onnx.load(residual.folder / "model_deploy_model.onnx")
    onnx.checker.check_model(deployed, full_check=True)
    assert not [node for node in deployed.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]


def test_clip_ranges_are_127_steps(residual):
    data = json.loads((residual.folder / JSON).read_text(encoding="utf-8"))
    assert list(data) == ["tensorrt"]
    assert data["tensorrt"]["blob_range"] == {
        name: pytest.approx(127 * float(scale), rel=1e-12) for name, scale in activations(residual).items()
    }


def test_ranges_belong_to_tensors_of_the_float_model(residual):
    graph = onnx.load(residual.folder / "model_deploy_model.onnx").graph
    tensors = {name for node in graph.node for name in (*node.input, *node.output)}
    assert set(activations(residual)) <= tensors


def test_the_cache_holds_the_exact_scales_as_big_endian_floats(residual):
    header, *lines = (residual.folder / CACHE).read_text(encoding="utf-8").splitlines()
    assert header == "TRT-8601-EntropyCalibration2"
    found = {}
    for line in lines:
        name, digits = line.split(": ")
        assert len(digits) == 8
        found[name] = np.float32(struct.unpack("!f", bytes.fromhex(digits))[0])
    assert found == activations(residual)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (JSON, '"image"', '"picture"', "'image' is missing"),
        (JSON, '"image"', '"picture"', "'picture' is not quantized, and stands in the table"),
        (JSON, '"image": ', '"image": 1', "127 steps"),
        (CACHE, "TRT-", "TRX-", "the first line"),
        (CACHE, "image: 3", "image: 4", "has scale"),
        (CACHE, "image: ", "picture: ", "'image' is missing"),
    ],
)
def test_a_changed_table_is_noticed(residual, file, old, new, said):
    residual.change(file, old, new)
    try:
        assert any(said in problem for problem in residual.problems())
    finally:
        residual.change(file, new, old)


def test_the_tables_can_be_left_out(tmp_path):
    golden = GOLDEN["residual"]()
    onnxq.quantize(golden.model, backend="tensorrt:tables=no", data=golden.samples, out=tmp_path, config={"effort": 0})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "model.onnx",
        "plan.json",
        "qparams.json",
        "report.html",
        "report.json",
    ]


def test_fp8_has_no_tables_and_the_report_says_so(tmp_path):
    golden = GOLDEN["residual"]()
    formats = {"activation": {"dtype": "fp8_e4m3"}, "weight": {"dtype": "fp8_e4m3"}}
    result = onnxq.quantize(golden.model, backend="tensorrt", data=golden.samples, out=tmp_path, config=formats)
    assert not (tmp_path / JSON).exists()
    assert not (tmp_path / CACHE).exists()
    assert sum("is not written: tensor 'image' is fp8_e4m3" in note for note in result.report["notes"]) == 2


def test_what_only_moves_into_a_quantized_tensor_has_its_range(tmp_path):
    net = Net("moved")
    x = net.node("Transpose", net.input("x", [1, 8, 8, 3]), perm=[0, 3, 1, 2], output="turned")
    x = net.node("MaxPool", net.relu(net.conv(x, 3, 4)), kernel_shape=[2, 2], output="pooled")
    y = net.node("Reshape", x, net.ints(1, -1), output="row")
    net.output(net.gemm(y, 4 * 7 * 7, 5))
    net.output(net.node("Sigmoid", x))
    samples = [{"x": net.normal(1, 8, 8, 3)} for _ in range(4)]
    written = write_model(net.model(), samples, "tensorrt", tmp_path)
    ranges = json.loads((tmp_path / JSON).read_text(encoding="utf-8"))["tensorrt"]["blob_range"]
    assert written.problems() == []
    assert ranges["x"] == ranges["turned"]
    assert "pooled" not in ranges, "the Sigmoid reads it too, and would see its values cut off"
    assert set(ranges) == {"x", "turned", "row"}


def named_input(name):
    net = Net("names")
    net.output(net.conv(net.input(name, [1, 3, 8, 8]), 3, 4))
    return net.model(), [{name: net.image(1, 3, 8, 8)} for _ in range(4)]


def test_a_colon_in_a_name_is_written_and_said(tmp_path):
    written = write_model(*named_input("input:0"), "tensorrt", tmp_path)
    assert "input:0: " in (tmp_path / CACHE).read_text(encoding="utf-8")
    assert any("'input:0'" in note and "onnxruntime" in note for note in written.notes)


@pytest.mark.parametrize("name", ["input: 0", "input\nimage", " input"])
def test_a_name_that_no_reader_could_tell_from_its_value_leaves_the_cache_out(name, tmp_path):
    written = write_model(*named_input(name), "tensorrt", tmp_path)
    assert not (tmp_path / CACHE).exists()
    assert name in json.loads((tmp_path / JSON).read_text(encoding="utf-8"))["tensorrt"]["blob_range"]
    assert written.problems() == []
    assert any(f"tensor '{name}' cannot stand in a calibration cache" in text for text in written.warnings)
