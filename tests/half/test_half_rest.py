"""rest=fp16 and rest=bf16: what is not quantized computes in half precision, except where the data shows a loss."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper

import onnxq
from onnxq.errors import ConfigError
from onnxq.types.rest import RestPlan
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net

HALVES = {
    "fp16": (np.dtype(np.float16), TensorProto.FLOAT16),
    "bf16": (np.dtype(ml_dtypes.bfloat16), TensorProto.BFLOAT16),
}


def quantized(model: onnx.ModelProto, samples: object, backend: str, folder: Path, **config: object) -> onnxq.Result:
    return onnxq.quantize(model, backend=backend, data=samples, out=folder, config={"effort": 0, **config})


def loaded(result: onnxq.Result) -> onnx.ModelProto:
    model = onnx.load(result.model)
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    graph = model.graph
    found = {info.name: info.type.tensor_type.elem_type for info in (*graph.input, *graph.value_info, *graph.output)}
    return found | {item.name: item.data_type for item in graph.initializer}


def small_net() -> Net:
    net = Net("half")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 16)
    x = net.node("Relu", x, name="relu")
    x = net.node("Sigmoid", net.conv(x, 16, 16), name="gate")
    x = net.node("GlobalAveragePool", x, name="pool")
    x = net.node("Flatten", x)
    net.output(net.node("Gemm", x, net.weight(4, 16), net.bias(4), output="y", name="head", transB=1), [1, 4])
    return net


def feeds(count: int = 8, scale: float = 1.0, shape: tuple[int, ...] = (1, 3, 8, 8)) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": (rng.normal(size=shape) * scale).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("half", HALVES)
def test_scales_and_results_are_half_and_inputs_and_outputs_keep_their_types(half: str, tmp_path: Path) -> None:
    result = quantized(small_net().model(), feeds(), f"tensorrt:rest={half}", tmp_path)
    model, (dtype, element) = loaded(result), HALVES[half]
    types = types_of(model)
    assert types["x"] == types["y"] == TensorProto.FLOAT
    made = {node.op_type: types[node.output[0]] for node in model.graph.node}
    assert {made[op] for op in ("Conv", "Relu", "Sigmoid", "GlobalAveragePool", "DequantizeLinear")} == {element}
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            real = node.input[0] if node.op_type == "QuantizeLinear" else node.output[0]
            assert types[node.input[1]] == types[real]
    # One Cast: nothing stands between a quantizer and what it quantizes, only in front of the float32 output.
    assert [node.output[0] for node in model.graph.node if node.op_type == "Cast"] == ["y"]
    assert result.plan.rest is not None
    assert not result.plan.rest.float32
    assert dtype.itemsize == 2


@pytest.mark.parametrize("half", HALVES)
def test_weights_are_rounded_without_moving_to_another_step(half: str, tmp_path: Path) -> None:
    plain = quantized(small_net().model(), feeds(), "tensorrt", tmp_path / "plain")
    result = quantized(small_net().model(), feeds(), f"tensorrt:rest={half}", tmp_path / "half")
    model = loaded(result)
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    checked = 0
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] not in constants:
            continue
        name = node.input[0].removesuffix(f"_{HALVES[half][0].name}")
        weight, scale = (constants[part].astype(np.float32) for part in node.input[:2])
        shape = (-1, *([1] * (weight.ndim - 1)))
        held = result.qparams[name]
        assert np.array_equal(scale, held.scale)  # qparams.json says what the file does
        assert np.abs(scale / plain.qparams[name].scale - 1).max() < 2.0**-8
        source = next(numpy_helper.to_array(i) for i in small_net().model().graph.initializer if i.name == name)
        wanted = np.clip(np.rint(source / scale.reshape(shape)), -128, 127)
        assert np.array_equal(np.rint(weight / scale.reshape(shape)), wanted)
        checked += 1
    assert checked == 3


@pytest.mark.parametrize("backend", ["tensorrt:rest=fp16,tables=no", "onnxruntime:rest=fp16", "openvino:rest=fp16"])
@pytest.mark.parametrize("graph", ["residual", "transformer"])
def test_half_precision_costs_next_to_nothing(graph: str, backend: str, tmp_path: Path) -> None:
    golden = GOLDEN[graph]()
    plain = quantized(golden.model, golden.samples, backend.replace("fp16", "fp32"), tmp_path / "plain")
    half = quantized(golden.model, golden.samples, backend, tmp_path / "half")
    for name, value in plain.report["sqnr_db"].items():
        assert half.report["sqnr_db"][name] > value - 1.5


def run(source: str | bytes, feed: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(["y"], feed)[0]


@pytest.mark.parametrize("half", HALVES)
def test_simulation_file_and_what_is_checked_are_the_same_numbers(half: str, tmp_path: Path) -> None:
    """onnxruntime computes float16 in float32 on most processors, without rounding in between; bfloat16 not at all.

    Sums have another order in other graphs, so that a rounding may go the other way: two units in the last place.
    """
    from onnxq.emit.qdq import to_qdq
    from onnxq.emit.simulate import simulate
    from onnxq.session.prepare import prepare

    model = small_net().model()
    result = quantized(model, feeds(), f"tensorrt:rest={half}", tmp_path)
    prepared = prepare(model, f"tensorrt:rest={half}")
    parts = (prepared.graph, result.plan, result.qparams, prepared.backend)
    simulated, checked = simulate(*parts)[0], to_qdq(*parts, rounded=True)[0]
    unit = {"fp16": 2.0**-10, "bf16": 2.0**-7}[half]
    for feed in feeds(4, 2.0):
        mine, theirs = (run(graph.to_model().SerializeToString(), feed) for graph in (simulated, checked))
        assert np.array_equal(mine, mine.astype(HALVES[half][0]).astype(np.float32))
        assert np.abs(mine - theirs).max() <= 2 * unit * np.abs(mine).max()
        if half == "fp16":
            assert np.abs(run(str(result.model), feed) - theirs).max() <= 0.02 * np.abs(mine).max()


def test_values_near_the_largest_stay_float32_with_the_reason(tmp_path: Path) -> None:
    net = Net("range")
    x = net.node("Mul", net.input("x", [1, 16]), net.floats(300.0), name="large")
    x = net.node("Mul", x, x, name="squares")
    x = net.node("Div", x, net.floats(90000.0), name="small_again")
    net.output(net.node("Gemm", net.node("Relu", x), net.weight(4, 16), output="y", transB=1), [1, 4])
    result = quantized(net.model(), feeds(shape=(1, 16)), "tensorrt:rest=fp16", tmp_path)
    rest = result.plan.rest
    assert rest is not None
    assert {name: rest.float32[name].code for name in ("squares", "small_again")} == {
        "squares": "half_range",
        "small_again": "half_range",
    }
    assert "float16 ends at 65504" in rest.float32["squares"]
    assert result.report["rest"]["float32"].keys() == rest.float32.keys()
    wide = quantized(net.model(), feeds(shape=(1, 16)), "tensorrt:rest=bf16", tmp_path / "bf16").plan.rest
    assert wide is not None
    assert not {reason.code for reason in wide.float32.values()} & {"half_range"}


def test_a_lost_epsilon_a_long_sum_and_a_difference_of_large_numbers_stay_float32(tmp_path: Path) -> None:
    net = Net("loss")
    x = net.input("x", [1, 4096])
    away = net.node("Sub", net.node("Add", x, net.floats(1000.0), name="offset"), net.floats(1000.0), name="back")
    mean = net.node("ReduceMean", away, axes=[1], name="mean")
    safe = net.node("Add", net.node("Mul", mean, mean, name="square"), net.floats(1e-12), name="epsilon")
    y = net.node("Add", net.node("Sqrt", safe, name="root"), away, name="sum")
    net.output(net.node("Gemm", y, net.weight(4, 4096), output="y", transB=1), [1, 4])
    rest = quantized(net.model(), feeds(shape=(1, 4096)), "tensorrt:rest=fp16", tmp_path).plan.rest
    assert rest is not None
    codes = {name: rest.float32[name].code for name in ("mean", "epsilon", "back", "offset")}
    assert codes == {"mean": "half_sum", "epsilon": "half_loss", "back": "half_loss", "offset": "half_loss"}


def test_a_norm_with_one_lossy_part_is_float32_as_a_whole(tmp_path: Path) -> None:
    net = Net("norm")
    x = net.node("MatMul", net.input("x", [1, 8, 32]), net.weight(32, 32), name="first")
    centred = net.node("Sub", x, net.node("ReduceMean", x, axes=[-1]))
    variance = net.node("ReduceMean", net.node("Pow", centred, net.floats(2.0)), axes=[-1])
    root = net.node("Sqrt", net.node("Add", variance, net.floats(1e-12)))
    x = net.node("Add", net.node("Mul", net.node("Div", centred, root), net.weight(32)), net.weight(32))
    net.output(net.node("MatMul", x, net.weight(32, 32), output="y", name="last"), [1, 8, 32])
    result = quantized(net.model(), feeds(shape=(1, 8, 32)), "tensorrt:rest=fp16", tmp_path)
    rest = result.plan.rest
    assert rest is not None
    assert {"first", "last"} <= set(rest.half)
    norm = {node.name for node in net.model().graph.node} - {"first", "last"}
    assert norm <= set(rest.float32)
    casts = [node for node in loaded(result).graph.node if node.op_type == "Cast"]
    assert len(casts) == 2  # into the norm, and in front of the output; its own result goes into a quantizer


def test_nodes_that_the_configuration_keeps_are_float32(tmp_path: Path) -> None:
    config = {"keep_float32": ["gate", "op:GlobalAveragePool"]}
    result = quantized(small_net().model(), feeds(), "tensorrt:rest=fp16", tmp_path, **config)
    rest = result.plan.rest
    assert rest is not None
    assert {name: reason.code for name, reason in rest.float32.items()} == {"gate": "half_kept", "pool": "half_kept"}
    types = types_of(loaded(result))
    by_name = {node.name: node for node in onnx.load(result.model).graph.node}
    assert types[by_name["gate"].output[0]] == types[by_name["pool"].output[0]] == TensorProto.FLOAT
    with pytest.raises(ConfigError, match="gatte"):
        quantized(small_net().model(), feeds(), "tensorrt:rest=fp16", tmp_path / "x", keep_float32=["gatte"])


def test_a_quantizer_that_is_read_in_both_types_gives_both(tmp_path: Path) -> None:
    net = Net("both")
    x = net.node("Relu", net.conv(net.input("x", [1, 3, 8, 8]), 3, 8), name="shared")
    net.output(net.node("Conv", x, net.weight(4, 8, 1, 1), output="y", name="one"), [1, 4, 8, 8])
    net.output(net.node("Conv", x, net.weight(4, 8, 1, 1), output="z", name="two"), [1, 4, 8, 8])
    result = quantized(net.model(), feeds(), "tensorrt:rest=fp16", tmp_path, keep_float32=["two"])
    model = loaded(result)
    types = types_of(model)
    readers = {node.name: types[node.input[0]] for node in model.graph.node if node.name in ("one", "two")}
    assert readers == {"one": TensorProto.FLOAT16, "two": TensorProto.FLOAT}
    quantizers = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and "relu" in node.input[0]]
    assert len(quantizers) == 1  # one set of integers, dequantized twice


def test_integer_layers_of_onnxruntime_stay_as_they_are(tmp_path: Path) -> None:
    golden = GOLDEN["transformer"]()
    plain = quantized(golden.model, golden.samples, "onnxruntime", tmp_path / "plain")
    half = quantized(golden.model, golden.samples, "onnxruntime:rest=fp16", tmp_path / "half")
    assert half.plan.rest is not None
    assert half.plan.rest.half
    assert plain.report["kernels"]["integer"] == half.report["kernels"]["integer"]
    types = types_of(loaded(half))
    scales = {node.input[1] for node in onnx.load(half.model).graph.node if node.op_type.endswith("quantizeLinear")}
    assert {types[name] for name in scales} <= {TensorProto.FLOAT}


def test_other_ways_to_write_weights_are_checked_with_their_own_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processors whose kernels saturate try them; here each file is taken for one that needs it."""
    monkeypatch.setattr("onnxq.pipeline.saturating_kernels.sums_are_exact", lambda: False)
    monkeypatch.setattr("onnxq.pipeline.saturating_kernels.KERNEL_MARGIN_DB", 300.0)
    golden = GOLDEN["transformer"]()
    result = quantized(golden.model, golden.samples, "onnxruntime:rest=fp16", tmp_path)
    assert result.plan.rest is not None
    assert result.plan.rest.half
    assert all(placement.spec == result.qparams[placement.tensor].spec for placement in result.plan)


