"""Tensors that are only observed: every target writes files in which they stay float, and its tables agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.calibrate import calibrate
from onnxq.emit import emit
from onnxq.emit.observed import plan_for
from onnxq.emit.saturation import with_fitting_weights, with_unsigned_weights
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.place import place
from onnxq.refine import refine
from onnxq.targets import BACKENDS, get_backend
from onnxq.types import Backend, Edge, Placement, QParamsTable, QuantPlan, QuantSpec
from onnxq.verify import verify

WATCHED = "watched_tensor"
READER = "watching_conv"
WEIGHT = np.random.default_rng(3).normal(size=(4, 4, 3, 3)).astype(np.float32)
WEIGHT[0, 0, 0, 0] = 40.0  # an observer that clips weights would be seen

VARIANTS = [
    *BACKENDS.names(),
    "tensorrt:tables=yes",
    "vitis:strategy=fs",
    "sophgo_bm1688:strategy=Transformer",
    "ncnn:winograd=off",
]


def model() -> onnx.ModelProto:
    """Conv, Relu, Conv, Relu, average, Gemm; the second Conv reads the watched tensor with the watched weight."""
    generator = np.random.default_rng(1)

    def constant(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first_conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c1"], [WATCHED], name="first_relu"),
        helper.make_node(
            "Conv", [WATCHED, "watched_weight", "b2"], ["c2"], name=READER, pads=[1, 1, 1, 1], kernel_shape=[3, 3]
        ),
        helper.make_node("Relu", ["c2"], ["r2"], name="second_relu"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], name="third_conv", kernel_shape=[1, 1]),
        helper.make_node("GlobalAveragePool", ["c3"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], name="gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "watched",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [
            constant("w1", 4, 3, 3, 3),
            constant("b1", 4),
            numpy_helper.from_array(WEIGHT, "watched_weight"),
            constant("b2", 4),
            constant("w3", 6, 4, 1, 1),
            constant("b3", 6),
            constant("w4", 5, 6),
            constant("b4", 5),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def samples() -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(2)
    return [{"x": generator.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(3)]


class Run:
    """A backend's plan with the watched tensors only observed, calibrated and refined."""

    def __init__(self, name: str) -> None:
        self.backend: Backend = get_backend(name)
        self.graph = Graph.from_model(model())
        self.graph.infer_shapes()
        run_passes(self.graph, self.backend.passes)
        self.graph.infer_shapes()
        self.placed = place(self.graph, self.backend)
        layers = [node for node in self.graph.nodes() if len(node.inputs) > 1 and node.inputs[1].name in self.placed]
        # Targets for language models quantize the Gemm at the end alone.
        self.node = next((node for node in layers if node.name == READER), layers[-1])
        self.data, self.weight = (str(tensor.name) for tensor in self.node.inputs[:2])
        self.values = self.graph.values(self.weight)
        self.observed = [name for name in (self.data, self.weight) if name in self.placed]
        found = calibrate(self.graph, watched(self.placed, self.observed), samples())
        self.plan = found.plan
        self.qparams = refine(self.graph, self.plan, found.qparams, self.backend).qparams


def watched(plan: QuantPlan, observed: list[str]) -> QuantPlan:
    """The plan with some tensors only observed, and without the biases that derive from them."""
    placements: dict[str, Placement] = {}
    for name, placement in plan.placements.items():
        if name in observed:
            placements[name] = replace(placement, observe_only=True, edges=())
        elif placement.derive is None or not set(placement.derive) & set(observed):
            placements[name] = placement
    return replace(plan, placements=placements)


def check_is_float(run: Run, written: Graph) -> None:
    """The layer reads its float weight, and what the node in front of it makes."""
    node = written.node(run.node.name)
    assert node.op == run.node.op
    np.testing.assert_array_equal(written.values(node.inputs[1]), run.values)
    if run.data in run.observed:
        maker, wanted = written.producer(node.inputs[0]), run.graph.producer(run.data)
        assert maker is not None
        assert wanted is not None
        assert (maker.op, maker.name) == (wanted.op, wanted.name)


@pytest.mark.parametrize("name", VARIANTS)
def test_files_keep_observed_tensors_float(name: str, tmp_path: Path) -> None:
    run = Run(name)
    assert run.weight in run.observed
    assert run.placed[run.weight].edges != ()
    emitted = emit(run.graph, run.plan, run.qparams, run.backend, tmp_path, "model")
    report = verify(Graph.from_model(model()), emitted.files[0], run.plan, run.backend, samples())
    assert not report.failures
    for path in tmp_path.iterdir():
        if path.suffix == ".onnx":
            check_is_float(run, Graph.load(path))
        elif "sophgo" not in name:
            text = path.read_text(encoding="utf-8")
            assert WATCHED not in text
            assert READER not in text
            assert run.weight not in text


