"""Kernels of an engine find the layers of the float model that they compute."""

from __future__ import annotations

import pytest

from onnxq.bench.layers import layers_of, plain_operator
from onnxq.demo import model_path
from onnxq.graph import Graph
from onnxq.runtime.engines import Computes, Kernel

FLOAT, INTEGERS, CONVERSION = Computes.FLOAT, Computes.INTEGERS, Computes.CONVERSION


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("QLinearConv", "Conv"),
        ("FusedMatMul", "MatMul"),
        ("QGemm", "Gemm"),
        ("MatMulIntegerToFloat", "MatMul"),
        ("DynamicQuantizeMatMul", "MatMul"),
        ("ConvInteger", "Conv"),
        ("NhwcMaxPool", "MaxPool"),
        ("QuickGelu", "QuickGelu"),
        ("QuantizeLinear", "QuantizeLinear"),
    ],
)
def test_the_operator_behind_a_kernel(kernel: str, operator: str) -> None:
    assert plain_operator(kernel) == operator


def test_fused_and_integer_kernels_meet_at_one_layer() -> None:
    """The float kernel is called after the last node that it computes, the integer one after the convolution."""
    graph = Graph.load(model_path())
    floats = [
        Kernel("stem.relu.out", "Conv", FLOAT),
        Kernel("residual2.bn.out", "FusedConv", FLOAT),
        Kernel("anything", "MaxPool", Computes.OTHER, made_of=("pool",)),
        Kernel("ReorderOutput", "ReorderOutput", CONVERSION, made_of=("global_pool.out",)),
    ]
    integers = [
        Kernel("image_QuantizeLinear", "QuantizeLinear", CONVERSION),
        Kernel("stem.conv", "QLinearConv", INTEGERS),
        Kernel("residual2.conv", "QLinearConv", INTEGERS),
        Kernel("Transpose_22", "Transpose", Computes.OTHER, made_of=("global_pool.out",)),
    ]
    assert layers_of(floats, graph) == {0: "stem.conv", 1: "residual2.conv", 2: "pool"}
    assert layers_of(integers, graph) == {1: "stem.conv", 2: "residual2.conv"}


def test_a_layer_that_has_a_kernel_is_given_to_no_other() -> None:
    """Above the sum lie both convolutions: the one that has a kernel of its own is not the fused one."""
    graph = Graph.load(model_path())
    kernels = [Kernel("residual.relu.out", "FusedConv", FLOAT), Kernel("stem.relu.out", "Conv", FLOAT)]
    assert layers_of(kernels, graph) == {0: "residual2.conv", 1: "stem.conv"}
