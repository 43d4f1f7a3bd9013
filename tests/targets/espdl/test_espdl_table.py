"""ESP-DL: every scale is a power of two and covers its range; the table has the exponents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from onnxq.emit import EMITTERS, EmitRequest
from onnxq.errors import UnsupportedError
from onnxq.numerics import quantize as to_integers
from onnxq.targets.espdl.exponents import exponents
from onnxq.types import PerChannel, PerTensor, QParams, QParamsTable, QuantSpec
from tests.formats.written import write_golden
from tests.golden_graphs import GOLDEN

CHIPS = ("esp32p4", "esp32s3", "c")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ["residual", "transformer", "concat"])
def test_exponents_are_those_of_the_scales(name: str, chip: str, tmp_path: Path) -> None:
    written = write_golden(name, f"espdl:chip={chip}", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "model_espdl.json").read_text())
    assert set(document["tensors"]) == set(written.plan.placements)
    for tensor, entry in document["tensors"].items():
        held = written.qparams[tensor]
        np.testing.assert_array_equal(2.0 ** np.asarray(entry["exponent"], float), held.scale)
        assert not np.any(held.zero_point)
    assert written.problems() == []


@pytest.mark.parametrize("chip", CHIPS)
def test_each_chip_has_its_rounding_granularity_and_bias(chip: str, tmp_path: Path) -> None:
    written = write_golden("residual", f"espdl:chip={chip}", tmp_path / "out")
    per_channel = chip == "esp32p4"
    roles = {placement.role for placement in written.plan}
    assert roles >= {"activation", "weight", "bias"}
    for placement in written.plan:
        spec = placement.spec
        assert spec.rounding == ("half_even" if per_channel else "half_up")
        if placement.role != "activation":
            assert isinstance(spec.granularity, PerChannel if per_channel else PerTensor)
        if placement.role == "bias":
            assert spec.qmax == (2**19 - 1 if chip == "esp32s3" else 2**31 - 1)
            integers = to_integers(written.graph.values(placement.tensor), written.qparams[placement.tensor])
            assert np.abs(integers.astype(np.int64)).max() < spec.qmax, "a bias is clipped"


def test_a_scale_is_the_smallest_power_of_two_that_clips_nothing(tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    written = write_golden("residual", "espdl", tmp_path / "out")
    for node in written.graph.nodes("Conv"):
        weight = written.graph.values(node.inputs[1])
        largest = np.abs(weight.reshape(weight.shape[0], -1)).max(axis=1)
        np.testing.assert_array_equal(
            written.qparams[node.inputs[1].name].scale, 2.0 ** np.ceil(np.log2(largest / 127))
        )
    name = golden.model.graph.input[0].name
    top = max(np.abs(sample[name]).max() for sample in golden.samples)
    assert written.qparams[name].scale == 2.0 ** np.ceil(np.log2(top / 127))


def test_a_scale_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"'x' has a scale that is no power of two"):
        exponents("x", QParams(QuantSpec("int8"), np.float32(0.3), np.int32(0)))


def test_the_file_says_the_same_scales_as_the_model(tmp_path: Path) -> None:
    write_golden("residual", "espdl", tmp_path / "out")
    tensors = json.loads((tmp_path / "out" / "model_espdl.json").read_text())["tensors"]
    model = onnx.load(tmp_path / "out" / "model.onnx")
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    seen = 0
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in tensors:
            assert constants[node.input[1]] == 2.0 ** tensors[node.input[0]]["exponent"]
            seen += 1
    assert seen > 5
    ort.InferenceSession(str(tmp_path / "out" / "model.onnx"))


def test_the_read_back_finds_a_changed_exponent(tmp_path: Path) -> None:
    written = write_golden("concat", "espdl:chip=c", tmp_path / "out")
    written.change("model_espdl.json", '"exponent": -', '"exponent": -1')
    assert any("has exponent" in line for line in written.problems())


@pytest.mark.parametrize(("coarsest", "said"), [(-20, False), (8, True)])
def test_the_coarsest_channel_of_an_input_decides_whether_a_result_shifts_to_the_left(
    coarsest: int, said: bool, tmp_path: Path
) -> None:
    written = write_golden("residual", "espdl", tmp_path / "out")
    node = next(node for node in written.graph.nodes("Conv") if node.name in written.plan.quantized)
    table = QParamsTable(dict(written.qparams.entries))
    spec = QuantSpec("int8", granularity=PerChannel(1))
    scale = np.ldexp(np.float32(1), np.asarray([-20, coarsest, -20]))
    table.put(node.inputs[0].name, QParams(spec, scale, np.zeros(3, np.int32)), "test")
    emitter = EMITTERS.get("espdl_exponents")
    notes = emitter(EmitRequest(written.graph, written.plan, table, written.backend, tmp_path, "model")).notes
    assert any(f"'{node.name}'" in note and "cannot shift to the left" in note for note in notes) == said
