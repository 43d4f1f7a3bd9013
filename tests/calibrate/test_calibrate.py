"""Calibration gives every placement the parameters its values, its ties and its input * weight call for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.calibrate import calibrate
from onnxq.errors import DataError, SpecError
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range, quantize, sqnr_db
from onnxq.runtime.collect import Engine
from onnxq.types import BiasOf, Edge, PerChannel, Placement, QuantPlan, QuantSpec
from onnxq.types.note import Note

UINT8 = QuantSpec("uint8", symmetric=False)
INT8 = QuantSpec("int8")
CHANNELS = QuantSpec("int8", granularity=PerChannel(0))
INT32 = QuantSpec("int32")


def info(name: str, shape: list[int | str | None], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def conv_graph(weight: np.ndarray, bias: np.ndarray) -> Graph:
    """y = relu(conv(x)), 1x1."""
    dtype = helper.np_dtype_to_tensor_dtype(weight.dtype)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [info("x", ["N", weight.shape[1], 4, 4], dtype)],
        [info("y", ["N", weight.shape[0], 4, 4], dtype)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    built = Graph.from_model(model)
    built.infer_shapes()
    return built


def conv_plan(weight: QuantSpec = CHANNELS, activation: QuantSpec = UINT8, observer: str = "minmax") -> QuantPlan:
    placements = [
        Placement(
            "x", activation, "activation", "input of conv", (Edge("conv", 0),), observe=("x",), observer=observer
        ),
        Placement("w", weight, "weight", "weight of conv", (Edge("conv", 1),)),
        Placement("b", INT32, "bias", "bias of conv", (Edge("conv", 2),), derive=BiasOf("x", "w")),
    ]
    return QuantPlan("test", {p.tensor: p for p in placements}, {"conv": "conv"}, {}, {"relu": "no rule"})


def weights(channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(channels, 2, 1, 1)).astype(np.float32)


def data(count: int = 4, dtype: type = np.float32) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(5)
    return [{"x": generator.normal(size=(1, 2, 4, 4)).astype(dtype)} for _ in range(count)]


def test_weights_activations_and_biases_get_their_parameters() -> None:
    weight, feeds = weights(), data()
    table, plan, report = calibrate(conv_graph(weight, np.array([1, -2, 3], np.float32)), conv_plan(), feeds)
    everything = np.concatenate([feed["x"] for feed in feeds])
    assert table["x"] == qparams_from_range(everything.min(), everything.max(), UINT8)
    np.testing.assert_array_equal(table["w"].scale, np.abs(weight).max(axis=(1, 2, 3)) / np.float32(127))
    np.testing.assert_array_equal(table["b"].scale, table["x"].scale * table["w"].scale)
    assert table["b"].spec.granularity == PerChannel(0)
    assert not table["b"].zero_point.any()
    assert list(table) == ["x", "w", "b"]
    assert (report.samples, report.weights, report.activations, report.biases) == (4, 1, 1, 1)
    assert report.warnings == ()
    assert plan == conv_plan()


def test_a_weight_with_one_scale_gives_its_bias_one_scale() -> None:
    table, _, _ = calibrate(conv_graph(weights(), np.ones(3, np.float32)), conv_plan(INT8), data())
    assert table["b"].scale.shape == ()
    assert table["b"].scale == table["x"].scale * table["w"].scale


def test_a_bias_too_large_for_tiny_weights_widens_their_scale_and_stays_accurate() -> None:
    weight = weights()
    weight[1] *= 1e-9
    bias = np.array([0.5, 5.0, -0.5], np.float32)
    table, _, report = calibrate(conv_graph(weight, bias), conv_plan(), data())
    assert report.widened["w"] > 10
    (note,) = [line for line in report.notes if isinstance(line, Note) and line.kind == "dead_channel"]
    assert note.startswith("weight 'w': scale enlarged")
    assert "Channel 1 is nearly dead: its largest weight is" in note
    assert "beside a bias of 5" in note
    assert "all its weights become 0" in note
    assert "--skip" in note
    plain = np.abs(weight).max(axis=(1, 2, 3)) / np.float32(127)
    np.testing.assert_array_equal(table["w"].scale[[0, 2]], plain[[0, 2]])
    assert table["w"].scale[1] > plain[1]
    np.testing.assert_array_equal(table["b"].scale, table["x"].scale * table["w"].scale)
    stored = quantize(bias, table["b"]).astype(np.float64)
    assert np.abs(stored).max() < 2**31 - 1
    assert sqnr_db(bias, fake_quantize(bias, table["b"])) > 60


def test_a_weight_shared_by_two_biases_is_wide_enough_for_both() -> None:
    weight = np.full((1, 2, 1, 1), 1e-9, np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b1"], ["y1"], name="one"),
        helper.make_node("Conv", ["x", "w", "b2"], ["y2"], name="two"),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [info("x", [1, 2, 4, 4])],
        [info("y1", [1, 1, 4, 4]), info("y2", [1, 1, 4, 4])],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.array([5], np.float32), "b1"),
            numpy_helper.from_array(np.array([500], np.float32), "b2"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    placements = [
        Placement("x", UINT8, "activation", "input", observe=("x",)),
        Placement("w", CHANNELS, "weight", "weight"),
        Placement("b1", INT32, "bias", "bias", derive=BiasOf("x", "w")),
        Placement("b2", INT32, "bias", "bias", derive=BiasOf("x", "w")),
    ]
    table, _, report = calibrate(Graph.from_model(model), QuantPlan("t", {p.tensor: p for p in placements}), data())
    assert table["b1"] == table["b2"]
    for name, value in (("b1", 5), ("b2", 500)):
        np.testing.assert_allclose(fake_quantize(np.array([value], np.float32), table[name]), value, rtol=1e-6)
    before = 1e-9 / 127
    np.testing.assert_allclose(report.widened["w"], float(table["w"].scale[0]) / before, rtol=1e-5)


def tied_plan(second: QuantSpec = UINT8, observer: str = "minmax") -> QuantPlan:
    placements = [
        Placement("x", UINT8, "activation", "leader", observe=("x", "c"), observer=observer),
        Placement("c", second, "activation", "member", tie="x"),
    ]
    return QuantPlan("test", {p.tensor: p for p in placements}, {"conv": "conv", "relu": "same scale"})


@pytest.mark.parametrize("observer", ["minmax", "ema_minmax", "percentile:100"])
def test_tied_tensors_share_one_range_that_covers_both(observer: str) -> None:
    graph = conv_graph(weights() * 10, np.zeros(3, np.float32))
    table, _, report = calibrate(graph, tied_plan(observer=observer), data(1))
    separate = QuantPlan(
        "test", {n: Placement(n, UINT8, "activation", "", observe=(n,), observer=observer) for n in "xc"}
    )
    apart, _, _ = calibrate(graph, separate, data(1))
    assert table["x"] == table["c"]
    lows = [-float(q.scale) * int(q.zero_point) for q in (apart["x"], apart["c"])]
    highs = [float(q.scale) * (255 - int(q.zero_point)) for q in (apart["x"], apart["c"])]
    shared = table["x"]
    step = float(shared.scale)
    assert -step * int(shared.zero_point) == pytest.approx(min(lows), abs=step)
    assert step * (255 - int(shared.zero_point)) == pytest.approx(max(highs), abs=step)
    assert report.activations == 1
    assert table.provenance["c"] == "tied to x"


def test_tied_tensors_of_different_formats_are_refused() -> None:
    with pytest.raises(SpecError, match=r"'c' \(int8.*is tied to 'x'.*one number format"):
        calibrate(conv_graph(weights(), np.zeros(3, np.float32)), tied_plan(INT8), data())


def test_a_chain_of_ties_is_refused() -> None:
    plan = tied_plan()
    plan.placements["y"] = Placement("y", UINT8, "activation", "member", tie="c")
    with pytest.raises(SpecError, match="itself tied"):
        calibrate(conv_graph(weights(), np.zeros(3, np.float32)), plan, data())


def test_the_result_does_not_depend_on_batches_or_passes() -> None:
    graph = conv_graph(weights(), np.ones(3, np.float32))
    plan = conv_plan(observer="mse")
    plan.placements["y"] = Placement("y", UINT8, "activation", "output", observe=("y",), observer="percentile:99.9")
    singles = data(6)
    batch = [{"x": np.concatenate([feed["x"] for feed in singles])}]
    one, _, _ = calibrate(graph, plan, singles)
    two, _, _ = calibrate(graph, plan, batch)
    three, _, report = calibrate(graph, plan, singles, engine=Engine(memory_limit=1))
    assert one.entries == two.entries == three.entries
    assert report.passes == 2


def test_float16_models_get_scales_that_float16_holds() -> None:
    weight, bias = weights().astype(np.float16), np.array([1, 2, 3], np.float16)
    table, _, _ = calibrate(conv_graph(weight, bias), conv_plan(), data(dtype=np.float16))
    for name in ("x", "w", "b"):
        scale = table[name].scale
        np.testing.assert_array_equal(scale.astype(np.float16).astype(np.float32), scale)
    exact = np.abs(weight.astype(np.float32)).max(axis=(1, 2, 3)) / 127
    assert np.all(table["w"].scale >= exact)
    assert np.all(table["w"].scale <= exact * 1.001)


def test_nan_constant_and_zero_activations_are_reported() -> None:
    feeds = data(3)
    feeds[1]["x"][0, 0, 0, 0] = np.nan
    plan = conv_plan()
    plan.placements["y"] = Placement("y", UINT8, "activation", "output", observe=("y",))
    zero = np.zeros((3, 2, 1, 1), np.float32)
    _, _, report = calibrate(conv_graph(zero, np.full(3, -1, np.float32)), plan, feeds)
    (first, *_) = report.warnings
    assert first.startswith("input 'x': 1 NaN/inf value, first in sample 1, and 1 other tensor has some too")
    assert "tensor 'y': all values are zero in the calibration data" in report.warnings
    assert report.to_json()["samples"] == 3


def test_a_plan_that_observes_nothing_needs_no_data() -> None:
    plan = conv_plan()
    only = QuantPlan("test", {"w": plan["w"]})
    table, _, report = calibrate(conv_graph(weights(), np.ones(3, np.float32)), only, None)
    assert list(table) == ["w"]
    assert report.samples == 0
    with pytest.raises(DataError, match="needs data"):
        calibrate(conv_graph(weights(), np.ones(3, np.float32)), plan, None)


def test_a_placement_without_a_source_of_its_range_is_refused() -> None:
    plan = QuantPlan("test", {"c": Placement("c", UINT8, "activation", "")})
    with pytest.raises(SpecError, match="'c' is not a constant and observes no tensor"):
        calibrate(conv_graph(weights(), np.ones(3, np.float32)), plan, data())


def test_a_bias_that_does_not_fit_its_weight_is_refused() -> None:
    along_inputs = QuantSpec("int8", granularity=PerChannel(1))
    with pytest.raises(SpecError, match=r"bias 'b' has 3 channels.*2 scales"):
        calibrate(conv_graph(weights(), np.ones(3, np.float32)), conv_plan(along_inputs), data())


def test_nan_is_named_where_it_comes_from_and_once() -> None:
    """The order of the graph counts, not that of the plan; tensors behind it are only counted."""
    feeds = data(3)
    feeds[2]["x"][0, 0, 0, 0] = -1.0
    nodes = [
        helper.make_node("Sqrt", ["x"], ["root"], name="square_root"),
        helper.make_node("Neg", ["root"], ["minus"]),
        helper.make_node("Abs", ["minus"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "test", [info("x", [1, 2, 4, 4])], [info("y", [1, 2, 4, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    for feed in feeds[:2]:
        feed["x"] = np.abs(feed["x"])
    feeds[2]["x"][0, 1:] = 1.0
    names = ("y", "minus", "root", "x")
    plan = QuantPlan("t", {name: Placement(name, UINT8, "activation", "", observe=(name,)) for name in names})
    _, _, report = calibrate(Graph.from_model(model), plan, feeds)
    (warning,) = [line for line in report.warnings if isinstance(line, Note) and line.kind == "nonfinite"]
    assert warning.startswith("tensor 'root' of node 'square_root' (Sqrt): ")
    assert "first in sample 2, and 2 other tensors have some too" in warning