def test_a_model_of_half_precision_keeps_its_inputs_and_outputs(tmp_path: Path) -> None:
    net = Net("given", dtype=np.float16)
    x = net.node("Relu", net.conv(net.input("x", [1, 3, 8, 8]), 3, 8))
    net.output(net.node("Sigmoid", net.conv(x, 8, 4), output="y"), [1, 4, 8, 8])
    data = [{"x": feed["x"].astype(np.float16)} for feed in feeds()]
    result = quantized(net.model(), data, "tensorrt:rest=fp16", tmp_path)
    types = types_of(loaded(result))
    assert types["x"] == types["y"] == TensorProto.FLOAT16
    assert result.plan.rest is not None
    assert not result.plan.rest.float32


def test_bodies_compute_in_float32_and_read_what_they_need(tmp_path: Path) -> None:
    net = Net("bodies", opset=17)
    x = net.node("Sigmoid", net.conv(net.input("x", [1, 3, 8, 8]), 3, 8), name="outer")
    then, other = net.branch("then"), net.branch("other")
    then.output(then.node("Mul", x, then.floats(2.0)), [1, 8, 8, 8])
    other.output(other.node("Neg", x), [1, 8, 8, 8])
    flag = net.node("Greater", net.node("ReduceMax", net.input("s", [1]), keepdims=0), net.floats(0.0))
    chosen = net.node("If", flag, name="if", then_branch=then.graph(), else_branch=other.graph())
    net.output(net.node("Conv", chosen, net.weight(4, 8, 1, 1), output="y", name="last"), [1, 4, 8, 8])
    data = [{**feed, "s": np.float32([(-1) ** i])} for i, feed in enumerate(feeds())]
    result = quantized(net.model(), data, "tensorrt:rest=fp16", tmp_path)
    rest = result.plan.rest
    assert rest is not None
    assert rest.float32["if"].code == "control_flow"
    assert {"outer", "last"} <= set(rest.half)
    loaded(result)


