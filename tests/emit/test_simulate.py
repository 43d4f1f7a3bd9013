"""The simulated model computes in onnxruntime what `onnxq.numerics` says, for every grid, width and rounding."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxq.calibrate import calibrate
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import get_backend
from onnxq.types import Edge, Limits, PerBlock, PerChannel, Placement, QParamsTable, QuantPlan, QuantSpec, Scheme
from tests.golden_graphs import GOLDEN
from tests.zoo import ZOO

SPECS = [
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("uint8", symmetric=False),
    QuantSpec("uint8"),
    QuantSpec("int7"),
    QuantSpec("int8", quant_min=-64, quant_max=63),
    QuantSpec("int4"),
    QuantSpec("uint4", symmetric=False),
    QuantSpec("int2"),
    QuantSpec("uint3", symmetric=False),
    QuantSpec("int16"),
    QuantSpec("uint16", symmetric=False),
    QuantSpec("int8", power_of_two=True),
    *(
        QuantSpec("int8", power_of_two=True, rounding=rounding)
        for rounding in ("half_up", "half_away", "half_to_zero", "floor")
    ),
    QuantSpec("uint8", symmetric=False, rounding="half_away"),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
    QuantSpec("fp16"),
    QuantSpec("bf16"),
    QuantSpec("nnie8"),
    QuantSpec("int8", granularity=PerChannel(1)),
    QuantSpec("int6", rounding="half_up", granularity=PerChannel(0)),
]


def values() -> np.ndarray:
    """Random numbers, exact halves of power-of-two steps, borders, both zeros, tiny and huge numbers."""
    x = (np.random.default_rng(5).normal(size=(4, 1024)) * 3).astype(np.float32)
    x[0, :512] = np.arange(-256, 256, dtype=np.float32) / 32
    x[1, :10] = [0.0, -0.0, 1e-38, -1e-38, 1e30, -1e30, 7.5, -8.0, 0.49999997, -0.49999997]
    x[2, :256] = np.ldexp(np.float32(1), np.arange(256) // 8 - 16) * (1 - np.arange(256) % 2 * 2)
    return x


def run(graph: Graph, **feed: np.ndarray) -> list[np.ndarray]:
    model = graph.to_model()
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feed)


def model_of(*nodes: onnx.NodeProto, constants: dict[str, np.ndarray] | None = None, outputs: tuple[str, ...]) -> Graph:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", 1, [4, 1024])],
        [helper.make_tensor_value_info(name, 1, [4, 1024]) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_activations_are_quantized_as_numpy_does_it(spec: QuantSpec, pairs: bool) -> None:
    x = values()
    shape = spec.granularity.scale_shape(x.shape)
    widths = np.linspace(0.5, 2.0, int(np.prod(shape))).reshape(shape) if shape else np.float64(1)
    qparams = qparams_from_range(-8.0 * widths, 7.5 * widths, spec)
    plan = QuantPlan("chip", {"x": Placement("x", spec, "activation", "", observe=("x",))})
    graph = model_of(helper.make_node("Identity", ["x"], ["y"], name="n"), outputs=("y",))
    simulated, _ = simulate(graph, plan, QParamsTable({"x": qparams}), get_backend("tensorrt"), pairs=pairs)
    (y,) = run(simulated, x=x)
    assert np.array_equal(y, fake_quantize(x, qparams))


@pytest.mark.parametrize("spec", [*SPECS, QuantSpec("int4", granularity=PerBlock(0, 3))], ids=str)
def test_constants_hold_the_values_of_their_quantized_numbers(spec: QuantSpec) -> None:
    weight = np.random.default_rng(1).normal(size=(4, 1024)).astype(np.float32)
    shape = spec.granularity.scale_shape(weight.shape)
    qparams = qparams_from_range(np.full(shape, -2.5), np.full(shape, 2.0), spec)
    plan = QuantPlan("chip", {"w": Placement("w", spec, "weight", "", edges=(Edge("add", 1),))})
    nodes = [
        helper.make_node("Add", ["x", "w"], ["y"], name="add"),
        helper.make_node("Add", ["x", "w"], ["z"], name="b"),
    ]
    graph = model_of(*nodes, constants={"w": weight}, outputs=("y", "z"))
    simulated, _ = simulate(graph, plan, QParamsTable({"w": qparams}), get_backend("tensorrt"))
    y, z = run(simulated, x=np.zeros((4, 1024), np.float32))
    assert np.array_equal(y, fake_quantize(weight, qparams))
    assert np.array_equal(z, weight), "a reader that the plan does not name reads the float values"


def test_integers_that_an_algorithm_fixed_are_used_as_they_are() -> None:
    weight = np.full((4, 1024), 0.4, np.float32)
    qparams = qparams_from_range(-127.0, 127.0, QuantSpec("int8"))
    fixed = np.ones((4, 1024), np.int8)  # rounding to nearest would give 0
    plan = QuantPlan("chip", {"w": Placement("w", qparams.spec, "weight", "")})
    graph = model_of(helper.make_node("Add", ["x", "w"], ["y"], name="add"), constants={"w": weight}, outputs=("y",))
    simulated, _ = simulate(graph, plan, QParamsTable({"w": qparams}, {"w": fixed}), get_backend("tensorrt"))
    (y,) = run(simulated, x=np.zeros((4, 1024), np.float32))
    assert (y == 1.0).all()


def test_only_the_edges_of_the_plan_read_the_quantized_value() -> None:
    spec = QuantSpec("int4", rounding="half_up")
    qparams = qparams_from_range(-8.0, 7.0, spec)
    placement = Placement("x", spec, "activation", "", edges=(Edge("one", 0),), observe=("x",))
    nodes = [helper.make_node("Neg", ["x"], ["y"], name="one"), helper.make_node("Neg", ["x"], ["z"], name="two")]
    x = values()
    graph = model_of(*nodes, outputs=("y", "z"))
    simulated, _ = simulate(
        graph, QuantPlan("chip", {"x": placement}), QParamsTable({"x": qparams}), get_backend("tensorrt")
    )
    y, z = run(simulated, x=x)
    assert np.array_equal(y, -fake_quantize(x, qparams))
    assert np.array_equal(z, -x)


def test_the_arguments_are_left_as_they_were() -> None:
    spec = QuantSpec("nnie8")
    graph = model_of(helper.make_node("Neg", ["x"], ["y"], name="n"), outputs=("y",))
    before = graph.to_model().SerializeToString()
    plan = QuantPlan("chip", {"x": Placement("x", spec, "activation", "", observe=("x",))})
    simulate(graph, plan, QParamsTable({"x": qparams_from_range(-1.0, 1.0, spec)}), get_backend("tensorrt"))
    assert graph.to_model().SerializeToString() == before


def test_a_quantized_graph_output_keeps_its_name() -> None:
    spec = QuantSpec("int8", rounding="half_up")
    qparams = qparams_from_range(-8.0, 7.0, spec)
    graph = model_of(helper.make_node("Neg", ["x"], ["y"], name="n"), outputs=("y",))
    plan = QuantPlan("chip", {"y": Placement("y", spec, "activation", "", observe=("y",))})
    simulated, _ = simulate(graph, plan, QParamsTable({"y": qparams}), get_backend("tensorrt"))
    assert simulated.output_names == ["y"]
    (y,) = run(simulated, x=values())
    assert np.array_equal(y, fake_quantize(-values(), qparams))


@pytest.mark.parametrize("name", [name for name in ZOO if {"if", "loop", "scan"} & set(name.split("_"))])
@pytest.mark.parametrize("spec", [QuantSpec("int7", rounding="half_up"), QuantSpec("nnie8")], ids=str)
def test_bodies_of_control_flow_are_simulated_too(name: str, spec: QuantSpec) -> None:
    case = ZOO[name]()
    base = get_backend("tensorrt")
    limits = Limits(dtypes=("int8", "nnie8"))
    chip = base.replace(scheme=Scheme(spec, spec), limits=limits, rounding_in_files="half_even")
    prepared = prepare(case.model, chip)
    qparams, plan, _ = calibrate(prepared.graph, make_plan(prepared), case.feeds)
    simulated, _ = simulate(prepared.graph, plan, qparams, chip)
    float_graph = Graph.from_model(case.model)
    for feed in case.feeds:
        for y, wanted in zip(run(simulated, **feed), run(float_graph, **feed), strict=True):
            assert y.shape == wanted.shape
            assert np.isfinite(y).all()


@pytest.mark.parametrize("backend", ["ryzenai", "ryzenai:precision=A8W8", "espdl", "qnn", "rknn", "tensorrt"])
def test_every_optimization_level_of_onnxruntime_computes_the_same(backend: str) -> None:
    """Around a layer, Q/DQ pairs would make onnxruntime quantize its weights again, for kernels that saturate."""
    golden = GOLDEN["depthwise"]()
    prepared = prepare(golden.model, backend)
    plan = make_plan(prepared)
    parameters = calibrate(prepared.graph, plan, golden.samples[:4]).qparams
    simulated, _ = simulate(prepared.graph, plan, parameters, prepared.backend)
    assert not simulated.nodes("QuantizeLinear")
    results = []
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        session = ort.InferenceSession(simulated.to_model().SerializeToString(), options, ["CPUExecutionProvider"])
        results.append(np.concatenate([session.run(None, sample)[0] for sample in golden.samples]))
    plain, optimized = results
    # Fused layers add in another order: single values may fall on the neighbouring code of a quantizer further on.
    assert np.sum((plain - optimized) ** 2) <= 1e-4 * np.sum(plain**2)


def test_a_plan_without_quantizers_gives_the_float_model() -> None:
    graph = model_of(helper.make_node("Relu", ["x"], ["y"], name="n"), outputs=("y",))
    simulated, notes = simulate(graph, QuantPlan("tensorrt"), QParamsTable(), get_backend("tensorrt"))
    x = values()
    np.testing.assert_array_equal(run(simulated, x=x)[0], run(graph, x=x)[0])
    assert [node.op for node in simulated.nodes()] == ["Relu"]
    assert notes == []
