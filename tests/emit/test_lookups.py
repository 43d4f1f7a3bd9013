"""Tables of embeddings: rows are looked up as integers, and the file computes what onnxq.numerics computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxq.emit.qdq import to_qdq
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.targets import get_backend
from onnxq.types import Edge, Placement, QParamsTable, QuantPlan, QuantSpec
from onnxq.types.granularity import Granularity, PerChannel, PerTensor
from tests.zoo_graphs.net import Net

WORDS, WIDTH = 20, 16
TABLE = (np.random.default_rng(3).normal(0, 1, (WORDS, WIDTH)) * np.arange(1, WIDTH + 1)).astype(np.float32)
IDS = np.array([[0, 3, WORDS - 1], [-1, 7, 7]])


def spec_of(dtype: str, granularity: Granularity) -> QuantSpec:
    return QuantSpec(dtype, symmetric=dtype.startswith("int"), granularity=granularity)


def quantized(
    model: onnx.ModelProto, spec: QuantSpec, edges: tuple[Edge, ...] | None = None
) -> tuple[Graph, QParamsTable]:
    graph = Graph.from_model(model)
    graph.infer_shapes()
    axis = {PerTensor(): None, PerChannel(0): 1, PerChannel(1): 0}[spec.granularity]
    table = QParamsTable()
    table.put("table", qparams_from_range(TABLE.min(axis), TABLE.max(axis), spec), "test")
    plan = QuantPlan("test", {"table": Placement("table", spec, "weight", "test", edges=edges)})
    result, _ = to_qdq(graph, plan, table, get_backend("academic_nlp"))
    return result, table


def run(
    graph: Graph, optimize: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
) -> list[np.ndarray]:
    proto = graph.to_model()
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = optimize
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, {"ids": IDS})


def looking_up(axis: int = 0) -> onnx.ModelProto:
    net = Net("look_up", opset=13)
    ids = net.input("ids", ["batch", "words"], np.int64)
    found = net.node("Gather", net.floats(TABLE, "table"), ids, axis=axis, name="look_up", output="found")
    net.output(net.node("Relu", found, output="y"), None)
    return net.model()


@pytest.mark.parametrize("granularity", [PerTensor(), PerChannel(1)], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int7"])
def test_rows_are_dequantized_when_they_are_found(dtype: str, granularity: Granularity) -> None:
    written, table = quantized(looking_up(), spec_of(dtype, granularity))
    gather = written.node("look_up")
    assert written.is_constant(gather.inputs[0])
    assert written.dtype(gather.inputs[0]).kind in "iu"
    assert written.producer("found").op == ("DequantizeLinear" if granularity == PerTensor() else "Mul")
    assert {node.op for node in written.nodes()} >= {"DequantizeLinear"}
    expected = np.maximum(fake_quantize(TABLE, table["table"])[IDS], 0)
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        np.testing.assert_array_equal(run(written, level)[0], expected)


@pytest.mark.parametrize(
    ("dtype", "granularity", "axis"),
    [("int8", PerChannel(0), 0), ("int8", PerChannel(1), 1), ("int4", PerChannel(1), 0)],
    ids=["scale of a row", "columns", "two in a byte"],
)
def test_what_gather_cannot_look_up_is_dequantized_before(dtype: str, granularity: Granularity, axis: int) -> None:
    model = looking_up(axis)
    written, table = quantized(model, spec_of(dtype, granularity))
    assert written.producer(written.node("look_up").inputs[0]).op == "DequantizeLinear"
    ids = IDS if axis == 0 else IDS % WIDTH
    model = written.to_model()
    made = ort.InferenceSession(model.SerializeToString()).run(None, {"ids": ids})[0]
    np.testing.assert_array_equal(made, np.maximum(fake_quantize(TABLE, table["table"]).take(ids, axis), 0))


def test_other_readers_of_a_table_see_it_dequantized() -> None:
    net = Net("shared", opset=13)
    ids = net.input("ids", ["batch", "words"], np.int64)
    table = net.floats(TABLE, "table")
    first, second = (net.node("Gather", table, ids, name=name) for name in ("first", "second"))
    net.output(net.node("Add", first, second, output="y"), None)
    net.output(net.node("ReduceSum", table, net.ints(0), output="sums", keepdims=0), None)
    written, parameters = quantized(net.model(), spec_of("int8", PerChannel(1)))
    values = fake_quantize(TABLE, parameters["table"])
    y, sums = run(written)
    np.testing.assert_array_equal(y, 2 * values[IDS])
    np.testing.assert_allclose(sums, values.sum(0), rtol=1e-6)
    assert len([tensor for tensor in written.constants() if written.shape(tensor) == TABLE.shape]) == 1


def test_a_reader_that_stays_float_keeps_the_float_table() -> None:
    net = Net("shared", opset=13)
    ids = net.input("ids", ["batch", "words"], np.int64)
    table = net.floats(TABLE, "table")
    for name in ("quantized", "exact"):
        net.output(net.node("Gather", table, ids, name=name, output=f"{name}_rows"), None)
    written, parameters = quantized(net.model(), spec_of("int8", PerChannel(1)), (Edge("quantized", 0),))
    rows, exact = run(written)
    np.testing.assert_array_equal(rows, fake_quantize(TABLE, parameters["table"])[IDS])
    np.testing.assert_array_equal(exact, TABLE[IDS])


def test_a_look_up_in_a_body_is_dequantized_there() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[batch, words] ids) => (float[batch, words, 16] y)
    <bool always = {1}> {
        y = If (always) <
            then_branch = t () => (float[batch, words, 16] a) { a = Gather(table, ids) },
            else_branch = e () => (float[batch, words, 16] b) { z = Gather(table, ids) b = Neg(z) }
        >
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(TABLE, "table"))
    written, parameters = quantized(model, spec_of("uint8", PerChannel(1)))
    np.testing.assert_array_equal(run(written)[0], fake_quantize(TABLE, parameters["table"])[IDS])


@pytest.mark.parametrize("config", [{}, {"session.qdqisint8allowed": "1"}], ids=["here", "as on ARM"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_onnxruntime_makes_no_kernel_with_one_scale_of_many(dtype: str, config: dict[str, str]) -> None:
    """Sums of two tables, and products with one, whose neighbours have quantizers too."""
    net = Net("neighbours", opset=13)
    ids = net.input("ids", ["batch", "words"], np.int64)
    table = net.floats(TABLE, "table")
    words, positions = (net.node("Gather", table, ids) for _ in range(2))
    added = net.node("Add", words, positions, output="added")
    net.output(net.node("MatMul", added, net.floats(np.eye(WIDTH), "eye"), output="y"), None)
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    weight, plain = spec_of(dtype, PerChannel(1)), spec_of(dtype, PerTensor())
    specs = {"table": weight, "added": plain, "eye": plain}
    table_of = QParamsTable()
    table_of.put("table", qparams_from_range(TABLE.min(0), TABLE.max(0), weight), "test")
    table_of.put("added", qparams_from_range(2 * TABLE.min(), 2 * TABLE.max(), plain), "test")
    table_of.put("eye", qparams_from_range(np.float32(0), np.float32(1), plain), "test")
    roles = {"table": "weight", "added": "activation", "eye": "weight"}
    plan = QuantPlan("test", {name: Placement(name, spec, roles[name], "test") for name, spec in specs.items()})  # type: ignore[arg-type]
    written, _ = to_qdq(graph, plan, table_of, get_backend("onnxruntime"))
    options = ort.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    made = ort.InferenceSession(written.to_model().SerializeToString(), options).run(None, {"ids": IDS})[0]
    rows = fake_quantize(TABLE, table_of["table"])[IDS]
    step = float(table_of["added"].scale.max())
    np.testing.assert_allclose(made, 2 * rows, atol=1.01 * step)
