"""Tables of positions and the FixNeuron model: what they say, and that the read-backs notice what they do not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxq.emit import emit, read_back
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.refine import refine
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan
from tests.targets.amd.dpu_graphs import drawn, planned

Written = tuple[Graph, QuantPlan, QParamsTable, Backend, Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    graph, plan, backend = planned("vitis")
    table = refine(graph, plan, drawn(plan, 4, 3, 7), backend).qparams
    emit(graph, plan, table, backend, tmp_path, "model")
    return graph, plan, table, backend, tmp_path


def problems(written: Written) -> list[str]:
    graph, plan, table, backend, folder = written
    return read_back(graph, plan, table, backend, folder, "model")


def edit(path: Path, change: Any) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_clip_ranges_hold_the_scale_of_every_quantizer(written: Written) -> None:
    _, plan, table, _, folder = written
    data = json.loads((folder / "model_clip_ranges.json").read_text())
    assert list(data) == ["vitis"]
    assert data["vitis"] == {p.tensor: {"scale": float(table[p.tensor].scale)} for p in plan}
    assert {p.role for p in plan} == {"activation", "weight", "bias"}


def test_quant_info_holds_bits_and_positions_by_kind(written: Written) -> None:
    graph, plan, table, _, folder = written
    data = json.loads((folder / "model_quant_info.json").read_text())
    constants = {p.tensor for p in plan if graph.is_constant(p.tensor)}
    assert set(data["param"]) == constants
    assert set(data["output"]) == set(plan.placements) - constants
    assert data["input"] == {}
    for tensor, ((bits, position),) in (data["param"] | data["output"]).items():
        assert bits == 8
        assert 2.0**-position == table[tensor].scale
    model = (folder / "model_deploy_model.onnx").read_bytes()
    assert data["graph_md5"] == hashlib.md5(model, usedforsecurity=False).hexdigest()


class FixNeuron(OpRun):
    """What vai_q_onnx computes: round half to even, limit to the bits, multiply by the scale."""

    op_domain = "ai.onnx.contrib"

    def _run(self, x: Any, scale: Any, zero_point: Any, bit_width: str = "", pos: str = "") -> Any:
        assert scale == 2.0 ** -int(pos)
        assert zero_point == 0
        top = 2 ** (int(bit_width) - 1)
        return (np.clip(np.round(x / scale), -top, top - 1).astype(np.float32) * scale,)


def test_the_fix_neuron_model_computes_what_the_qdq_model_computes(written: Written) -> None:
    graph, plan, table, _, folder = written
    model = onnx.load(folder / "model_fixneuron.onnx")
    nodes = [node for node in model.graph.node if node.op_type == "FixNeuron"]
    assert len(nodes) == len(plan)
    assert {node.domain for node in nodes} == {"ai.onnx.contrib"}
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
    fixed = ReferenceEvaluator(model, new_ops=[FixNeuron]).run(None, {"x": x})[0]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    qdq = ort.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    expected = qdq.run(None, {"x": x})[0]
    step = float(table[graph.output_names[0]].scale) if graph.output_names[0] in table else 0.0
    # The reference evaluator adds in another order, so that single values may fall on the neighbouring code.
    assert np.abs(fixed - expected).max() <= step
    assert np.mean(fixed == expected) > 0.7


def test_constants_of_the_fix_neuron_model_are_those_of_the_qdq_model(tmp_path: Path) -> None:
    graph, plan, backend = planned("vitis")
    weight, other = [placement.tensor for placement in plan if placement.role == "weight"][:2]
    halves = np.resize(np.arange(-9, 10) / 2, graph.values(weight).shape).astype(np.float32)
    graph.tensor(weight).values = halves  # halves of a step at position 0: rounded away from zero
    table = drawn(plan, 4, 3, 7)
    table.put(weight, QParams(plan[weight].spec, np.float32(1), np.int32(0)), "test")
    table.integer_weights[other] = np.ones(graph.values(other).shape, np.int8)
    emit(graph, plan, table, backend, tmp_path, "model")
    stored, qdq = (onnx.load(tmp_path / f"model{suffix}.onnx") for suffix in ("_fixneuron", ""))
    floats = {item.name: numpy_helper.to_array(item) for item in stored.graph.initializer}
    integers = {item.name: numpy_helper.to_array(item) for item in qdq.graph.initializer}
    for tensor in (p.tensor for p in plan if p.role in ("weight", "bias")):
        np.testing.assert_array_equal(floats[tensor], integers[f"{tensor}_quantized"] * table[tensor].scale)
    np.testing.assert_array_equal(floats[weight], np.trunc(halves + np.copysign(0.5, halves)))
    assert (floats[other] == table[other].scale).all()


def test_what_was_written_reads_back_without_a_word(written: Written) -> None:
    assert problems(written) == []


@pytest.mark.parametrize("file", ["model_clip_ranges.json", "model_quant_info.json"])
def test_the_read_back_notices_another_number_and_another_name(written: Written, file: str) -> None:
    path = written[4] / file

    def change(data: Any) -> None:
        part = data["vitis"] if "vitis" in data else data["output"]
        first, second = list(part)[-2:]
        part[first] = {"scale": 0.3} if "vitis" in data else [[8, 99]]
        part["nobody"] = part.pop(second)

    edit(path, change)
    lines = problems(written)
    assert len(lines) == 3
    assert any("is missing" in line for line in lines)
    assert any("'nobody' is not quantized, and stands in the table" in line for line in lines)
    assert any("0.3" in line or "99" in line for line in lines)


def test_the_read_back_notices_another_position_in_the_model(written: Written) -> None:
    path = written[4] / "model_fixneuron.onnx"
    model = onnx.load(path)
    nodes = [node for node in model.graph.node if node.op_type == "FixNeuron"]
    next(item for item in nodes[0].attribute if item.name == "pos").s = b"33"
    scale = next(item for item in model.graph.initializer if item.name == nodes[1].input[1])
    scale.CopyFrom(numpy_helper.from_array(np.float32(0.3), scale.name))
    onnx.save(model, path)
    assert len(problems(written)) == 2


def test_a_scale_that_is_no_power_of_two_is_refused_with_its_tensor(tmp_path: Path) -> None:
    graph, plan, backend = planned("vitis")
    table = drawn(plan, 0)
    table.put("x", QParams(plan["x"].spec.replace(power_of_two=False), np.float32(0.3), np.int32(0)), "test")
    emitters = ("vitis_quant_info",)
    with pytest.raises(UnsupportedError, match=r"'x' has a scale that is not a single power of two.*strategy=fs"):
        emit(graph, plan, table, backend.replace(emitters=emitters), tmp_path, "model")
