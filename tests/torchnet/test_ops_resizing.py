"""Resize, Upsample, GridSample and AffineGrid in torch: as onnxruntime has them, and with right gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from onnxq.errors import ModelError, UnsupportedError
from onnxq.torchnet.ops.resize_weights import Filter, Length, nearest_indices, weights
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(14)


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


IMAGE = values(1, 2, 5, 6)
SCALES = {"larger": floats(1, 1, 2, 1.5), "smaller": floats(1, 1, 0.6, 0.5), "whole": floats(1, 1, 2, 3)}
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_scales_resize_as_in_onnxruntime(coordinates: str, mode: str, scales: str) -> None:
    given: list[np.ndarray | None] = [IMAGE, floats(), SCALES[scales]]
    how: dict[str, Any] = {"coordinate_transformation_mode": coordinates, "mode": mode}
    assert_like_onnxruntime("Resize", given, opset=11, tolerance=1e-4, **how)


@pytest.mark.parametrize("constants", [[], [2]])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_corners_are_those_of_the_whole_length_where_a_scale_asks_for_a_fractional_one(
    opset: int, mode: str, constants: list[int]
) -> None:
    """What torch writes for Upsample(scale_factor=0.5, align_corners=True) of an image with an odd height."""
    given: list[np.ndarray | None] = [values(1, 2, 9, 6), floats(), floats(1, 1, 0.5, 1.1)]
    how: dict[str, Any] = {"coordinate_transformation_mode": "align_corners", "mode": mode}
    assert_like_onnxruntime("Resize", given, opset=opset, tolerance=1e-5, constants=constants, **how)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
def test_nearest_pixels_are_those_of_onnxruntime(coordinates: str, rounding: str, scales: str) -> None:
    given: list[np.ndarray | None] = [IMAGE, None, SCALES[scales]]
    how: dict[str, Any] = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    assert_like_onnxruntime("Resize", given, opset=13, constants=[2], **how)


Case = tuple[str, list[np.ndarray | None], dict[str, Any]]

LIKE_ONNXRUNTIME: list[Case] = [
    ("Upsample", [IMAGE], {"opset": 7, "scales": [1.0, 1.0, 2.0, 3.0]}),
    ("Upsample", [IMAGE], {"opset": 7, "scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}),
    ("Upsample", [IMAGE, floats(1, 1, 2, 1.5)], {"opset": 9, "mode": "linear", "constants": [1]}),
    ("Resize", [IMAGE, floats(1, 1, 1.6, 0.5)], {"opset": 10}),
    ("Resize", [values(1, 1, 10, 8), floats(1, 1, 0.7, 0.6)], {"opset": 10}),
    ("Resize", [values(1, 1, 10, 8), floats(1, 1, 1.5, 0.3)], {"opset": 10, "constants": [1]}),
    ("Resize", [IMAGE, floats(1, 1, 1.6, 0.5)], {"opset": 10, "mode": "linear"}),
    (
        "Resize",
        [IMAGE, floats(), floats(), np.array([1, 2, 9, 4])],
        {"opset": 11, "mode": "linear", "constants": [1, 2, 3]},
    ),
    (
        "Resize",
        [IMAGE, None, None, np.array([1, 2, 9, 4])],
        {"opset": 13, "mode": "cubic", "cubic_coeff_a": -0.5, "constants": [3]},
    ),
    (
        "Resize",
        [IMAGE, None, None, np.array([1, 2, 7, 3])],
        {"opset": 13, "mode": "cubic", "exclude_outside": 1, "constants": [3]},
    ),
    (
        "Resize",
        [IMAGE, floats(0, 0, 0.2, -0.3, 1, 1, 0.9, 1.2), floats(), np.array([1, 2, 4, 5])],
        {
            "opset": 11,
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 7.0,
            "constants": [1, 2, 3],
        },
    ),
    ("Resize", [IMAGE, None, floats(0.5, 0.4)], {"opset": 18, "mode": "linear", "antialias": 1, "axes": [2, 3]}),
    ("Resize", [IMAGE, None, floats(0.6, 0.7)], {"opset": 19, "mode": "cubic", "antialias": 1, "axes": [2, 3]}),
    (
        "Resize",
        [IMAGE, None, None, np.array([7, 8])],
        {"opset": 18, "mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "constants": [3]},
    ),
    (
        "Resize",
        [IMAGE, None, None, np.array([7, 8])],
        {"opset": 19, "axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller", "constants": [3]},
    ),
    ("Resize", [values(1, 1, 3, 4, 5), None, floats(1, 1, 2, 1.5, 2)], {"opset": 13, "mode": "linear"}),
    ("GridSample", [IMAGE, values(1, 3, 4, 2)], {"opset": 16}),
    ("GridSample", [IMAGE, values(1, 3, 4, 2)], {"opset": 16, "mode": "bicubic", "padding_mode": "border"}),
    ("GridSample", [IMAGE, values(1, 3, 4, 2)], {"opset": 16, "padding_mode": "reflection", "align_corners": 1}),
    ("GridSample", [IMAGE, values(1, 3, 4, 2)], {"opset": 20, "mode": "nearest"}),
    ("GridSample", [values(1, 2, 3, 4, 5), values(1, 2, 3, 2, 3)], {"opset": 20, "padding_mode": "reflection"}),
    ("AffineGrid", [values(2, 2, 3), np.array([2, 3, 4, 5])], {"opset": 20}),
    ("AffineGrid", [values(2, 3, 4), np.array([2, 3, 4, 5, 6])], {"opset": 20, "align_corners": 1}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), LIKE_ONNXRUNTIME)
def test_resizing_and_sampling_are_those_of_onnxruntime(
    op: str, inputs: list[np.ndarray | None], how: dict[str, Any]
) -> None:
    assert_like_onnxruntime(op, inputs, tolerance=1e-4, **how)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_the_kernels_of_torch_and_the_matrices_agree(mode: str, coordinates: str) -> None:
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    (found,) = in_torch(
        one_node("Resize", [IMAGE, None, floats(1, 1, 2, 3)], opset=13, **how), [IMAGE, None, floats(1, 1, 2, 3)]
    )
    chosen = Filter(mode, coordinates, "floor")
    wanted = IMAGE.astype(np.float64)
    for axis, length in ((2, Length(5, 10, 2.0)), (3, Length(6, 18, 3.0))):
        if mode == "nearest":
            wanted = wanted.take(nearest_indices(chosen, length), axis=axis)
        else:
            wanted = np.moveaxis(np.moveaxis(wanted, axis, -1) @ weights(chosen, length)[0].T, -1, axis)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_integers_are_resized_as_integers() -> None:
    pixels = RNG.integers(0, 256, (1, 1, 4, 4)).astype(np.uint8)
    given: list[np.ndarray | None] = [pixels, floats(), floats(1, 1, 2, 2)]
    assert_like_onnxruntime("Resize", given, opset=13, kind=TensorProto.UINT8, nearest_mode="floor")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("corners", [0, 1])
def test_any_number_of_axes_is_sampled_like_an_image(corners: int, mode: str, padding: str) -> None:
    """A row is an image of equal rows, in whose middle torch's own kernel takes the points."""
    row, places = values(2, 3, 7), values(2, 5, 1) * 1.5
    how: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    (found,) = in_torch(one_node("GridSample", [row, places], opset=20, **how), [row, places])
    same = np.repeat(row[:, :, None], 9, axis=2)
    grid = np.concatenate([places, np.zeros_like(places)], axis=2)[:, None]
    (wanted,) = in_torch(one_node("GridSample", [same, grid], opset=20, **how), [same, grid])
    np.testing.assert_allclose(found, wanted[:, :, 0], rtol=1e-4, atol=1e-5)


