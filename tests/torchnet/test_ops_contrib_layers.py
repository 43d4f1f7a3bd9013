"""Layers that onnxruntime's optimizers write, against onnxruntime, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from onnxq.errors import UnsupportedError
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(32)
MICROSOFT = {"domain": "com.microsoft", "opset": 17}


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def words(*shape: int) -> np.ndarray:
    return RNG.integers(0, 7, shape).astype(np.int32)


X = values(2, 3, 8)
IMAGE, FILTER = values(1, 4, 6, 6), values(6, 2, 3, 3)
TABLES = [values(7, 8), values(5, 8), values(7, 8), values(8), values(8)]
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.int32)
HELD = [2, 3, 4, 5, 6]
CONV = {"group": 2, "pads": [1, 1, 1, 1]}

CASES: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    ("SkipLayerNormalization", [X, X[::-1].copy(), values(8)], {}),
    ("SkipLayerNormalization", [X, values(2, 3, 8), values(8), values(8), values(8)], {"epsilon": 1e-3}),
    ("SkipSimplifiedLayerNormalization", [X, values(2, 3, 8), values(8)], {"epsilon": 1e-5}),
    ("SkipSimplifiedLayerNormalization", [X, values(2, 3, 8), values(8), values(8)], {}),
    ("EmbedLayerNormalization", [words(2, 4), words(2, 4), *TABLES, MASK], {"outputs": 2, "constants": HELD}),
    (
        "EmbedLayerNormalization",
        [words(2, 4), None, *TABLES[:2], None, *TABLES[3:]],
        {"outputs": 2, "constants": [2, 3, 5, 6]},
    ),
    ("FusedMatMul", [values(2, 4, 3), values(2, 4, 5)], {"transA": 1, "alpha": 0.5}),
    ("FusedMatMul", [values(2, 3, 4), values(5, 4)], {"transB": 1}),
    ("FusedMatMul", [values(3, 2, 4), values(2, 4, 5)], {"transBatchA": 1}),
    ("FusedMatMul", [values(4, 2, 3), values(2, 4, 5)], {"transBatchA": 1, "transA": 1}),
    ("FusedConv", [IMAGE, FILTER, values(6)], {"activation": "Relu", **CONV}),
    ("FusedConv", [IMAGE, FILTER, values(6)], {"activation": "LeakyRelu", "activation_params": [0.2], **CONV}),
    ("FusedConv", [IMAGE, FILTER, values(6)], {"activation": "Clip", "activation_params": [-0.5, 0.5], **CONV}),
    ("FusedConv", [IMAGE, FILTER, values(6)], {"activation": "HardSigmoid", "activation_params": [0.2, 0.5], **CONV}),
    ("FusedConv", [IMAGE, FILTER, values(6), values(1, 6, 6, 6)], {"activation": "Relu", **CONV}),
    ("FusedGemm", [values(3, 4), values(5, 4), values(5)], {"activation": "Relu", "transB": 1}),
    ("FusedGemm", [values(4, 3), values(4, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.2, "transA": 1}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), CASES)
def test_a_fused_layer_is_that_of_onnxruntime(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime(op, inputs, tolerance=1e-5, **MICROSOFT, **how)


def test_the_simplified_layer_norm_stands_in_the_domain_of_onnx() -> None:
    assert_like_onnxruntime("SimplifiedLayerNormalization", [X, values(8)], opset=17, tolerance=1e-5, epsilon=1e-5)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_fourth_output_of_a_skip_norm_is_the_sum(op: str) -> None:
    skip, gamma = values(2, 3, 8), values(8)
    model = one_node(op, [X, skip, gamma], outputs=4, **MICROSOFT)
    for number in (2, 1):  # only the norm and the sum are wanted
        model.graph.node[0].output[number] = ""
        del model.graph.output[number]
    np.testing.assert_allclose(in_torch(model, [X, skip, gamma])[1], X + skip, rtol=1e-6)


def test_an_unknown_fused_activation_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="activation 'Sine'; implemented are Relu"):
        net_of(one_node("FusedConv", [IMAGE, FILTER], activation="Sine", **MICROSOFT, **CONV))


def packed_weight(bits: int, features: int, rows: int, size: int, zeros: bool) -> list[np.ndarray]:
    """Random codes, scales and zero points as MatMulNBits holds them."""
    blocks = -(-features // size)
    packed = RNG.integers(0, 256, (rows, blocks, size * bits // 8)).astype(np.uint8)
    scales = RNG.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
    return [packed, scales, *([RNG.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)] if zeros else [])]


@pytest.mark.parametrize("held", [(), (1, 2, 3)], ids=["weights as inputs", "weights in the file"])
@pytest.mark.parametrize(("bits", "size", "zeros"), [(4, 16, False), (4, 32, True), (8, 16, False), (2, 16, True)])
def test_packed_weights_are_unpacked_as_onnxruntime_does(
    bits: int, size: int, zeros: bool, held: tuple[int, ...]
) -> None:
    features, rows = 48, 5
    inputs = [values(3, features), *packed_weight(bits, features, rows, size, zeros)]
    how = {"K": features, "N": rows, "bits": bits, "block_size": size}
    constants = [port for port in held if port < len(inputs)]
    assert_like_onnxruntime("MatMulNBits", inputs, tolerance=1e-4, constants=constants, **MICROSOFT, **how)


def doubles(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape)


@pytest.mark.parametrize(
    ("op", "inputs", "how"),
    [
        ("SkipLayerNormalization", [doubles(2, 4), doubles(2, 4), doubles(4), doubles(4)], {}),
        ("SkipSimplifiedLayerNormalization", [doubles(2, 4), doubles(2, 4), doubles(4)], {}),
        ("FusedMatMul", [doubles(2, 3), doubles(2, 3)], {"transA": 1, "alpha": 2.0}),
        ("FusedConv", [doubles(1, 2, 4), doubles(2, 2, 3), doubles(2)], {"activation": "Sigmoid"}),
        ("FusedGemm", [doubles(2, 3), doubles(3, 2), doubles(2)], {"activation": "Tanh"}),
    ],
)
def test_gradients_of_fused_layers_are_right(op: str, inputs: list[np.ndarray], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, **MICROSOFT, **how)


def test_embeddings_get_gradients() -> None:
    tables = [doubles(7, 2), doubles(2, 2), doubles(7, 2), doubles(2), doubles(2)]
    assert_gradients("EmbedLayerNormalization", [words(1, 2), words(1, 2), *tables], epsilon=0.1, **MICROSOFT)


def test_values_of_half_precision_keep_their_type() -> None:
    x, gamma = X.astype(np.float16), values(8).astype(np.float16)
    model = one_node("SimplifiedLayerNormalization", [x, gamma], opset=17, kind=TensorProto.FLOAT16)
    assert in_torch(model, [x, gamma])[0].dtype == np.float16
