"""Tengine's scale table: scales and zero points of all activations, fused convolutions twice, no name with a space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxq.emit import EMITTERS, EmitRequest
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.types import QParamsTable, QuantPlan
from tests.formats.pooled_layers import pooled_layers
from tests.formats.tengine import scale_table
from tests.formats.written import write_golden, write_model
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net

RANDOM = np.random.default_rng(3)


def convolution_with(activation: str, bounds: tuple[float, float] = (0.0, 6.0), name: str = "x") -> onnx.ModelProto:
    constants = {"w": RANDOM.normal(0, 1, (4, 3, 3, 3)), "low": np.array(bounds[0]), "high": np.array(bounds[1])}
    extra = ["low", "high"] if activation == "Clip" else []
    nodes = [
        helper.make_node("Conv", [name, "w"], ["between"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node(activation, ["between", *extra], ["y"], name="activation"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items() if k in ("w", *extra)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def samples(name: str = "x") -> list[dict[str, np.ndarray]]:
    return [{name: RANDOM.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]


@pytest.mark.parametrize("name", ["residual", "depthwise", "concat", "detector", "transformer"])
def test_the_table_has_the_scale_and_zero_point_of_every_activation(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "tengine_u8", tmp_path / "out")
    found = scale_table(tmp_path / "out" / "model_for_tengine.scale")
    wanted = {p.tensor for p in written.plan if not written.graph.is_constant(p.tensor)}
    assert wanted <= set(found)
    for tensor in wanted:
        held = written.qparams[tensor]
        assert np.float32(found[tensor][0]) == held.scale
        assert found[tensor][1] == held.zero_point
    assert written.problems() == []


@pytest.mark.parametrize(
    ("activation", "bounds", "twice"),
    [("Relu", (0.0, 6.0), True), ("Clip", (0.0, 6.0), True), ("Clip", (-1.0, 1.0), False)],
)
def test_the_output_of_a_convolution_has_the_line_of_the_activation_fused_into_it(
    activation: str, bounds: tuple[float, float], twice: bool, tmp_path: Path
) -> None:
    write_model(convolution_with(activation, bounds), samples(), "tengine_u8", tmp_path / "out")
    found = scale_table(tmp_path / "out" / "model_for_tengine.scale")
    assert ("between" in found) == twice
    if twice:
        assert found["between"] == found["y"]


def test_the_model_for_the_converter_is_float_with_weights_within_their_ranges(tmp_path: Path) -> None:
    written = write_golden("residual", "tengine_u8", tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model_for_tengine.onnx")
    assert "QuantizeLinear" not in {node.op_type for node in model.graph.node}
    for constant in model.graph.initializer:
        if constant.name not in written.plan or written.plan[constant.name].role != "weight":
            continue
        values, held = numpy_helper.to_array(constant), written.qparams[constant.name]
        assert values.min() >= held.scale * (0 - held.zero_point) * (1 + 1e-6)
        assert values.max() <= held.scale * (255 - held.zero_point) * (1 + 1e-6)
        # A zero point is an integer, so a range of minmax lies up to half a step beside the values.
        assert np.abs(values - written.graph.values(constant.name)).max() <= 0.51 * held.scale
    golden = GOLDEN["residual"]()
    ort.InferenceSession(str(tmp_path / "out" / "model_for_tengine.onnx")).run(None, golden.samples[0])


def test_a_tensor_with_a_space_in_its_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"'my input'.*rename"):
        write_model(convolution_with("Relu", name="my input"), samples("my input"), "tengine_u8", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tensors_that_stay_float_are_named_in_a_note(tmp_path: Path) -> None:
    written = write_golden("transformer", "tengine_u8", tmp_path / "out")
    assert any("have no line" in note for note in written.notes)


def test_the_read_back_finds_a_changed_scale_and_a_changed_zero_point(tmp_path: Path) -> None:
    written = write_golden("residual", "tengine_u8", tmp_path / "out")
    line = (tmp_path / "out" / "model_for_tengine.scale").read_text().splitlines()[0]
    tensor, scale, zero = line.split(" ")
    for changed in (
        f"{tensor} {float(scale) * 1.001} {zero}",
        f"{tensor} {scale} {int(zero) + 1}",
        f"{tensor} {scale}x",
    ):
        written.change("model_for_tengine.scale", line, changed)
        assert written.problems()
        written.change("model_for_tengine.scale", changed, line)
    assert written.problems() == []


def test_a_table_without_lines_is_read_back_as_one(tmp_path: Path) -> None:
    backend = get_backend("tengine_u8")
    nothing = QuantPlan("tengine_u8")
    request = EmitRequest(
        Graph.from_model(convolution_with("Relu")), nothing, QParamsTable(), backend, tmp_path, "model"
    )
    emitter = EMITTERS.get("tengine_scales")
    emitter(request)
    assert emitter.read_back is not None
    assert list(emitter.read_back(request)) == []


def test_batch_norms_bilinear_enlarging_and_pads_have_lines(tmp_path: Path) -> None:
    net = pooled_layers()
    samples = [{"x": net.image(1, 3, 8, 8)} for _ in range(4)]
    written = write_model(net.model(), samples, "tengine_u8", tmp_path / "out")
    found = scale_table(tmp_path / "out" / "model_for_tengine.scale")
    assert not written.plan.left_float
    assert not any("have no line" in note for note in written.notes)
    before_relu = {node.inputs[0].name for node in written.graph.nodes("Relu")}  # the tool passes the scale back
    made = {tensor.name for node in written.graph.nodes() for tensor in node.outputs}
    assert found.keys() == (made | {"x"}) - before_relu


def test_a_pad_of_another_value_is_no_movement_of_values(tmp_path: Path) -> None:
    net = Net("padded")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.output(net.conv(net.node("Pad", x, net.ints(0, 0, 1, 1, 0, 0, 1, 1), net.floats(9.0), name="pad"), 4, 2))
    written = write_model(net.model(), [{"x": net.image(1, 3, 8, 8)} for _ in range(4)], "tengine_u8", tmp_path / "out")
    assert "another value than 0" in written.plan.left_float["pad"]


def test_a_constant_operand_has_a_line(tmp_path: Path) -> None:
    net = Net("shifted")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.output(net.node("Mul", net.relu(x), net.floats(net.normal(1, 4, 8, 8), "factors")))
    samples = [{"x": net.image(1, 3, 8, 8)} for _ in range(4)]
    written = write_model(net.model(), samples, "tengine_u8", tmp_path / "out")
    found = scale_table(tmp_path / "out" / "model_for_tengine.scale")
    held = written.qparams["factors"]
    assert (np.float32(found["factors"][0]), found["factors"][1]) == (held.scale, held.zero_point)
    assert not found.keys() & {placement.tensor for placement in written.plan if "weight of" in placement.why}