GRADIENTS: list[Case] = [
    ("Resize", [RNG.normal(0, 1, (1, 1, 3, 4)), None, floats(1, 1, 1.7, 0.6)], {"opset": 13, "mode": "linear"}),
    ("Resize", [RNG.normal(0, 1, (1, 1, 3, 4)), None, floats(1, 1, 2, 2)], {"opset": 13, "mode": "cubic"}),
    ("Resize", [RNG.normal(0, 1, (1, 1, 3, 4)), None, floats(1, 1, 1.4, 2)], {"opset": 13}),
    (
        "GridSample",
        [RNG.normal(0, 1, (1, 2, 3, 4)), RNG.uniform(-0.8, 0.8, (1, 2, 2, 2))],
        {"opset": 16, "mode": "bilinear"},
    ),
    ("GridSample", [RNG.normal(0, 1, (1, 2, 6)), RNG.uniform(-0.8, 0.8, (1, 4, 1))], {"opset": 20, "mode": "cubic"}),
    ("AffineGrid", [RNG.normal(0, 1, (1, 2, 3)), np.array([1, 1, 2, 3])], {"opset": 20}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), GRADIENTS)
def test_gradients_of_resizing_and_sampling(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, **how)


def test_a_resize_without_numbers_for_its_axes_says_so() -> None:
    given = [IMAGE, None, floats(1, 2)]
    with pytest.raises(ModelError, match="one scale or size is needed for each of 4 axes, not 2"):
        in_torch(one_node("Resize", given, opset=13), given)


def test_an_unknown_way_of_counting_pixels_is_refused() -> None:
    given = [IMAGE, None, floats(1, 1, 2, 2)]
    with pytest.raises(UnsupportedError, match=r"coordinate_transformation_mode 'half_pixels'.*half_pixel"):
        net_of(one_node("Resize", given, opset=13, coordinate_transformation_mode="half_pixels"))
