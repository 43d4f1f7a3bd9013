"""Where quantizers go, on small graphs written as text."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.place import place
from onnxq.targets import get_backend
from onnxq.types import Edge, PerChannel, PerTensor


def graph_of(body: str, *, weights: dict[str, tuple[int, ...]] | None = None, opset: int = 17, signature: str) -> Graph:
    """Parse `signature { body }` and add random float initializers."""
    text = f'<ir_version: 9, opset_import: ["" : {opset}]> g {signature} {{ {body} }}'
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, shape in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    graph = Graph.from_model(model)
    graph.infer_shapes()
    return graph


RESIDUAL = """
    a = Conv <pads = [1,1,1,1]> (x, w1)
    b = Relu (a)
    c = Conv <pads = [1,1,1,1]> (b, w2)
    s = Add (c, b)
    y = Relu (s)
    z = GlobalAveragePool (y)
    f = Flatten (z)
    o = Gemm (f, w3, bias3)
"""


@pytest.fixture
def residual() -> Graph:
    weights = {"w1": (8, 4, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 10), "bias3": (10,)}
    return graph_of(RESIDUAL, weights=weights, signature="(float[n,4,8,8] x) => (float[n,10] o)")


def test_tensorrt_quantizes_only_the_skip_input_of_a_residual_add(residual: Graph) -> None:
    plan = place(residual, get_backend("tensorrt"))
    add = residual.producer("s")
    conv = residual.producer("c")
    assert plan["b"].edges == (Edge(conv.name, 0), Edge(add.name, 1))
    assert "c" not in plan
    assert add.name in plan.quantized


def test_tensorrt_never_quantizes_between_conv_and_relu_nor_biases(residual: Graph) -> None:
    plan = place(residual, get_backend("tensorrt"))
    assert "a" not in plan
    assert "s" not in plan
    assert "bias3" not in plan
    assert plan["w1"].spec.granularity == PerChannel(0)
    assert plan["w3"].spec.granularity == PerChannel(1)
    assert all(p.spec.symmetric and isinstance(p.spec.granularity, PerTensor) for p in plan if p.role == "activation")


def test_onnxruntime_quantizes_conv_outputs_behind_their_relu_for_all_readers(residual: Graph) -> None:
    plan = place(residual, get_backend("onnxruntime"))
    assert plan["b"].edges is None
    assert "a" not in plan
    assert plan["c"].edges is None
    assert plan["y"].edges is None
    assert plan.fused[residual.producer("b").name] == residual.producer("a").name
    assert plan["bias3"].derive == ("f", "w3")
    assert not plan["b"].spec.symmetric
    assert plan["b"].spec.dtype == "uint8"


def test_onnxruntime_leaves_the_last_gemm_output_float(residual: Graph) -> None:
    assert "o" not in place(residual, get_backend("onnxruntime"))


def test_moving_values_keeps_the_scale_of_the_input(residual: Graph) -> None:
    plan = place(residual, get_backend("onnxruntime"))
    assert plan["f"].tie == "z"
    assert not plan["f"].observe
    assert plan["z"].observe == ("z",)


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime"])
def test_every_node_is_accounted_for_exactly_once(residual: Graph, backend: str) -> None:
    plan = place(residual, get_backend(backend))
    accounted = [*plan.quantized, *plan.fused, *plan.left_float]
    assert sorted(accounted) == sorted(node.name for node in residual.nodes())
    assert all(plan.left_float.values())


def test_skip_by_operator_leaves_nodes_float_with_the_pattern_as_reason(residual: Graph) -> None:
    plan = place(residual, get_backend("tensorrt"), skip=["op:Gemm"])
    gemm = residual.producer("o").name
    assert plan.left_float[gemm] == "excluded by 'op:Gemm'"
    assert "w3" not in plan


def test_skip_that_matches_nothing_is_an_error_with_the_nearest_name(residual: Graph) -> None:
    name = residual.producer("o").name
    with pytest.raises(ConfigError, match="Did you mean"):
        place(residual, get_backend("tensorrt"), skip=[name + "x"])


def test_skip_finds_a_node_under_the_name_it_had_in_the_file(residual: Graph) -> None:
    residual.origins.node_became("classifier", residual.producer("o").name)
    plan = place(residual, get_backend("tensorrt"), skip=["classifier"])
    assert residual.producer("o").name in plan.left_float


ATTENTION = """
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    kt = Transpose <perm = [0, 2, 1]> (k)
    scores = MatMul (q, kt)
    masked = Add (scores, mask)
    p = Softmax <axis = -1> (masked)
    o = MatMul (p, v)
