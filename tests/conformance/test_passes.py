"""Every registered pass on small graphs: same outputs and interface, valid, and nothing left for a second run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import APPROXIMATING, PASSES, run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, assert_same_outputs, build_model, run_model

Case = tuple[onnx.ModelProto, dict[str, np.ndarray], float]

RTOL_FLOAT32 = 1e-5  # folding changes the order of roundings
RTOL_FLOAT16 = 1e-2  # ten bits of mantissa, and sums of some dozen products


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    made = outputs.split()
    given = [name if name != "_" else "" for name in inputs.split()]
    return helper.make_node(op, given, made, name=f"{op}_{made[0]}", **attributes)


def batchnorm_constants(prefix: str, channels: int) -> dict[str, np.ndarray]:
    return {
        f"{prefix}_scale": values(channels, seed=3) + 2,
        f"{prefix}_shift": values(channels, seed=4),
        f"{prefix}_mean": values(channels, seed=5),
        f"{prefix}_var": np.abs(values(channels, seed=6)) + 0.5,
    }


def residual_network() -> Case:
    """Conv, BatchNormalization, Relu6 in two nodes, a residual Add, Dropout, pooling and a classifier."""
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c1 bn_scale bn_shift bn_mean bn_var", "b1"),
        node("Relu", "b1", "r1"),
        node("Min", "r1 six", "r6"),
        node("Conv", "r6 w2 bias2", "c2", pads=[1, 1, 1, 1]),
        node("Add", "c2 offset", "o2"),
        node("Mul", "o2 factor", "f2"),
        node("Add", "f2 r6", "sum"),
        node("BatchNormalization", "sum bn_scale bn_shift bn_mean bn_var", "b2"),
        node("Dropout", "b2", "d2 mask"),
        node("GlobalAveragePool", "d2", "pooled"),
        node("Shape", "pooled", "shape"),
        node("Gather", "shape zero", "batch"),
        node("Unsqueeze", "batch zero_list", "batch_list"),
        node("Concat", "batch_list rest", "target", axis=0),
        node("Reshape", "pooled target", "flat"),
        node("Identity", "flat", "features"),
        node("Gemm", "features w3 bias3", "y", transB=1),
    ]
    constants = {
        "w1": values(4, 3, 3, 3, seed=1),
        "w2": values(4, 4, 3, 3, seed=2),
        "bias2": values(4, seed=7),
        "offset": values(1, 4, 1, 1, seed=8),
        "factor": values(4, 1, 1, seed=9),
        "w3": values(5, 4, seed=10),
        "bias3": values(5, seed=11),
        "six": np.float32(6),
        "unread": values(2, 2),
        "zero": np.int64(0),
        "zero_list": np.int64([0]),
        "rest": np.int64([-1]),
        **batchnorm_constants("bn", 4),
    }
    model = build_model(nodes, {"x": (2, 3, 6, 6)}, ["y", "features"], constants)
    return model, {"x": values(2, 3, 6, 6)}, RTOL_FLOAT32


def gemm_variants() -> Case:
    """alpha, beta, transposes, biases of every shape, and one weight read in two ways."""
    nodes = [
        node("Gemm", "x w b", "a", alpha=0.5, beta=2.0),
        node("Gemm", "a w column", "c", transB=1, beta=0.25),
        node("Gemm", "c w", "d", alpha=-1.0),
        node("Gemm", "d v scalar", "e", transA=1),
        node("MatMul", "e u", "f"),
        node("Add", "f row", "g"),
        node("Sigmoid", "g", "s"),
        node("Mul", "g s", "y"),
    ]
    constants = {
        "w": values(6, 6, seed=1),
        "b": values(6, seed=2),
        "column": values(3, 1, seed=3),
        "v": values(3, 4, seed=4),
        "scalar": np.float32(0.5),
        "u": values(4, 2, seed=5),
        "row": values(1, 2, seed=6),
    }
    return build_model(nodes, {"x": (3, 6)}, ["y"], constants), {"x": values(3, 6)}, RTOL_FLOAT32


def transformer_nodes() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    nodes = [
        node("ReduceMean", "x", "mean", axes=[-1]),
        node("Sub", "x mean", "centered"),
        node("Pow", "centered two", "squared"),
        node("ReduceMean", "squared", "variance", axes=[-1]),
        node("Add", "variance epsilon", "stable"),
        node("Sqrt", "stable", "root"),
        node("Div", "centered root", "normal"),
        node("Mul", "normal gamma", "scaled"),
        node("Add", "scaled beta", "h"),
        node("MatMul", "h wq", "q"),
        node("Transpose", "wk_transposed", "wk", perm=[1, 0]),
        node("MatMul", "h wk", "k"),
        node("MatMul", "h wv", "v"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Div", "scores sqrt_size", "scaled_scores"),
        node("Softmax", "scaled_scores", "weights", axis=-1),
        node("MatMul", "weights v", "context"),
        node("Add", "x context", "residual"),
        node("MatMul", "residual w1", "up"),
        node("Add", "up b1", "biased"),
        node("Div", "biased sqrt2", "divided"),
        node("Erf", "divided", "erf"),
        node("Add", "erf one", "plus"),
        node("Mul", "biased plus", "product"),
        node("Mul", "product half", "gelu"),
        node("Cast", "gelu", "same", to=TensorProto.FLOAT),
        node("MatMul", "same w2", "down"),
        node("Add", "residual down", "y"),
    ]
    constants = {
        **{name: np.float32(number) for name, number in (("two", 2), ("one", 1), ("half", 0.5), ("epsilon", 1e-3))},
        "sqrt2": np.float32(np.sqrt(2)),
        "sqrt_size": np.float32(np.sqrt(8)),
        "gamma": values(8, seed=1),
        "beta": values(8, seed=2),
        **{name: values(8, 8, seed=i) / 3 for i, name in enumerate(("wq", "wk_transposed", "wv"), start=3)},
        "w1": values(8, 16, seed=6) / 3,
        "b1": values(16, seed=7),
        "w2": values(16, 8, seed=8) / 4,
    }
    return nodes, constants


def transformer_block() -> Case:
    """LayerNorm and Gelu in small operators, attention with a transposed weight, two residual connections."""
    nodes, constants = transformer_nodes()
    model = build_model(nodes, {"x": ("batch", 5, 8)}, {"y": ("batch", 5, 8)}, constants)
    return model, {"x": values(2, 5, 8)}, RTOL_FLOAT32


def transformer_block_in_float16() -> Case:
    nodes, constants = transformer_nodes()
    for cast in (item for item in nodes if item.op_type == "Cast"):
        cast.attribute[0].i = TensorProto.FLOAT16
    halves = {name: array.astype(np.float16) for name, array in constants.items()}
    model = build_model(nodes, {"x": (2, 5, 8)}, {"y": (2, 5, 8)}, halves, element_type=TensorProto.FLOAT16)
    return model, {"x": values(2, 5, 8).astype(np.float16)}, RTOL_FLOAT16


def branches() -> Case:
    """An If whose branches hold constants, weights from outside, a norm, a dead node and an Identity."""

    def branch(name: str, *inner: onnx.NodeProto) -> onnx.GraphProto:
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph(list(inner), name, [], [output])

    then_branch = branch(
        "t",
        node("Conv", "r w", "t_c"),
        node("BatchNormalization", "t_c bn_scale bn_shift bn_mean bn_var", "t_b"),
        node("Constant", "", "t_k", value_float=0.5),
        node("Mul", "t_b t_k", "t_m"),
        node("Neg", "t_m", "t_dead"),
        node("Identity", "t_m", "t_y"),
    )
    else_branch = branch(
        "e",
        node("Add", "half half", "e_one"),
        node("Sigmoid", "r", "e_s"),
        node("Mul", "r e_s", "e_silu"),
        node("Conv", "e_silu w", "e_c"),
        node("Mul", "e_c factor", "e_f"),
        node("Mul", "e_f e_one", "e_y"),
    )
    nodes = [
        node("Relu", "x", "r"),
        node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top limit", "flag"),
        node("If", "flag", "chosen", then_branch=then_branch, else_branch=else_branch),
        node("Clip", "chosen _ limit", "clipped"),
        node("Relu", "clipped", "y"),
    ]
    constants = {
        "w": values(4, 3, 1, 1, seed=1),
        "half": np.float32(0.5),
        "factor": values(4, 1, 1, seed=2),
        "limit": np.float32(2.5),
        **batchnorm_constants("bn", 4),
    }
    model = build_model(nodes, {"x": (1, 3, 4, 4)}, {"y": (1, 4, 4, 4)}, constants)
    return model, {"x": values(1, 3, 4, 4)}, RTOL_FLOAT32


def old_opset() -> Case:
    """Opset 8 with its attributes, where every initializer is an input too."""
    nodes = [
        node("Conv", "x w", "c", auto_pad="SAME_UPPER"),
        node("BatchNormalization", "c bn_scale bn_shift bn_mean bn_var", "b"),
        node("Constant", "", "three", value=helper.make_tensor("v", TensorProto.FLOAT, [1], [3.0])),
        node("Add", "b three", "a"),
        node("Clip", "a", "k", min=0.0, max=6.0),
        node("Mul", "b k", "m"),
        node("Div", "m six", "h"),
        node("Pad", "h", "p", pads=[0] * 8),
        node("Relu", "p", "r"),
        node("Clip", "r", "y", max=2.0),
    ]
    constants = {"w": values(4, 3, 3, 3, seed=1), "six": np.float32([6]), **batchnorm_constants("bn", 4)}
    return build_model(nodes, {"x": (1, 3, 5, 5)}, ["y"], constants, opset=8), {"x": values(1, 3, 5, 5)}, RTOL_FLOAT32


def recurrent_cell() -> Case:
    """A loop that hands its kernel from one iteration to the next, as exporters of TensorFlow write it."""
    body = helper.make_graph(
        [node("Identity", "go", "go_on"), node("Identity", "k", "k_next"), node("MatMul", "v k", "v_next")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("k", TensorProto.FLOAT, (3, 3)),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, (2, 3)),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("k_next", TensorProto.FLOAT, (3, 3)),
            helper.make_tensor_value_info("v_next", TensorProto.FLOAT, (2, 3)),
        ],
    )
    nodes = [node("Loop", "times _ kernel x", "last y", body=body)]
    constants = {"times": np.array(3, np.int64), "kernel": values(3, 3)}
    return build_model(nodes, {"x": (2, 3)}, {"y": (2, 3)}, constants), {"x": values(2, 3, seed=1)}, RTOL_FLOAT32


def slopes_of_channels() -> Case:
    nodes = [node("Conv", "x w", "c"), node("PRelu", "c s", "p"), node("Sigmoid", "p", "y")]
    constants = {"w": values(4, 3, 3, 3, seed=1), "s": np.float32([0.1, 0.25, 0.5, 1.0]).reshape(4, 1, 1)}
    return build_model(nodes, {"x": (1, 3, 5, 5)}, ["y"], constants), {"x": values(1, 3, 5, 5)}, RTOL_FLOAT32


def operators_of_onnxruntime() -> Case:
    """A block with attention, norms and activations of com.microsoft, and those of ONNX's opset 24."""
    own = {"domain": "com.microsoft"}
    nodes = [
        node("RMSNormalization", "x gamma", "n"),
        node("Attention", "n qkv qkv_bias", "a", num_heads=2, **own),
        node("SkipLayerNormalization", "a x gamma beta", "s", **own),
        node("BiasGelu", "s beta", "g", **own),
        node("MultiHeadAttention", "g g g", "m", num_heads=2, **own),
        node("RotaryEmbedding", "m cosine sine", "turned", num_heads=2),
        node("Attention", "turned m m", "seen", q_num_heads=2, kv_num_heads=2, is_causal=1),
        node("Swish", "seen", "w"),
        node("FusedGemm", "flat w1 b1", "f", activation="Relu", **own),
        node("GroupQueryAttention", "long long long _ _ last total", "y", num_heads=1, kv_num_heads=1, **own),
    ]
    nodes.insert(-2, node("Reshape", "w rows", "flat"))
    nodes.insert(-1, node("Reshape", "f sequence", "long"))
    constants = {
        "gamma": values(8, seed=1) + 1,
        "beta": values(8, seed=2),
        "qkv": values(8, 24, seed=3) / 3,
        "qkv_bias": values(24, seed=4),
        "cosine": values(2, 5, 2, seed=5),
        "sine": values(2, 5, 2, seed=6),
        "w1": values(8, 16, seed=7) / 3,
        "b1": values(16, seed=8),
        "rows": np.int64([10, 8]),
        "sequence": np.int64([2, 5, 16]),
        "last": np.int32([4, 4]),
        "total": np.int32(5),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5, 16])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model, {"x": values(2, 5, 8)}, RTOL_FLOAT32