@pytest.mark.parametrize("name", [name for name in VARIANTS if "sophgo" in name])
def test_tpu_mlir_gets_the_range_and_computes_around_it_in_float(name: str, tmp_path: Path) -> None:
    run = Run(name)
    emit(run.graph, run.plan, run.qparams, run.backend, tmp_path, "model")
    (modes_file,) = tmp_path.glob("*_q_table_*")
    modes = dict(line.split() for line in modes_file.read_text().splitlines() if not line.startswith("#"))
    in_float = {"F32", "F16", "BF16"}
    assert modes["c2_Conv"] in in_float
    if WATCHED in run.observed:
        assert modes["c1_Conv"] in in_float
        assert modes[f"{WATCHED}_Relu"] in in_float
        assert modes["y_Gemm"] not in in_float
        for table in tmp_path.glob("*cali_table*"):
            rows = [line.split()[0] for line in table.read_text().splitlines()]
            assert f"{WATCHED}_Relu" in rows
            assert not any(row.startswith(("c2_Conv_weight", "r2_Relu_weight")) for row in rows)


@pytest.mark.parametrize("name", ["nnie", "vitis", "ryzenai", "sophgo_bm1684x", "espdl", "tensorrt"])
def test_simulated_models_keep_observed_tensors_float(name: str) -> None:
    run = Run(name)
    simulated, _ = simulate(run.graph, run.plan, run.qparams, run.backend)
    check_is_float(run, simulated)


@pytest.mark.parametrize("name", VARIANTS)
def test_refinements_leave_observed_parameters_alone(name: str) -> None:
    run = Run(name)
    found = calibrate(run.graph, watched(run.placed, run.observed), samples()).qparams
    for tensor in run.observed:
        assert run.qparams[tensor] == found[tensor]
        assert run.qparams.provenance[tensor] == found.provenance[tensor]


def test_other_forms_of_weights_leave_observed_ones_alone() -> None:
    run = Run("onnxruntime")
    for change in (with_unsigned_weights, with_fitting_weights):
        plan, table = change(run.graph, run.plan, run.qparams)
        assert table[run.weight] == run.qparams[run.weight]
        assert plan[run.weight] == run.plan[run.weight]
        assert table["w3"] != run.qparams["w3"]


def test_a_plan_without_observed_tensors_is_used_as_it_is() -> None:
    run = Run("tensorrt")
    assert run.placed.active is run.placed
    assert plan_for("qdq", run.graph, run.placed) is run.placed


def test_a_group_goes_on_when_its_leader_is_only_observed() -> None:
    spec = QuantSpec("int8")
    edges = (Edge("n", 0),)
    plan = QuantPlan(
        "test",
        {
            "b": Placement("b", spec, "activation", "", edges, tie="a"),
            "a": Placement("a", spec, "activation", "", (), observe=("a", "b", "c"), observe_only=True),
            "c": Placement("c", spec, "activation", "", edges, tie="a"),
        },
    )
    kept = plan.active
    assert list(kept.placements) == ["b", "c"]
    assert (kept["b"].tie, kept["b"].observe) == (None, ("a", "b", "c"))
    assert (kept["c"].tie, kept["c"].observe) == ("b", ())


def test_a_float_bias_keeps_no_layer_from_integers() -> None:
    run = Run("espdl")
    plan = watched(run.placed, ["b3"])
    assert plan["b3"].observe_only
    view = plan_for("espdl_exponents", run.graph, plan)
    assert "b3" not in view
    assert "third_conv" in view.quantized


def test_a_model_in_which_everything_is_only_observed_is_the_float_model(tmp_path: Path) -> None:
    run = Run("tensorrt")
    plan = watched(run.placed, list(run.placed.placements))
    table: QParamsTable = calibrate(run.graph, plan, samples()).qparams
    emitted = emit(run.graph, plan, table, run.backend, tmp_path, "model")
    report = verify(Graph.from_model(model()), emitted.files[0], plan, run.backend, samples())
    assert not report.failures
    assert {node.op for node in Graph.load(emitted.files[0]).nodes()}.isdisjoint({"QuantizeLinear", "DequantizeLinear"})