"""


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime"])
def test_attention_masks_are_never_quantized(backend: str) -> None:
    weights = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16)}
    signature = "(float[b,8,16] x, float[b,8,8] mask) => (float[b,8,16] o)"
    graph = graph_of(ATTENTION, weights=weights, signature=signature)
    plan = place(graph, get_backend(backend))
    assert "mask" not in plan
    assert "scores" not in plan
    assert "masked" not in plan
    assert "attention mask" in plan.left_float[graph.producer("masked").name]
    assert {"x", "p", "v", "q"} <= set(plan.placements)


def test_concat_of_quantized_tensors_shares_one_scale_on_tensorrt() -> None:
    body = """
        a = Conv (x, w1)
        b = Conv (x, w2)
        a2 = Conv (a, w3)
        c = Concat <axis = 1> (a, b)
        d = Conv (c, w4)
        y = Add (d, a2)
    """
    weights = {"w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1), "w3": (4, 4, 1, 1), "w4": (4, 8, 1, 1)}
    graph = graph_of(body, weights=weights, signature="(float[1,4,8,8] x) => (float[1,4,8,8] y)")
    plan = place(graph, get_backend("tensorrt"))
    assert plan.leader("a") == plan.leader("c")
    assert set(plan[plan.leader("a")].observe) == {"a", "c"}


def test_ties_pass_through_a_chain_of_concats_on_tensorrt() -> None:
    body = """
        a = Conv (x, w1)
        b = Conv (a, w2)
        c1 = Concat <axis = 1> (a, b)
        c2 = Concat <axis = 1> (c1, x)
        y = Conv (c2, w3)
    """
    weights = {"w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1), "w3": (4, 12, 1, 1)}
    graph = graph_of(body, weights=weights, signature="(float[1,4,8,8] x) => (float[1,4,8,8] y)")
    plan = place(graph, get_backend("tensorrt"))
    assert plan.leader("a") == plan.leader("x") == plan.leader("c2")


@pytest.mark.parametrize(("value", "carried"), [("0", True), ("-65504", False)])
def test_a_pad_carries_integers_only_when_it_pads_with_zero(value: str, carried: bool) -> None:
    body = f"""
        a = Conv (x, w1)
        pads = Constant <value = int64[8] {{0,0,1,1,0,0,1,1}}> ()
        v = Constant <value = float {{{value}}}> ()
        b = Pad (a, pads, v)
        y = Conv (b, w2)
    """
    weights = {"w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1)}
    graph = graph_of(body, weights=weights, signature="(float[1,4,8,8] x) => (float[1,4,10,10] y)")
    plan = place(graph, get_backend("onnxruntime"))
    assert (graph.producer("b").name in plan.quantized) == carried


def test_nodes_inside_if_branches_are_quantized_and_the_condition_is_not() -> None:
    body = """
        m = ReduceMean <keepdims = 0> (x)
        cond = Greater (m, zero)
        y = If (cond) <
            then_branch = then () => (float[1,4,8,8] t) { t = Conv (x, w1) },
            else_branch = other () => (float[1,4,8,8] e) { e = Conv (x, w2) }
        >
    """
    weights = {"w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1)}
    graph = graph_of(body, weights=weights, signature="(float[1,4,8,8] x, float zero) => (float[1,4,8,8] y)")
    plan = place(graph, get_backend("tensorrt"))
    convolutions = {node.name for node in graph.nodes("Conv")}
    assert convolutions <= set(plan.quantized)
    assert {edge.node for edge in plan["x"].edges} == convolutions
    assert "another branch" in plan.left_float[graph.producer("m").name]


def test_integer_paths_are_left_alone() -> None:
    body = """
        s = Shape (x)
        n = Gather (s, zero)
        one = Constant <value = int64[1] {-1}> ()
        n1 = Unsqueeze (n, axes)
        target = Concat <axis = 0> (n1, one)
        r = Reshape (x, target)
        y = MatMul (r, w)
    """
    graph = graph_of(
        body + "axes = Constant <value = int64[1] {0}> () zero = Constant <value = int64 {0}> ()",
        weights={"w": (16, 4)},
        signature="(float[n,4,4] x) => (float[n,4] y)",
    )
    graph.sort()
    graph.infer_shapes()
    plan = place(graph, get_backend("onnxruntime"))
    for tensor in ("s", "n", "n1", "target"):
        assert tensor not in plan
        assert "int64" in plan.left_float[graph.producer(tensor).name]


def test_adds_around_normalization_stay_float_on_onnxruntime() -> None:
    body = """
        a = MatMul (x, w1)
        s = Add (a, x)
        n = LayerNormalization <axis = -1> (s, gamma, beta)
        y = MatMul (n, w2)
    """
    weights = {"w1": (16, 16), "w2": (16, 16), "gamma": (16,), "beta": (16,)}
    graph = graph_of(body, weights=weights, signature="(float[1,8,16] x) => (float[1,8,16] y)")
    plan = place(graph, get_backend("onnxruntime"))
    assert graph.producer("s").name in plan.left_float
    assert "s" not in plan
    assert plan["n"].edges == (Edge(graph.producer("y").name, 0),)


def test_squeeze_and_excitation_is_quantized_as_a_whole_on_onnxruntime() -> None:
    body = """
        a = Conv (x, w1)
        g = GlobalAveragePool (a)
        h = Conv (g, w2)
        s = Sigmoid (h)
        m = Mul (a, s)
        y = Conv (m, w3)
    """
    weights = {"w1": (8, 4, 1, 1), "w2": (8, 8, 1, 1), "w3": (4, 8, 1, 1)}
    graph = graph_of(body, weights=weights, signature="(float[1,4,8,8] x) => (float[1,4,8,8] y)")
    assert not place(graph, get_backend("onnxruntime")).left_float


def test_a_grouped_transposed_convolution_gets_one_weight_scale() -> None:
    graph = graph_of(
        "y = ConvTranspose <group = 2> (x, w)",
        weights={"w": (4, 3, 2, 2)},
        signature="(float[1,4,8,8] x) => (float[1,6,9,9] y)",
    )
    assert place(graph, get_backend("tensorrt"))["w"].spec.granularity == PerTensor()


def test_a_model_with_existing_quantizers_is_quantized_only_elsewhere() -> None:
    body = """
        xq = QuantizeLinear (x, s, z)
        xd = DequantizeLinear (xq, s, z)
        a = Conv (xd, w1)
        y = Conv (a, w2)
    """
    model_weights = {"w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1), "s": ()}
    text = body + "z = Constant <value = int8 {0}> ()"
    graph = graph_of(text, weights=model_weights, signature="(float[1,4,8,8] x) => (float[1,4,8,8] y)")
    graph.sort()
    plan = place(graph, get_backend("tensorrt"))
    assert "already" in plan.left_float[graph.producer("a").name]
    assert set(plan.placements) == {"a", "w2"}


def test_placing_twice_gives_the_same_plan(residual: Graph) -> None:
    first, second = (place(residual, get_backend("onnxruntime")).to_json() for _ in range(2))
    assert first == second
    assert list(first["tensors"]) == list(second["tensors"])


def test_a_maximum_with_minus_infinity_stays_float_and_what_follows_is_quantized() -> None:
    graph = graph_of(
        "lowest = Constant <value_float = -inf> ()\n a = Conv (x, w1)\n m = Max (lowest, a)\n y = Conv (m, w2)",
        weights={"w1": (4, 3, 1, 1), "w2": (2, 4, 1, 1)},
        signature="(float[1,3,4,4] x) => (float[1,2,4,4] y)",
    )
    plan = place(graph, get_backend("qnn"))
    (node,) = graph.nodes("Max")
    assert "infinite" in plan.left_float[node.name]
    assert graph.nodes("Conv")[1].name in plan.quantized
