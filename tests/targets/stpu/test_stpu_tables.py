"""STPU's range file: ranges of 127 steps, bias scales, and exponents as the published search finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.targets.stpu.ranges import exponent_field
from tests.formats.pooled_layers import pooled_layers
from tests.formats.stpu import convolution_emin, exponent_index, minmax_file
from tests.formats.written import Written, write_golden, write_model
from tests.zoo_graphs.net import Net

GRAPHS = ("residual", "depthwise", "concat", "detector")


@given(st.floats(min_value=0, max_value=3e38, allow_nan=False))
def test_the_exponent_is_the_one_that_the_search_finds(value: float) -> None:
    assert exponent_field(value) == exponent_index(value)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_file_says_what_the_parameters_say(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "stpu", tmp_path / "out")
    found = minmax_file(tmp_path / "out" / "model_stpu_minmax.json")
    graph, qparams = written.graph, written.qparams
    for placement in written.plan:
        if not graph.is_constant(placement.tensor):
            assert found[placement.tensor]["max"] == pytest.approx(127 * float(qparams[placement.tensor].scale), 1e-6)
    checked = 0
    for node in graph.nodes():
        if node.op not in ("Conv", "Gemm") or node.name not in written.plan.quantized:
            continue
        data, weight = (qparams[tensor.name] for tensor in node.inputs[:2])
        assert found[f"{node.name}_weights"]["max"] == pytest.approx(127 * float(weight.scale), rel=1e-6)
        if len(node.inputs) > 2:
            alpha = float(data.scale) * float(weight.scale)
            assert found[f"{node.name}_bias"] == {"alpha": pytest.approx(alpha, rel=1e-6), "zero_point": 0}
        result = found[node.outputs[0].name]
        products = int(np.prod(graph.values(node.inputs[1]).shape[1:]))
        largest = (127 * float(data.scale), 127 * float(weight.scale), result["max"])
        assert result["emin"] == (128 if node.op == "Gemm" else convolution_emin(*largest, products))
        checked += 1
    assert checked > 3
    assert written.problems() == []


def test_what_stands_in_front_of_a_relu_has_the_range_behind_it(tmp_path: Path) -> None:
    written = write_golden("residual", "stpu", tmp_path / "out")
    found = minmax_file(tmp_path / "out" / "model_stpu_minmax.json")
    for node in written.graph.nodes("Relu"):
        assert found[node.inputs[0].name]["max"] == found[node.outputs[0].name]["max"]


def test_inputs_and_output_of_a_concat_have_one_range(tmp_path: Path) -> None:
    written = write_golden("concat", "stpu", tmp_path / "out")
    found = minmax_file(tmp_path / "out" / "model_stpu_minmax.json")
    joined = written.graph.nodes("Concat")
    assert joined
    for node in joined:
        assert len({found[tensor.name]["max"] for tensor in (*node.inputs, *node.outputs)}) == 1


def test_the_read_back_finds_a_changed_exponent(tmp_path: Path) -> None:
    written = write_golden("residual", "stpu", tmp_path / "out")
    written.change("model_stpu_minmax.json", '"emin": 128', '"emin": 127')
    assert any("emin" in line for line in written.problems())


def write_net(net: Net, folder: Path) -> tuple[Written, dict[str, dict[str, float]]]:
    samples = [{"x": net.image(1, 3, 8, 8)} for _ in range(8)]
    written = write_model(net.model(), samples, "stpu", folder)
    assert written.problems() == []
    return written, minmax_file(folder / "model_stpu_minmax.json")


def test_a_convolution_that_others_read_before_its_relu_keeps_its_own_range(tmp_path: Path) -> None:
    net = Net("read_twice")
    made = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    positive = net.node("Sigmoid", net.relu(made))  # nothing ties the Relu's result to a range of its own
    net.output(net.conv(net.node("Add", made, positive), 4, 2))
    written, found = write_net(net, tmp_path / "out")
    assert found[made]["max"] == pytest.approx(127 * float(written.qparams[made].scale), rel=1e-6)


def test_a_sigmoid_has_exactly_the_range_of_the_chip(tmp_path: Path) -> None:
    net = Net("gate")
    made = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    gate = net.node("Sigmoid", made)
    net.output(net.node("Mul", made, gate))
    _, found = write_net(net, tmp_path / "out")
    assert found[gate] == {"min": -1.0, "max": 1.0}


def test_a_sigmoid_that_shares_a_wider_range_is_written_as_it_is_and_said(tmp_path: Path) -> None:
    net = Net("joined_gate")
    made = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    gate = net.node("Sigmoid", made, output="gate")
    net.output(net.conv(net.node("Concat", made, gate, axis=1), 8, 2))
    written, found = write_net(net, tmp_path / "out")
    assert found["gate"]["max"] == pytest.approx(127 * float(written.qparams["gate"].scale), rel=1e-6)
    assert found["gate"]["max"] > 1
    assert any("'gate'" in note and "gives -1 to 1" in note for note in written.notes)


def test_layers_of_a_network_all_have_ranges(tmp_path: Path) -> None:
    written, found = write_net(pooled_layers(), tmp_path / "out")
    assert not written.plan.left_float
    made = {tensor.name for node in written.graph.nodes() for tensor in node.outputs}
    assert made | {"x"} <= found.keys()
    (resize,) = written.graph.nodes("Resize")
    assert found[resize.outputs[0].name]["emin"] == exponent_index(found[resize.outputs[0].name]["max"]) - 20


def test_weights_of_matrices_and_constant_operands_have_ranges(tmp_path: Path) -> None:
    net = Net("constants")
    x = net.node("Reshape", net.input("x", [1, 3, 8, 8]), net.ints(1, 3, 64))
    x = net.node("MatMul", x, net.weight(64, 8, fan_in=64, name="matrix"), name="matmul")
    net.output(net.node("Mul", net.relu(x), net.floats(net.normal(1, 3, 8), "factors")))
    written, found = write_net(net, tmp_path / "out")
    for entry, tensor in (("matmul_weights", "matrix"), ("factors", "factors")):
        assert found[entry]["max"] == pytest.approx(127 * float(written.qparams[tensor].scale), rel=1e-6)
    assert found["x"] == found[written.graph.node("matmul").inputs[0].name]
