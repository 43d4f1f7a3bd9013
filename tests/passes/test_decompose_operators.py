"""Norms, activations, rotary positions and fused layers become small operators with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import run_model
from tests.passes.test_decompose_attention import MICROSOFT, assert_decomposed, declined, one_node, values

Random = np.random.default_rng


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("places", [True, False])
def test_rotary_embedding_of_onnx(interleaved: int, turned: int, packed: bool, places: bool) -> None:
    random, heads, size, length = Random(1), 2, 8, 3
    half = (turned or size) // 2
    x = values(random, 2, length, heads * size) if packed else values(random, 2, heads, length, size)
    shape = (10, half) if places else (2, length, half)
    feeds: dict[str, np.ndarray | None] = {"i0": x, "i1": values(random, *shape), "i2": values(random, *shape)}
    feeds["i3"] = random.integers(0, 10, (2, length)) if places else None
    attributes = {"num_heads": heads} if packed else {}
    model = one_node(
        "RotaryEmbedding", feeds, ["y"], interleaved=interleaved, rotary_embedding_dim=turned, **attributes
    )
    assert_decomposed(model, "decompose_rotary_embedding", feeds)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_rotary_embedding_of_onnxruntime(interleaved: int, first: bool, packed: bool) -> None:
    random, heads, size, length = Random(2), 2, 8, 3
    x = values(random, 2, length, heads * size) if packed else values(random, 2, heads, length, size)
    positions = np.asarray([4]) if first else random.integers(0, 10, (2, length))
    feeds = {"i0": x, "i1": positions, "i2": values(random, 10, 4), "i3": values(random, 10, 4)}
    model = one_node("RotaryEmbedding", feeds, ["y"], domain=MICROSOFT, opset=17, interleaved=interleaved)
    assert_decomposed(model, "decompose_rotary_embedding", feeds)


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization(axis: int) -> None:
    random = Random(3)
    x = values(random, 2, 3, 8)
    feeds = {"i0": x, "i1": values(random, *x.shape[axis:])}
    model = one_node("RMSNormalization", feeds, ["y"], axis=axis, epsilon=1e-3)
    graph = assert_decomposed(model, "decompose_rms_normalization", feeds)
    run_passes(graph, ["recognize_layernorm"])
    assert [unit.kind for unit in graph.units.all()] == ["RMSNorm"]


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_simplified_layer_normalization_in_the_default_domain(opset: int) -> None:
    """As language models of ONNX Runtime GenAI have it; the checker of onnx does not know it there."""
    random = Random(4)
    feeds = {"i0": values(random, 2, 3, 8), "i1": values(random, 8)}
    model = one_node("SimplifiedLayerNormalization", feeds, ["y"], opset=opset, axis=-1, epsilon=1e-5, stash_type=1)
    assert_decomposed(model, "decompose_rms_normalization", feeds)


def test_a_norm_in_half_precision_is_computed_in_single_precision() -> None:
    """3000 squared is beyond what half precision can hold."""
    x = np.full((1, 2, 4), 3000, np.float16)
    feeds = {"i0": x, "i1": np.ones(4, np.float16)}
    model = one_node("RMSNormalization", feeds, ["y"])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    graph = Graph.from_model(model)
    run_passes(graph, ["decompose_rms_normalization"])
    np.testing.assert_allclose(run_model(graph.to_model(), feeds)["y"], np.ones((1, 2, 4)), rtol=1e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_norms_of_sums(op: str, bias: bool) -> None:
    random, centered = Random(5), op == "SkipLayerNormalization"
    feeds = {"i0": values(random, 2, 3, 8), "i1": values(random, 2, 3, 8), "i2": values(random, 8)}
    if centered:
        feeds["i3"] = values(random, 8)
    if bias:
        feeds["i4" if centered else "i3"] = values(random, 8)
    model = one_node(op, feeds, ["y", "", "", "sum"], domain=MICROSOFT, opset=13, epsilon=1e-3)
    graph = assert_decomposed(model, "decompose_skip_layernorm", feeds)
    assert graph.opset == (17 if centered else 13)


@pytest.mark.parametrize(
    ("op", "count", "unit"),
    [("Gelu", 1, "Gelu"), ("BiasGelu", 2, "Gelu"), ("FastGelu", 1, "Gelu"), ("FastGelu", 2, "Gelu")],
)
def test_gelus_are_recognised_afterwards(op: str, count: int, unit: str) -> None:
    random = Random(6)
    feeds = dict(zip(("i0", "i1"), (3 * values(random, 2, 3, 8), values(random, 8)), strict=True))
    feeds = {name: feeds[name] for name in list(feeds)[:count]}
    model = one_node(op, feeds, ["y"], domain=MICROSOFT, opset=13)
    graph = assert_decomposed(model, "decompose_gelu", feeds)
    run_passes(graph, ["recognize_gelu"])
    assert [found.kind for found in graph.units.all()] == [unit]


@pytest.mark.parametrize("alpha", [1.0, 1.702])
def test_quick_gelu(alpha: float) -> None:
    feeds = {"i0": values(Random(7), 2, 3, 8)}
    model = one_node("QuickGelu", feeds, ["y"], domain=MICROSOFT, opset=13, alpha=alpha)
    assert_decomposed(model, "decompose_gelu", feeds)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_swish(alpha: float) -> None:
    feeds = {"i0": values(Random(8), 2, 3, 8)}
    graph = assert_decomposed(one_node("Swish", feeds, ["y"], opset=24, alpha=alpha), "decompose_swish", feeds)
    run_passes(graph, ["recognize_silu"])
    assert len(graph.units.all()) == (alpha == 1.0)


@pytest.mark.parametrize(
    ("activation", "numbers"),
    [
        ("Relu", []),
        ("Sigmoid", []),
        ("Tanh", []),
        ("LeakyRelu", [0.1]),
        ("Clip", [-0.5, 0.5]),
        ("HardSigmoid", [0.3, 0.4]),
        ("", []),
    ],
)
@pytest.mark.parametrize("added", [True, False])
def test_fused_conv(activation: str, numbers: list[float], added: bool) -> None:
    random = Random(9)
    feeds = {"i0": values(random, 1, 3, 6, 6)}
    if added:
        feeds["i3"] = values(random, 1, 4, 6, 6)
    constants = {"i1": values(random, 4, 3, 3, 3), "i2": values(random, 4)}
    attributes: dict[str, Any] = {"activation": activation} if activation else {}
    if numbers:
        attributes["activation_params"] = numbers
    model = one_node(
        "FusedConv",
        feeds,
        ["y"],
        domain=MICROSOFT,
        opset=17,
        constants=constants,
        pads=[1, 1, 1, 1],
        free=False,
        **attributes,
    )
    graph = assert_decomposed(model, "decompose_fused_conv", feeds)
    (conv,) = graph.nodes("Conv")
    assert [tensor.name for tensor in conv.inputs[1:]] == ["i1", "i2"]


def test_fused_gemm_and_fused_matmul() -> None:
    random = Random(10)
    feeds = {"i0": values(random, 3, 4)}
    constants = {"i1": values(random, 5, 4), "i2": values(random, 5)}
    model = one_node(
        "FusedGemm",
        feeds,
        ["y"],
        domain=MICROSOFT,
        opset=17,
        constants=constants,
        transB=1,
        activation="LeakyRelu",
        activation_alpha=0.2,
    )
    assert_decomposed(model, "decompose_fused_conv", feeds)
    pair = {"i0": values(random, 2, 3, 4), "i1": values(random, 2, 5, 4)}
    model = one_node("FusedMatMul", pair, ["y"], domain=MICROSOFT, opset=17, transB=1, alpha=0.25)
    assert_decomposed(model, "decompose_fused_conv", pair)


def test_an_activation_that_is_not_known_stays() -> None:
    feeds = {"i0": values(Random(0), 1, 1, 3, 3)}
    constants = {"i1": values(Random(1), 1, 1, 1, 1)}
    model = one_node("FusedConv", feeds, ["y"], domain=MICROSOFT, opset=17, constants=constants, activation="Mystery")
    assert "Mystery" in declined(model, "decompose_fused_conv")


def test_masks_of_several_layers_are_computed_once() -> None:
    """Sizes of the same name and what follows from them are the same for all layers."""
    random, width = Random(11), 8
    nodes, stored = [], []
    x = "x"
    for layer in range(3):
        weight = f"w{layer}"
        stored.append(numpy_helper.from_array(values(random, width, width), weight))
        nodes.append(helper.make_node("MatMul", [x, weight], [f"q{layer}"], name=f"m{layer}"))
        nodes.append(
            helper.make_node(
                "Attention",
                [f"q{layer}"] * 3,
                [f"a{layer}"],
                name=f"attention{layer}",
                is_causal=1,
                q_num_heads=2,
                kv_num_heads=2,
            )
        )
        x = f"a{layer}"
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", width])
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "length", width])
    graph = helper.make_graph(nodes, "g", [info], [result], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    made = Graph.from_model(model)
    run_passes(made, ["decompose_attention"])
    assert len(made.nodes("Softmax")) == 3
    assert len(made.nodes("LessOrEqual")) == 1
    feeds = {"x": values(random, 2, 4, width)}
    np.testing.assert_allclose(run_model(made.to_model(), feeds)[x], run_model(model, feeds)[x], rtol=1e-4, atol=1e-5)