def test_without_data_what_depends_on_ranges_stays_float32(tmp_path: Path) -> None:
    from onnxq.half import judge_rest
    from onnxq.session.prepare import prepare
    from onnxq.types import QParamsTable, QuantPlan
    from onnxq.types.rest import HalfRest

    net = Net("blind")
    x = net.node("Softmax", net.node("Relu", net.input("x", [1, 16]), name="relu"), name="softmax")
    net.output(net.node("Gemm", x, net.weight(4, 16), output="y", name="head", transB=1), [1, 4])
    graph = prepare(net.model(), "tensorrt:rest=fp16").graph
    rest = judge_rest(graph, QuantPlan("tensorrt"), QParamsTable(), HalfRest("float16", True), None)
    assert {name: reason.code for name, reason in rest.float32.items()} == {
        "softmax": "half_range",
        "relu": "half_island",
    }
    assert rest.half == ("head",)


def test_a_plan_file_holds_the_decision(tmp_path: Path) -> None:
    result = quantized(small_net().model(), feeds(), "tensorrt:rest=fp16", tmp_path, keep_float32=["gate"])
    rest = result.plan.rest
    assert rest is not None
    again = RestPlan.from_json(rest.to_json())
    assert (again.dtype, again.scales, again.half) == (rest.dtype, rest.scales, rest.half)
    assert dict(again.float32) == dict(rest.float32)


@pytest.mark.parametrize("backend", ["tensorrt:rest=fp17", "onnxruntime:rest=bf16", "qnn:rest=bf16"])
def test_other_values_are_refused_with_those_that_there_are(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"Known: fp32, fp16"):
        onnxq.get_backend(backend)
