"""The target onnxruntime and tables of embeddings: int8, looked up as integers, and a quarter of the file."""

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.calibrate import calibrate
from onnxq.emit.saturation import with_seven_bit_weights, with_unsigned_weights
from onnxq.place import place
from onnxq.prepare import prepare
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


def test_a_gather_between_quantized_layers_still_moves_integers():
    net = Net("gather")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    chosen = net.node("Gather", x, net.ints(0, 2, 3), axis=1, name="choose")
    net.output(net.conv(chosen, 3, 4))
    graph, plan = plan_of(net.model())
    assert "choose" in plan.quantized
    assert plan.leader(graph.node("choose").outputs[0].name) == plan.leader(graph.node("choose").inputs[0].name)


@pytest.mark.parametrize("head", ["apart", "transposed", "gemm"])
def test_a_language_model_shrinks_to_a_third_and_stays_accurate(head, tmp_path):
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


def test_seven_bits_for_kernels_that_saturate_leave_tables_at_eight():
    prepared = prepare(language_model("apart"), "onnxruntime")
    plan = place(prepared.graph, prepared.backend)
    found = calibrate(prepared.graph, plan, sentences(2))
    for change in (with_seven_bit_weights, with_unsigned_weights):
        other, _ = change(prepared.graph, found.plan, found.qparams)
        assert other["embeddings"].spec == plan["embeddings"].spec
        assert any(other[placement.tensor].spec != placement.spec for placement in plan if placement.role == "weight")
