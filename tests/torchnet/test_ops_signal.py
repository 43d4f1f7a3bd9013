"""Fourier transforms and windows against onnxruntime, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, one_node

RNG = np.random.default_rng(33)
TOLERANCE = 1e-4
"""Sums of some ten float32 terms; onnxruntime rounds the angles to float32 first."""


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


TRANSFORMS: list[tuple[str, int, list[np.ndarray | None], dict[str, Any]]] = [
    ("a real signal", 17, [values(2, 10, 1)], {}),
    ("half of a real one", 17, [values(2, 10, 1)], {"onesided": 1}),
    ("a complex one", 17, [values(2, 10, 2)], {}),
    ("backwards", 17, [values(2, 10, 2)], {"inverse": 1}),
    ("an axis", 17, [values(2, 10, 6, 1)], {"axis": 2}),
    ("fewer points", 17, [values(2, 10, 1), number(8)], {}),
    ("more points", 17, [values(2, 10, 1), number(16)], {"onesided": 1}),
    ("the usual axis", 20, [values(2, 3, 10, 1)], {}),
    ("an axis as input", 20, [values(2, 10, 6, 2), None, number(1)], {"inverse": 1}),
]


@pytest.mark.parametrize("held", [False, True], ids=["settings as inputs", "settings in the file"])
@pytest.mark.parametrize(
    ("opset", "inputs", "how"), [case[1:] for case in TRANSFORMS], ids=[case[0] for case in TRANSFORMS]
)
def test_a_transform_is_that_of_onnxruntime(
    opset: int, inputs: list[np.ndarray | None], how: dict[str, Any], held: bool
) -> None:
    constants = [port for port, value in enumerate(inputs) if held and port and value is not None]
    assert_like_onnxruntime("DFT", inputs, opset=opset, tolerance=TOLERANCE, constants=constants, **how)


def test_half_a_spectrum_gives_the_real_signal_back() -> None:
    """onnxruntime has no case for it; numpy is the referee."""
    signal = values(3, 10)
    spectrum = np.fft.rfft(signal)
    parts = np.stack((spectrum.real, spectrum.imag), -1).astype(np.float32)
    model = one_node("DFT", [parts], opset=20, inverse=1, onesided=1)
    np.testing.assert_allclose(in_torch(model, [parts])[0][..., 0], signal, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "how"),
    [
        ([values(2, 32, 1), number(4), None, number(16)], {}),
        ([values(2, 32, 1), number(8), values(12)], {}),
        ([values(2, 32, 1), number(8), values(16), number(16)], {"onesided": 0}),
        ([values(1, 32, 2), number(8), values(16)], {"onesided": 0}),
    ],
)
def test_windows_over_a_signal_are_transformed_as_in_onnxruntime(
    inputs: list[np.ndarray | None], how: dict[str, Any]
) -> None:
    assert_like_onnxruntime("STFT", inputs, opset=17, tolerance=TOLERANCE, **how)


@pytest.mark.parametrize("held", [(), (0,)], ids=["size as input", "size in the file"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_a_window_is_that_of_onnxruntime(op: str, periodic: int, held: tuple[int, ...]) -> None:
    assert_like_onnxruntime(op, [number(9)], opset=17, tolerance=1e-5, periodic=periodic, constants=held)


def test_a_window_has_the_type_that_is_asked_for() -> None:
    model = one_node("HannWindow", [number(8)], opset=17, kind=TensorProto.DOUBLE, output_datatype=TensorProto.DOUBLE)
    assert in_torch(model, [number(8)])[0].dtype == np.float64


def test_the_mel_matrix_is_that_of_onnxruntime() -> None:
    inputs = [number(8), number(64), number(8192), np.array(0, np.float32), np.array(4096, np.float32)]
    assert_like_onnxruntime("MelWeightMatrix", inputs, opset=17)


@pytest.mark.parametrize(
    ("op", "inputs", "how"),
    [
        ("DFT", [RNG.normal(0, 1, (2, 5, 1))], {"onesided": 1}),
        ("DFT", [RNG.normal(0, 1, (2, 5, 2))], {"inverse": 1}),
        ("STFT", [RNG.normal(0, 1, (1, 12, 1)), number(4), RNG.normal(0, 1, 6)], {}),
    ],
)
def test_gradients_of_transforms_are_right(op: str, inputs: list[np.ndarray], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, opset=17, **how)
