"""FakeQuantize models say the same grids as the parameters, and compute what the Q/DQ model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxq.calibrate import calibrate
from onnxq.emit import EMITTERS, EmitRequest
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.passes import run_passes
from onnxq.place import place
from onnxq.runtime import input_infos, open_dataset
from onnxq.targets import get_backend
from onnxq.targets.openvino.fake_quantize import DOMAIN, check_fake_quantize, fake_grid
from onnxq.types import Backend, PerBlock, PerChannel, QParams, QParamsTable, QuantPlan, QuantSpec
from tests.formats.tied_layers import BETWEEN, tied_layers
from tests.formats.written import write_model
from tests.golden_graphs import GOLDEN, Samples

FILE = "model_deploy_model.onnx"


def formula(x: np.ndarray, low: np.ndarray, high: np.ndarray, levels: int) -> np.ndarray:
    """FakeQuantize as OpenVINO documents it, with the output range of the input."""
    inside = np.rint((x - low) / (high - low) * (levels - 1)) / (levels - 1) * (high - low) + low
    return np.where(x <= low, low, np.where(x > high, high, inside))


class FakeQuantize(OpRun):
    op_domain = DOMAIN

    def _run(self, x: Any, low: Any, high: Any, _low: Any, _high: Any, levels: int | None = None) -> tuple[Any]:
        assert levels is not None
        return (formula(x.astype(np.float64), low.astype(np.float64), high.astype(np.float64), levels).astype(x.dtype),)


FORMATS = {
    "int8": QuantSpec("int8"),
    "narrow int8": QuantSpec("int8", narrow_range=True),
    "uint8": QuantSpec("uint8"),
    "asymmetric uint8": QuantSpec("uint8", symmetric=False),
    "int7": QuantSpec("int7"),
    "narrow int7": QuantSpec("int7", narrow_range=True),
    "int4": QuantSpec("int4"),
    "channels first": QuantSpec("int8", granularity=PerChannel(0)),
    "channels second": QuantSpec("int7", granularity=PerChannel(1)),
    "channels last": QuantSpec("uint8", symmetric=False, granularity=PerChannel(-1)),
}


@pytest.mark.parametrize("spec", FORMATS.values(), ids=FORMATS)
def test_a_grid_holds_the_values_of_the_format(spec: QuantSpec) -> None:
    values = np.random.default_rng(1).normal(0, 1, (4, 5, 3)).astype(np.float32)
    if not spec.signed and spec.symmetric:
        values = np.abs(values)
    axis = spec.granularity.axis % 3 if isinstance(spec.granularity, PerChannel) else None
    others = tuple(i for i in range(3) if i != axis) if axis is not None else None
    parameters = qparams_from_range(values.min(others), values.max(others), spec)
    grid = fake_grid("x", parameters, 3)
    wanted = fake_quantize(values, parameters)  # inside the range: a wider grid with the same step changes nothing
    made = formula(values.astype(np.float64), grid.low.astype(np.float64), grid.high.astype(np.float64), grid.levels)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "levels", "codes"),
    [
        (QuantSpec("int7"), 256, (-128, 127)),
        (QuantSpec("int7", narrow_range=True), 255, (-127, 127)),
        (QuantSpec("int8"), 256, (-128, 127)),
        (QuantSpec("int8", narrow_range=True), 255, (-127, 127)),
        (QuantSpec("uint8"), 256, (0, 255)),
    ],
)
def test_levels_and_bounds(spec: QuantSpec, levels: int, codes: tuple[int, int]) -> None:
    grid = fake_grid("x", QParams(spec, np.float32(0.5), np.int32(0)), 4)
    assert grid.levels == levels
    assert grid.low.shape == grid.high.shape == (1,)
    assert (grid.low.item(), grid.high.item()) == (0.5 * codes[0], 0.5 * codes[1])


def test_bounds_of_a_weight_lie_on_its_channel_axis() -> None:
    scale = np.asarray([0.5, 0.25], np.float32)
    spec = QuantSpec("int8", granularity=PerChannel(0))
    assert fake_grid("w", QParams(spec, scale, np.zeros(2, np.int32)), 4).low.shape == (2, 1, 1, 1)
    assert fake_grid("w", QParams(spec.replace(granularity=PerChannel(1)), scale, [0, 0]), 2).low.shape == (1, 2)


@pytest.mark.parametrize(
    ("spec", "scale", "word"),
    [
        (QuantSpec("fp8_e4m3"), np.float32(1), "equal steps"),
        (QuantSpec("int8", granularity=PerBlock(0, 2)), np.ones((2, 3), np.float32), "per channel"),
    ],
)
def test_formats_that_the_node_cannot_say_are_refused(spec: QuantSpec, scale: np.ndarray, word: str) -> None:
    with pytest.raises(UnsupportedError, match="tensor 'weight_7'") as caught:
        fake_grid("weight_7", QParams(spec, scale, np.zeros(np.shape(scale), np.int32)), 2)
    assert word in str(caught.value)


def calibrated(name: str, target: Backend) -> tuple[Graph, QuantPlan, QParamsTable, Samples]:
    golden = GOLDEN[name]()
    graph = Graph.from_model(golden.model)
    graph.infer_shapes()
    run_passes(graph, list(target.passes))
    graph.infer_shapes()
    plan = place(graph, target)
    table, plan, _ = calibrate(graph, plan, dataset=open_dataset(golden.samples, input_infos(graph)))
    return graph, plan, table, golden.samples


def with_steps_of_a_tenth(graph: Graph, target: Backend) -> tuple[QuantPlan, QParamsTable]:
    """A plan with the scale 0.1 for everything; weights have two channels."""
    graph.infer_shapes()
    plan, table = place(graph, target), QParamsTable()
    for placement in plan:
        size = 2 if placement.role == "weight" else ()
        table.put(placement.tensor, QParams(placement.spec, np.full(size, 0.1), np.zeros(size, np.int32)), "test")
    return plan, table


@pytest.mark.parametrize(
    "backend", ["openvino", "openvino:weights=int8,academic=yes", "openvino:activations=asymmetric"]
)
@pytest.mark.parametrize("name", ["residual", "concat", "transformer", "detector", "if_body"])
def test_the_model_computes_what_the_qdq_model_computes(name: str, backend: str, tmp_path: Path) -> None:
    target = get_backend(backend)
    graph, plan, table, samples = calibrated(name, target)
    paths = [
        EMITTERS.get(kind)(EmitRequest(graph, plan, table, target, tmp_path, "model")).files[0]
        for kind in target.emitters
    ]
    assert [path.name for path in paths] == ["model.onnx", FILE]
    assert list(check_fake_quantize(EmitRequest(graph, plan, table, target, tmp_path, "model"))) == []
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # int8 kernels may saturate
    session = ort.InferenceSession(str(paths[0]), options)
    mine = ReferenceEvaluator(onnx.load(paths[1]), new_ops=[FakeQuantize])
    for sample in samples[:2]:
        for made, wanted in zip(mine.run(None, sample), session.run(None, sample), strict=True):
            noise = np.sum((made.astype(np.float64) - wanted) ** 2)
            # Sums in another order may put a value on the neighbouring step of the next quantizer.
            assert 10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / max(noise, 1e-30)) > 40


def test_what_moves_values_has_one_node_and_not_two(tmp_path: Path) -> None:
    target = get_backend("openvino")
    graph, plan, table, _ = calibrated("concat", target)
    (path,) = EMITTERS.get("fake_quantize")(EmitRequest(graph, plan, table, target, tmp_path, "model")).files
    model = onnx.load(path)
    makers = {output: node for node in model.graph.node for output in node.output}
    (pool,) = [node for node in model.graph.node if node.op_type == "MaxPool"]
    assert makers[pool.input[0]].op_type == "FakeQuantize"
    readers = {node.op_type for node in model.graph.node if pool.output[0] in node.input}
    assert readers == {"Conv", "Concat"}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("backend", ["openvino", "openvino:academic=yes"])
def test_what_is_computed_has_a_node_of_its_own_though_it_shares_the_scale(
    backend: str, between: str, tmp_path: Path
) -> None:
    model, samples = tied_layers(between)
    written = write_model(model, samples, backend, tmp_path)
    graph, plan = written.graph, written.plan
    assert plan.leader("y") == plan.leader("x"), "this graph is no test without a tie"
    makers = {output: node for node in onnx.load(tmp_path / FILE).graph.node for output in node.output}
    layers = [use.node for use in graph.consumers("y") if use.node.op == "Conv"]
    assert layers
    for layer in layers:
        read = next(node for node in makers.values() if node.name == layer.name).input[0]
        assert (makers[read].op_type, makers[read].input[0]) == ("FakeQuantize", "y")
    assert written.problems() == []


def without_node_of_y(model: onnx.ModelProto) -> None:
    """As if a Conv only moved the values of x, which lie on the grid of y."""
    (node,) = [item for item in model.graph.node if item.op_type == "FakeQuantize" and item.input[0] == "y"]
    for reader in model.graph.node:
        for port, read in enumerate(reader.input):
            if read == node.output[0]:
                reader.input[port] = "y"
    model.graph.node.remove(node)


def test_reading_back_sees_through_moves_only(tmp_path: Path) -> None:
    written = write_model(*tied_layers(), "openvino:academic=yes", tmp_path)
    tampered(tmp_path / FILE, without_node_of_y)
    problems = written.problems()
    assert problems
    assert all("tensor 'y' has no FakeQuantize" in problem for problem in problems)


def concat_of(*, signed: bool) -> onnx.ModelProto:
    kind = "Identity" if signed else "Relu"
    nodes = [
        helper.make_node(kind, ["x"], ["a"], name="a"),
        helper.make_node("Concat", ["a", "a"], ["c"], name="concat", axis=1),
        helper.make_node("Conv", ["c", "w"], ["y"], name="conv"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 3, 3]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.ones((2, 4, 1, 1), np.float32), "w")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("signed", [True, False])
def test_a_note_says_where_openvino_misreads_the_other_file(signed: bool, tmp_path: Path) -> None:
    target = get_backend("openvino")
    graph = Graph.from_model(concat_of(signed=signed))
    plan, table = with_steps_of_a_tenth(graph, target)
    notes = EMITTERS.get("fake_quantize")(EmitRequest(graph, plan, table, target, tmp_path, "model")).notes
    assert len(notes) == int(signed)
    assert all("'c' is int8 behind a Concat" in note and FILE in note for note in notes)


def test_weights_stay_inside_their_seven_bits_on_the_wider_grid(tmp_path: Path) -> None:
    target = get_backend("openvino")
    graph, plan, table, _ = calibrated("residual", target)
    weight = next(placement.tensor for placement in plan if placement.role == "weight")
    spec, scale, zero_point = table[weight].spec, table[weight].scale, table[weight].zero_point
    table.entries[weight] = QParams(spec, scale / 2, zero_point)  # a search that cuts the tails off does this
    (path,) = EMITTERS.get("fake_quantize")(EmitRequest(graph, plan, table, target, tmp_path, "model")).files
    held = {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}[weight]
    codes = np.rint(held / (scale / 2).reshape(-1, 1, 1, 1))
    assert (codes.min(), codes.max()) == (-64, 63)


def test_integers_that_were_fixed_are_what_the_node_rounds_to(tmp_path: Path) -> None:
    target = get_backend("openvino")
    graph, plan, table, _ = calibrated("residual", target)
    weight = next(placement.tensor for placement in plan if placement.role == "weight")
    codes = np.random.default_rng(2).integers(-64, 64, graph.values(weight).shape)
    table.integer_weights[weight] = codes
    (path,) = EMITTERS.get("fake_quantize")(EmitRequest(graph, plan, table, target, tmp_path, "model")).files
    held = {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}[weight]
    np.testing.assert_array_equal(np.rint(held / table[weight].scale.reshape(-1, 1, 1, 1)), codes)


def tampered(path: Path, change: Any) -> None:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)


def other_levels(model: onnx.ModelProto) -> None:
    node = next(item for item in model.graph.node if item.op_type == "FakeQuantize")
    node.attribute[0].i = 255


def other_bound(model: onnx.ModelProto) -> None:
    index, held = next((i, t) for i, t in enumerate(model.graph.initializer) if t.name.startswith("output_max_"))
    values = numpy_helper.to_array(held) * np.float32(1.001)
    model.graph.initializer[index].CopyFrom(numpy_helper.from_array(values, held.name))


def other_source(model: onnx.ModelProto) -> None:
    """The first two nodes on constants exchange what they read."""
    held = {item.name for item in model.graph.initializer}
    one, other = [n for n in model.graph.node if n.op_type == "FakeQuantize" and n.input[0] in held][:2]
    one.input[0], other.input[0] = other.input[0], one.input[0]


def one_less(model: onnx.ModelProto) -> None:
    node = next(item for item in model.graph.node if item.op_type == "FakeQuantize")
    for reader in model.graph.node:
        for port, read in enumerate(reader.input):
            if read == node.output[0]:
                reader.input[port] = node.input[0]
    model.graph.node.remove(node)


def one_more(model: onnx.ModelProto) -> None:
    node = next(item for item in model.graph.node if item.op_type == "FakeQuantize")
    model.graph.node.add().CopyFrom(node)
    model.graph.node[-1].name, model.graph.node[-1].output[0] = "another", "nobody_reads_it"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (other_levels, "levels"),
        (other_bound, "output_max_"),
        (other_source, "no FakeQuantize"),
        (one_less, "no FakeQuantize"),
        (one_more, "'another' that the plan does not have"),
    ],
)
def test_reading_back_notices_what_is_wrong(change: Any, word: str, tmp_path: Path) -> None:
    target = get_backend("openvino")
    graph, plan, table, _ = calibrated("if_body", target)
    (path,) = EMITTERS.get("fake_quantize")(EmitRequest(graph, plan, table, target, tmp_path, "model")).files
    tampered(path, change)
    problems = list(check_fake_quantize(EmitRequest(graph, plan, table, target, tmp_path, "model")))
    assert problems
    assert word in problems[0]


def test_a_quantized_output_keeps_its_name(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    weight = numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")
    shape = [1, 2, 3, 3]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    made = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:], [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    target = get_backend("openvino")
    target = target.replace(rules=tuple(rule for rule in target.rules if "Conv" not in rule.ops))
    rule = get_backend("openvino").rules[0]
    target = target.replace(rules=(type(rule)(("Conv",), weight=1, weight_axis=0, output=True), *target.rules))
    graph = Graph.from_model(made)
    plan, table = with_steps_of_a_tenth(graph, target)
    (path,) = EMITTERS.get("fake_quantize")(EmitRequest(graph, plan, table, target, tmp_path, "model")).files
    written = onnx.load(path)
    assert [output.name for output in written.graph.output] == ["y"]
    maker = next(item for item in written.graph.node if "y" in item.output)
    assert maker.op_type == "FakeQuantize"
    assert list(check_fake_quantize(EmitRequest(graph, plan, table, target, tmp_path, "model"))) == []
