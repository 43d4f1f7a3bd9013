"""Do the fake-quantizers of a plan compute numbers that a file can hold? Asked before calibration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from onnxq.errors import SpecError
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.torchnet.fake_quantize.make import make_fake_quantizer
from onnxq.types.granularity import PerChannel, PerTensor
from onnxq.types.number_format import edge_values, is_own, power_of_two_scale
from onnxq.types.plan import Placement, QuantPlan
from onnxq.types.spec import QuantSpec

_VALUES = np.linspace(-1.5, 1.5, 194, dtype=np.float32).reshape(2, -1)
"""Inside and outside of the range that is tried, -1 .. 1."""


def check_fake_quantizers(plan: QuantPlan) -> None:
    """Try each fake-quantizer of a plan on each of its formats; SpecError if other numbers than the format's come out.

    A module that computes a number format of its own would be trained for nothing: the file has the numbers of the
    plan's format.
    """
    tried = set()
    for placement in plan.active:
        spec = placement.spec
        if not isinstance(spec.scale_granularity, PerTensor):
            spec = spec.replace(granularity=PerChannel(0))
        elif spec.has_scale and not spec.dynamic:
            spec = spec.replace(granularity=PerTensor())
        key = placement.fake_quantizer, placement.role, spec
        if placement.derive is None and key not in tried:
            tried.add(key)
            _try(replace(placement, spec=spec))


def _end(spec: QuantSpec) -> float:
    """The end of the range that is tried: 1, and for a format of a plugin one that has a power of two as its scale."""
    if is_own(spec.format) or not spec.has_scale:
        return 1.0
    return float(max(map(abs, spec.ends)) * power_of_two_scale(spec))


def _values(spec: QuantSpec) -> np.ndarray:
    """Values inside and outside of the range; those of a plugin's format also just between two numbers."""
    if is_own(spec.format):
        return _VALUES
    edges = edge_values(spec) * power_of_two_scale(spec)
    return np.concatenate([_VALUES * np.float32(_end(spec)), np.stack([edges, edges])], axis=1)


@torch.no_grad()
def _try(placement: Placement) -> None:
    tried = _values(placement.spec)
    ends = np.ones(placement.spec.scale_shape(tried.shape)) * _end(placement.spec)
    module = make_fake_quantizer(placement, qparams_from_range(-ends, ends, placement.spec)).eval()
    values = torch.from_numpy(tried)
    wanted = fake_quantize(module.export_values(values).numpy(), module.to_qparams())
    if not np.array_equal(module(values).numpy(), wanted):
        raise SpecError(
            f"fake-quantizer '{module.settings.name}' of '{placement.tensor}' computes numbers that "
            f"{placement.spec.dtype} does not have, so that no file could hold what is trained. Add its number format "
            "with onnxq.types.number_format.add_format and ask for that dtype, or let `quantize` of its module return "
            "numbers of the format in eval mode. The `torch_values` of a format of your own must compute the bits of "
            "its `encode` and `decode`"
        )
