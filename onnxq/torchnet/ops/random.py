"""Random numbers: Dropout, Bernoulli, Multinomial, RandomNormal, RandomUniform and their -Like forms.

In training torch's own generator decides, so that runs can be seeded and resumed and no step repeats another. Otherwise
a node with a `seed` gives the same numbers at each run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import torch_dtype


def _generator(call: Call) -> Callable[[torch.device], torch.Generator | None]:
    """A function that gives the generator for one run; None is torch's own."""
    if not call.has_attribute("seed"):
        return lambda device: None
    seed = int(call.attribute("seed"))

    def make(device: torch.device) -> torch.Generator | None:
        return None if call.training else torch.Generator(device).manual_seed(seed)

    return make


# ---- Dropout -----------------------------------------------------------------------------------------------------


@op("Dropout", until=6)
def dropout_with_test_flag(call: Call) -> Kernel:
    """`is_test` says that values pass; without it they are dropped while the net trains."""
    dropped = _dropping(call)
    is_test, ratio = bool(call.attribute("is_test", 0)), float(call.attribute("ratio", 0.5))

    def run(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        y, mask = dropped(x, 0.0 if is_test or not call.training else ratio)
        return y, mask.to(x.dtype)

    return run


@op("Dropout", since=7, until=11)
def dropout_for_inference(call: Call) -> Kernel:
    """These versions do not know training: values pass."""
    if not call.has_output(1):
        return lambda x: x
    masks_are_bool = call.version >= 10
    return lambda x: (x, torch.ones_like(x, dtype=torch.bool if masks_are_bool else x.dtype))


@op("Dropout", since=12)
def dropout(call: Call) -> Kernel:
    """Drops where `training_mode` is true; if the model itself says that, only while the net trains."""
    dropped = _dropping(call)
    known_ratio, known_mode = call.constant(1), call.constant(2)
    never = not call.has_input(2) or (known_mode is not None and not known_mode.any())
    if never and not call.has_output(1):
        return lambda x, *_: x
    fixed_ratio = 0.5 if not call.has_input(1) else None if known_ratio is None else float(known_ratio.item())

    def run(x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if never or training_mode is None:
            return dropped(x, 0.0)
        active = call.training if known_mode is not None else bool(training_mode)
        if not active:
            return dropped(x, 0.0)
        return dropped(x, float(ratio) if fixed_ratio is None and ratio is not None else fixed_ratio or 0.0)

    return run


def _dropping(call: Call) -> Callable[[Tensor, float], tuple[Tensor, Tensor]]:
    seed = int(call.attribute("seed")) if call.has_attribute("seed") else None

    def run(x: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
        if ratio == 0.0:
            return x, torch.ones_like(x, dtype=torch.bool)
        if seed is None or call.training:
            mask = torch.rand(x.shape, device=x.device) >= ratio
        else:  # the stream of numbers of ONNX's reference
            numbers = np.random.RandomState(seed).uniform(0, 1.0, tuple(x.shape))
            mask = torch.from_numpy(np.asarray(numbers >= ratio)).to(x.device)
        factor = 1.0 / (1.0 - ratio) if ratio < 1.0 else 0.0
        return torch.where(mask, x * factor, torch.zeros_like(x)), mask

    return run


# ---- drawn from a distribution -----------------------------------------------------------------------------------


@op("RandomNormal", "RandomUniform")
def random_of_shape(call: Call) -> Kernel:
    shape = list(call.attribute("shape"))
    fill = _filling(call)
    dtype = _dtype(call, TensorProto.FLOAT)
    return lambda: fill(torch.empty(shape, dtype=dtype))


@op("RandomNormalLike", "RandomUniformLike")
def random_like(call: Call) -> Kernel:
    fill = _filling(call)
    dtype = _dtype(call, None)

    def run(x: Tensor) -> Tensor:
        return fill(torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device))

    return run


def _filling(call: Call) -> Callable[[Tensor], Tensor]:
    generator = _generator(call)
    if "Normal" in call.op:
        mean, scale = call.attribute("mean", 0.0), call.attribute("scale", 1.0)
        return lambda x: x.normal_(mean, scale, generator=generator(x.device))
    low, high = call.attribute("low", 0.0), call.attribute("high", 1.0)
    return lambda x: x.uniform_(low, high, generator=generator(x.device))


@op("Bernoulli", since=15)
def bernoulli(call: Call) -> Kernel:
    generator = _generator(call)
    dtype = _dtype(call, None)

    def run(x: Tensor) -> Tensor:
        return torch.bernoulli(x, generator=generator(x.device)).to(dtype or x.dtype)

    return run


@op("Multinomial", since=7)
def multinomial(call: Call) -> Kernel:
    """Classes drawn from rows of logarithms of probabilities, which need not add up to 1."""
    generator = _generator(call)
    count = int(call.attribute("sample_size", 1))
    dtype = _dtype(call, TensorProto.INT32)

    def run(x: Tensor) -> Tensor:
        drawn = torch.multinomial(torch.softmax(x, -1), count, replacement=True, generator=generator(x.device))
        return drawn.to(dtype)

    return run


def _dtype(call: Call, default: int | None) -> torch.dtype | None:
    kind = call.attribute("dtype", default)
    return None if kind is None else torch_dtype(int(kind))