CASES: tuple[Callable[[], Case], ...] = (
    residual_network,
    gemm_variants,
    transformer_block,
    transformer_block_in_float16,
    branches,
    old_opset,
    recurrent_cell,
    slopes_of_channels,
    operators_of_onnxruntime,
)
CASE_NAMES = [case.__name__ for case in CASES]


EXACT = [name for name in PASSES.names() if name not in APPROXIMATING]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_a_pass_keeps_the_model_and_has_nothing_to_do_twice(case: Callable[[], Case], name: str) -> None:
    model, feeds, rtol = case()
    assert_pass_keeps_outputs(model, name, feeds, rtol)


@pytest.mark.parametrize("name", PASSES.names())
def test_every_line_of_a_report_says_what_it_is_about(name: str) -> None:
    for case in CASES:
        graph = Graph.from_model(case()[0])
        graph.infer_shapes()
        known = {item.name: item.op for item in graph.nodes()}
        report = run_passes(graph, [name])[0]
        for line in report.changed + report.declined:
            subject = line.split("'")[1]
            told = line.startswith(("node '", "initializer '", "the model"))
            assert told, line
            assert subject in known or graph.has_node(subject) or graph.has_tensor(subject) or "initializer" in line, (
                line
            )


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_all_passes_one_after_the_other_keep_the_outputs(case: Callable[[], Case]) -> None:
    model, feeds, rtol = case()
    graph = Graph.from_model(model)
    graph.infer_shapes()
    run_passes(graph, EXACT)
    after = graph.to_model()
    onnx.checker.check_model(after)
    assert_same_outputs(run_model(model, feeds), run_model(after, feeds), 10 * rtol)


@pytest.mark.parametrize("name", [name for name in PASSES.names() if name != "widen_bfloat16"])
def test_a_pass_does_something_in_at_least_one_place(name: str) -> None:
    """All but the one for bfloat16: onnxruntime could not run a model for it, so its own tests build one."""
    found = 0
    for case in CASES:
        graph = Graph.from_model(case()[0])
        graph.infer_shapes()
        found += len(run_passes(graph, [name])[0].changed)
    assert found > 0
