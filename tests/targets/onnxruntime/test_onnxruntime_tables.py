"""The target onnxruntime and tables of embeddings: int8, looked up as integers, and a quarter of the file."""

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.calibrate import calibrate
from onnxq.emit.saturation import with_fitting_weights, with_unsigned_weights
from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.session.session import open_session
from onnxq.types import PerChannel
from tests.flow.language_model import language_model, sentences
from tests.zoo_graphs.net import Net


def plan_of(model):
    prepared = prepare(model, "onnxruntime")
    return prepared.graph, place(prepared.graph, prepared.backend)


def with_table(*shape, kind=np.float32):
    net = Net("table")
    ids = net.input("ids", ["batch", "words"], np.int64)
    table = net.constant(net.normal(*shape).astype(kind), "table")
    net.output(net.node("Gather", table, ids, name="look_up"), None)
    return net.model()


def test_a_table_has_a_scale_for_each_column():
    _, plan = plan_of(with_table(50, 16))
    assert plan["table"].spec.dtype == "int8"
    assert plan["table"].spec.granularity == PerChannel(1)
    assert "look_up" in plan.quantized


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (with_table(50, 4), "4 numbers, too few for embeddings"),
        (with_table(50, 16, 2), "rows of a constant table"),
        (with_table(50, 16, kind=np.float64), "its table holds float64"),
    ],
    ids=["boxes", "three axes", "float64"],
)
def test_other_tables_stay_float_and_the_reason_is_told(model, reason):
    _, plan = plan_of(model)
    assert "table" not in plan
    assert reason in plan.left_float["look_up"]


def test_masks_that_are_looked_up_stay_exact():
    for value in (-np.inf, np.finfo(np.float32).min, np.nan):
        net = Net("mask")
        ids = net.input("ids", ["words"], np.int64)
        table = np.where(np.tri(32) > 0, 0, value).astype(np.float32)
        net.output(net.node("Gather", net.constant(table, "table"), ids, name="look_up"), None)
        _, plan = plan_of(net.model())
        assert "table" not in plan
        assert "mask values" in plan.left_float["look_up"]


@pytest.mark.parametrize("other", ["Slice", "MatMul", "Add", "output"])
def test_a_table_that_somebody_else_reads_is_not_stored_twice(other):
    net = Net("shared")
    ids = net.input("ids", ["words"], np.int64)
    table = net.floats(net.normal(50, 16), "table")
    net.output(net.node("Gather", table, ids, name="look_up", output="found"), None)
    if other == "Slice":
        net.output(net.node("Slice", table, net.ints(0), net.ints(4), output="y"), None)
    elif other == "MatMul":
        net.output(net.node("MatMul", table, net.linear(net.input("x", [16, 16]), 16, 16), output="y"), None)
    elif other == "Add":
        net.output(net.node("Add", table, net.input("x", [50, 16]), output="y"), None)
    else:
        net.output(table, [50, 16])
    _, plan = plan_of(net.model())
    assert "stored twice" in plan.left_float["look_up"]


def test_an_empty_table_stays_as_it_is():
    _, plan = plan_of(with_table(0, 16))
    assert "empty" in plan.left_float["look_up"]


def test_tables_may_have_other_bits_than_weights():
    settings = {"weight": {"dtype": "int4"}, "op": {"Gather": {"weight": {"dtype": "int8"}}}}
    plan = (
        open_session(language_model("apart"), backend="onnxruntime", data=sentences(2), config=settings)
        .calibrated()
        .state.plan
    )
    weights = {placement.tensor: placement.spec.dtype for placement in plan if placement.role == "weight"}
    assert weights.pop("embeddings") == "int8"
    assert set(weights.values()) == {"int4"}


def test_a_forced_gather_of_computed_values_is_quantized_on_both_sides():
    net = Net("forced")
    x = net.node("Softmax", net.linear(net.input("x", [4, 8]), 8, 8), axis=-1)
    net.output(net.node("Softmax", net.node("Gather", x, net.ints(0, 2), axis=0, name="choose"), axis=-1))
    data = [{"x": np.ones((4, 8), np.float32)}]
    ready = open_session(
        net.model(), backend="onnxruntime", data=data, config={"node": {"choose": {"force": True}}}
    ).calibrated()
    node = ready.state.graph.node("choose")
    assert node.inputs[0].name in ready.state.plan
    assert node.outputs[0].name in ready.state.plan


def test_a_gather_between_quantized_layers_still_moves_integers():
    net = Net("gather")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    chosen = net.node("Gather", x, net.ints(0, 2, 3), axis=1, name="choose")
    net.output(net.conv(chosen, 3, 4))
    graph, plan = plan_of(net.model())
    assert "choose" in plan.quantized
    assert plan.leader(graph.node("choose").outputs[0].name) == plan.leader(graph.node("choose").inputs[0].name)


@pytest.mark.parametrize("head", ["apart", "transposed", "gemm"])
def test_a_language_model_becomes_small_and_stays_accurate(head, tmp_path):
    model = language_model(head)
    result = onnxq.quantize(model, backend="onnxruntime", data=sentences(8), out=tmp_path, config={"effort": 0})
    assert result.report["sqnr_db"]["logits"] > 28
    written = onnx.load(tmp_path / "model.onnx")
    table = next(
        tensor for tensor in written.graph.initializer if "embeddings" in tensor.name and len(tensor.dims) == 2
    )
    assert table.data_type == onnx.TensorProto.INT8
    float_tables = [t.name for t in written.graph.initializer if "embeddings" in t.name and len(t.raw_data) > 4 * 320]
    assert not [name for name in float_tables if not name.endswith("_quantized")]
    assert (tmp_path / "model.onnx").stat().st_size < len(model.SerializeToString()) / (2 if head == "gemm" else 2.5)


def test_a_table_may_stay_float_by_request(tmp_path):
    result = onnxq.quantize(
        language_model("apart"),
        backend="onnxruntime",
        data=sentences(4),
        out=tmp_path,
        config={"effort": 0, "skip": ["op:Gather"]},
    )
    assert result.report["sqnr_db"]["logits"] > 28
    written = onnx.load(tmp_path / "model.onnx")
    (table,) = [tensor for tensor in written.graph.initializer if tensor.name == "embeddings"]
    assert table.data_type == onnx.TensorProto.FLOAT


def test_weights_for_kernels_that_saturate_leave_tables_as_they_are():
    prepared = prepare(language_model("apart"), "onnxruntime")
    plan = place(prepared.graph, prepared.backend)
    found = calibrate(prepared.graph, plan, sentences(2))
    for change in (with_fitting_weights, with_unsigned_weights):
        other, table = change(prepared.graph, found.plan, found.qparams)
        assert other["embeddings"].spec == plan["embeddings"].spec
        assert table["embeddings"] == found.qparams["embeddings"]
        weights = [placement.tensor for placement in plan if placement.role == "weight"]
        assert any(table[name] != found.qparams[name] for name in weights)
