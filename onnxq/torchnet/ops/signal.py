"""Signals: Fourier transforms, windows, and the mel scale.

A complex tensor has its real and imaginary parts in a last dimension of size 2; a real one has 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import as_ints, torch_dtype


@op("DFT", since=17)
def dft_with_axis_attribute(call: Call) -> Kernel:
    return _dft(call, lambda axis: call.attribute("axis", 1))


@op("DFT", since=20)
def dft(call: Call) -> Kernel:
    known = call.constant_ints(2)

    def axis_of(axis: Tensor | None) -> int:
        if known is not None:
            return known[0]
        return -2 if axis is None else as_ints(axis)[0]

    return _dft(call, axis_of)


def _dft(call: Call, axis_of: Callable[[Tensor | None], int]) -> Kernel:
    inverse, onesided = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    length_of = call.ints(1)

    def run(x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Tensor:
        along = axis_of(axis) % x.dim()
        if length is not None:
            points = length_of(length)[0]
        else:
            points = 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]
        signal = _joined(x)
        if not inverse:
            return _fourier(signal, points, along, onesided).to(x.dtype)
        if onesided:
            return torch.fft.irfft(signal, n=points, dim=along).unsqueeze(-1).to(x.dtype)
        return _parts(torch.fft.ifft(signal, n=points, dim=along)).to(x.dtype)

    return run


@op("STFT", since=17)
def stft(call: Call) -> Kernel:
    onesided = bool(call.attribute("onesided", 1))
    step_of, length_of = call.ints(1), call.ints(3)

    def run(x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        usual = x.shape[1] if window is None else window.shape[0]
        points = usual if length is None else length_of(length)[0]
        frames = _joined(x).unfold(1, points, step_of(step)[0])
        if window is not None:
            frames = frames * window
        return _fourier(frames, points, frames.dim() - 1, onesided).to(x.dtype)

    return run


def _joined(x: Tensor) -> Tensor:
    """A real or complex torch tensor, from one with the parts in its last dimension."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x.squeeze(-1) if x.shape[-1] == 1 else torch.complex(x[..., 0], x[..., 1])


def _parts(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj())


def _fourier(signal: Tensor, points: int, axis: int, onesided: bool) -> Tensor:
    if onesided and not signal.is_complex():
        return _parts(torch.fft.rfft(signal, n=points, dim=axis))
    spectrum = torch.fft.fft(signal, n=points, dim=axis)
    return _parts(spectrum.narrow(axis, 0, points // 2 + 1) if onesided else spectrum)


WINDOWS: dict[str, tuple[float, float, float]] = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""a - b cos(t) + c cos(2 t), t from 0 to 2 pi."""


@op(*WINDOWS, since=17)
def window(call: Call) -> Kernel:
    mean, first, second = WINDOWS[call.op]
    periodic = bool(call.attribute("periodic", 1))
    dtype = torch_dtype(call.attribute("output_datatype", 1))
    size_of = call.ints(0)

    def run(size: Tensor) -> Tensor:
        points = size_of(size)[0]
        angle = torch.arange(points, dtype=torch.float64) * (2 * math.pi / (points if periodic else points - 1))
        return (mean - first * torch.cos(angle) + second * torch.cos(2 * angle)).to(size.device, dtype)

    return run


@op("MelWeightMatrix", since=17)
def mel_weight_matrix(call: Call) -> Kernel:
    dtype = torch_dtype(call.attribute("output_datatype", 1))
    call.keep_fixed(0, 1, 2, 3, 4)

    def run(bands: Tensor, points: Tensor, rate: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
        edges = [float(edge) for edge in (lowest, highest)]
        return _mel_triangles(int(bands), int(points), int(rate), *edges).to(bands.device, dtype)

    return run


def _mel_triangles(bands: int, points: int, rate: int, lowest: float, highest: float) -> Tensor:
    """Triangles over the bins of a spectrum, at equal distances on the mel scale; ONNX counts bands + 2 distances."""

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    distance = (mel(highest) - mel(lowest)) / (bands + 2)
    corners = [
        int((points + 1) * 700 * (10 ** ((mel(lowest) + number * distance) / 2595) - 1) // rate)
        for number in range(bands + 2)
    ]
    weights = torch.zeros(points // 2 + 1, bands, dtype=torch.float64)
    for band, (left, centre, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        if centre == left:
            weights[centre, band] = 1
        else:
            weights[left : centre + 1, band] = torch.arange(centre - left + 1) / (centre - left)
        if right > centre:
            weights[centre:right, band] = torch.arange(right - centre, 0, -1) / (right - centre)
    return weights
