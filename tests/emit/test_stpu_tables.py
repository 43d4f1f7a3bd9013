"""STPU's range file: ranges of 127 steps, bias scales, and exponents as the published search finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.emit.stpu import exponent_field
from tests.formats.stpu import convolution_emin, exponent_index, minmax_file
from tests.formats.written import write_golden

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
