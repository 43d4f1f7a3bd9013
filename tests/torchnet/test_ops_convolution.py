"""Convolutions and pools in torch: as onnxruntime has them, in old and new opsets, and with right gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from torch.nn import functional

from onnxq.errors import UnsupportedError
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(11)


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


ROW, IMAGE, VOLUME = values(2, 4, 11), values(2, 4, 9, 8), values(1, 4, 6, 5, 7)

Case = tuple[str, list[np.ndarray | None], dict[str, Any]]

CONVOLUTIONS: list[Case] = [
    ("Conv", [ROW, values(3, 4, 3), values(3)], {"opset": 11, "pads": [2, 1], "strides": [2]}),
    ("Conv", [IMAGE, values(6, 2, 3, 3), values(6)], {"opset": 7, "pads": [1, 1, 1, 1], "group": 2}),
    ("Conv", [IMAGE, values(6, 2, 3, 2)], {"opset": 1, "pads": [0, 2, 1, 0], "group": 2, "dilations": [2, 1]}),
    ("Conv", [IMAGE, values(3, 4, 3, 4)], {"opset": 11, "auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ("Conv", [IMAGE, values(3, 4, 3, 4)], {"opset": 11, "auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ("Conv", [IMAGE, values(3, 4, 3, 4)], {"opset": 22, "auto_pad": "VALID"}),
    ("Conv", [VOLUME, values(2, 4, 2, 3, 3), values(2)], {"opset": 11, "pads": [1, 0, 1, 1, 1, 0]}),
    ("ConvTranspose", [ROW, values(4, 3, 3), values(3)], {"opset": 11, "strides": [2], "output_padding": [1]}),
    ("ConvTranspose", [IMAGE, values(4, 3, 3, 3)], {"opset": 7, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("ConvTranspose", [IMAGE, values(4, 3, 3, 3), values(6)], {"opset": 11, "group": 2, "pads": [0, 1, 2, 0]}),
    (
        "ConvTranspose",
        [IMAGE, values(4, 3, 3, 3), values(3)],
        {"opset": 11, "output_shape": [20, 17], "strides": [2, 2]},
    ),
    (
        "ConvTranspose",
        [IMAGE, values(4, 3, 3, 3), values(3)],
        {"opset": 11, "output_shape": [16, 15], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    ("ConvTranspose", [IMAGE, values(4, 3, 4, 3)], {"opset": 11, "auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ("ConvTranspose", [IMAGE, values(4, 3, 4, 3)], {"opset": 11, "auto_pad": "SAME_LOWER", "strides": [1, 2]}),
    ("ConvTranspose", [IMAGE, values(4, 3, 2, 2)], {"opset": 22, "dilations": [2, 3], "strides": [3, 1]}),
    ("ConvTranspose", [VOLUME, values(4, 2, 2, 3, 2), values(2)], {"opset": 11, "strides": [2, 1, 2]}),
    (
        "DeformConv",
        [IMAGE, values(6, 2, 3, 3), values(2, 36, 4, 8), values(6), values(2, 18, 4, 8)],
        {"opset": 19, "group": 2, "offset_group": 2, "pads": [0, 1, 0, 1], "strides": [2, 1]},
    ),
    (
        "Col2Im",
        [values(2, 12, 20), np.array([7, 6]), np.array([2, 3])],
        {"opset": 18, "pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 1]},
    ),
]


@pytest.mark.parametrize(("op", "inputs", "how"), CONVOLUTIONS)
def test_convolutions_are_those_of_onnxruntime(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime(op, inputs, tolerance=2e-5, **how)


@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_LOWER", "SAME_UPPER"])
def test_an_output_shape_that_pads_an_odd_number_is_the_one_of_the_standard(automatic: str) -> None:
    weight = values(4, 3, 4, 4)
    model = one_node(
        "ConvTranspose", [IMAGE, weight], opset=11, output_shape=[17, 15], strides=[2, 2], auto_pad=automatic
    )
    (found,) = in_torch(model, [IMAGE, weight])
    whole = functional.conv_transpose2d(torch.from_numpy(IMAGE), torch.from_numpy(weight), stride=2).numpy()
    begins = [(20 - 17) // 2, (18 - 15) // 2] if automatic == "SAME_UPPER" else [2, 2]
    wanted = whole[:, :, begins[0] : begins[0] + 17, begins[1] : begins[1] + 15]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_offsets_of_a_deformable_convolution_over_a_row_move_its_taps() -> None:
    weight, offsets = values(3, 4, 3), np.zeros((2, 3, 9), np.float32)
    offsets[:, 1] = 2.0
    (found,) = in_torch(one_node("DeformConv", [ROW, weight, offsets], opset=19), [ROW, weight, offsets])
    taps = [ROW[:, :, 0:9], np.pad(ROW, ((0, 0), (0, 0), (0, 1)))[:, :, 3:12], ROW[:, :, 2:11]]
    wanted = sum(np.einsum("oc,nct->not", weight[:, :, k], tap) for k, tap in enumerate(taps))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


POOLS: list[Case] = [
    ("MaxPool", [ROW], {"opset": 7, "kernel_shape": [3], "strides": [2]}),
    ("MaxPool", [IMAGE], {"opset": 8, "kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("MaxPool", [IMAGE], {"opset": 10, "kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "strides": [2, 2]}),
    ("MaxPool", [IMAGE], {"opset": 10, "kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 3]}),
    (
        "MaxPool",
        [IMAGE],
        {"opset": 12, "kernel_shape": [2, 2], "ceil_mode": 1, "pads": [0, 1, 1, 0], "strides": [3, 2]},
    ),
    ("MaxPool", [IMAGE], {"opset": 12, "kernel_shape": [3, 2], "dilations": [2, 3]}),
    ("MaxPool", [IMAGE], {"opset": 12, "kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("MaxPool", [IMAGE], {"opset": 12, "kernel_shape": [2, 4], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("MaxPool", [VOLUME], {"opset": 12, "kernel_shape": [2, 3, 2], "pads": [1, 1, 1, 0, 1, 0]}),
    ("AveragePool", [ROW], {"opset": 7, "kernel_shape": [3], "pads": [1, 0], "strides": [2]}),
    ("AveragePool", [IMAGE], {"opset": 7, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("AveragePool", [IMAGE], {"opset": 7, "kernel_shape": [3, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1}),
    ("AveragePool", [IMAGE], {"opset": 11, "kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("AveragePool", [IMAGE], {"opset": 11, "kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
    ("AveragePool", [IMAGE], {"opset": 19, "kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 3]}),
    (
        "AveragePool",
        [IMAGE],
        {"opset": 19, "kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 0, 1, 2], "strides": [2, 1]},
    ),
    ("AveragePool", [VOLUME], {"opset": 11, "kernel_shape": [2, 2, 2], "strides": [2, 1, 2]}),
    ("LpPool", [IMAGE], {"opset": 11, "kernel_shape": [3, 3], "p": 3, "strides": [2, 2]}),
    ("LpPool", [IMAGE], {"opset": 18, "kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}),
    ("GlobalAveragePool", [VOLUME], {"opset": 7}),
    ("GlobalMaxPool", [IMAGE], {"opset": 7}),
    ("GlobalLpPool", [IMAGE], {"opset": 7, "p": 3}),
    (
        "MaxRoiPool",
        [IMAGE, np.array([[0, 0, 0, 14, 9], [1, 3, 5, 9, 20], [1, 30, 30, 40, 40]], np.float32)],
        {"opset": 7, "pooled_shape": [3, 2], "spatial_scale": 0.5},
    ),
]


@pytest.mark.parametrize(("op", "inputs", "how"), POOLS)
def test_pools_are_those_of_onnxruntime(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime(op, inputs, tolerance=1e-5, **how)


REGIONS = np.array([[0.5, 1.0, 6.2, 7.5], [2.0, 2.0, 3.0, 2.5], [-4.0, -3.0, 20.0, 12.0]], np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize(("opset", "half"), [(10, None), (16, "half_pixel"), (16, "output_half_pixel")])
def test_regions_are_aligned_as_in_onnxruntime(opset: int, half: str | None, ratio: int, mode: str) -> None:
    how: dict[str, Any] = {} if half is None else {"coordinate_transformation_mode": half}
    how |= {"mode": mode, "sampling_ratio": ratio, "output_height": 3, "output_width": 2, "spatial_scale": 0.9}
    assert_like_onnxruntime("RoiAlign", [IMAGE, REGIONS, np.array([0, 1, 1])], opset=opset, tolerance=1e-5, **how)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 1, 2, 0]])
def test_indices_of_a_maximum_count_through_the_whole_input(pads: list[int], order: int) -> None:
    how = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads, "storage_order": order}
    assert_like_onnxruntime("MaxPool", [IMAGE], opset=12, outputs=2, **how)


def test_small_integers_are_pooled_as_integers() -> None:
    integers = RNG.integers(-128, 128, (1, 2, 6, 6)).astype(np.int8)
    how = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    assert_like_onnxruntime("MaxPool", [integers], opset=12, kind=TensorProto.INT8, **how)


def test_unpooling_takes_the_values_back_to_their_places() -> None:
    how: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    even = np.ascontiguousarray(IMAGE[:, :, :8])
    pooled, indices = in_torch(one_node("MaxPool", [even], opset=12, outputs=2, **how), [even])
    (back,) = in_torch(one_node("MaxUnpool", [pooled, indices], opset=11, **how), [pooled, indices])
    assert back.shape == even.shape
    assert np.count_nonzero(back) == pooled.size
    np.testing.assert_array_equal(back[back != 0], even[back != 0])


def test_a_layer_without_pads_is_one_call_of_torch_without_copies() -> None:
    weight, x = values(3, 4, 3, 3), torch.from_numpy(IMAGE)
    net = net_of(one_node("Conv", [IMAGE, weight], opset=11, constants=[1], pads=[1, 1, 1, 1]))
    with torch.profiler.profile() as profile:
        net(x)
    names = {event.key for event in profile.key_averages()}
    assert "aten::conv2d" in names
    assert not names & {"aten::pad", "aten::constant_pad_nd"}


def test_more_spatial_axes_than_torch_has_kernels_for_are_refused_with_the_node() -> None:
    with pytest.raises(UnsupportedError, match=r"node 'n' \(Conv, opset 11\): 4 spatial axes"):
        net_of(one_node("Conv", [values(1, 1, 3, 3, 3, 3), values(1, 1, 2, 2, 2, 2)], opset=11))


def doubles(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape)


GRADIENTS: list[Case] = [
    ("Conv", [doubles(1, 2, 4, 5), doubles(2, 2, 3, 3), doubles(2)], {"opset": 11, "pads": [0, 1, 1, 0]}),
    ("ConvTranspose", [doubles(1, 2, 3, 3), doubles(2, 1, 3, 3), doubles(1)], {"opset": 11, "pads": [0, 1, 2, 0]}),
    ("DeformConv", [doubles(1, 2, 4, 4), doubles(2, 2, 2, 2), doubles(1, 8, 3, 3), doubles(2)], {"opset": 19}),
    ("MaxPool", [doubles(1, 2, 4, 5)], {"opset": 12, "kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}),
    ("AveragePool", [doubles(1, 2, 4, 5)], {"opset": 19, "kernel_shape": [2, 2], "dilations": [2, 1]}),
    ("AveragePool", [doubles(1, 2, 4, 5)], {"opset": 11, "kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("LpPool", [doubles(1, 2, 4, 5)], {"opset": 11, "kernel_shape": [2, 2], "p": 3}),
    ("GlobalAveragePool", [doubles(1, 2, 4, 5)], {"opset": 11}),
    ("GlobalLpPool", [doubles(1, 2, 4, 5)], {"opset": 11}),
    ("Col2Im", [doubles(1, 8, 4), np.array([3, 3]), np.array([2, 2])], {"opset": 18}),
    (
        "CausalConvWithState",
        [doubles(1, 2, 5), doubles(2, 1, 3), doubles(2)],
        {"opset": 27, "outputs": 2, "activation": "silu"},
    ),
]


@pytest.mark.parametrize(("op", "inputs", "how"), GRADIENTS)
def test_gradients_of_convolutions_and_pools(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, **how)


def test_a_window_of_zeros_has_a_norm_with_a_finite_gradient() -> None:
    net = net_of(one_node("LpPool", [values(1, 1, 4, 4)], opset=11, kernel_shape=[2, 2]))
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    net(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
def test_volumes_of_half_precision_are_pooled(op: str) -> None:
    half, how = VOLUME.astype(np.float16), {"opset": 12, "kernel_shape": [2, 2, 2]}
    (found,) = in_torch(one_node(op, [half], kind=TensorProto.FLOAT16, **how), [half])
    (wide,) = in_torch(one_node(op, [VOLUME], **how), [VOLUME])
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wide, rtol=5e-3, atol=5e-3)
