"""Formats, values and modules that the tests of fake-quantizers share."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from onnxq.numerics import qparams_from_range
from onnxq.torchnet.fake_quantize import FakeQuantize, make_fake_quantizer
from onnxq.types import PerBlock, PerChannel, PerTensor, Placement, QParams, QuantSpec
from onnxq.types.fake_quantizers import KINDS
from onnxq.types.number_format import number_formats
from onnxq.types.plan import Role
from onnxq.types.spec import ROUNDINGS

SHAPE = (4, 10, 6)
GRANULARITIES = (PerTensor(), PerChannel(1), PerBlock(1, 5), PerBlock(1, 4), PerBlock(-1, 4))

DYNAMIC = (PerBlock(1, 4), PerBlock(-1, 16))


def every_spec() -> list[QuantSpec]:
    """Each dtype with each granularity that it can have, and the rest of an integer format dealt out in turns."""
    specs: list[QuantSpec] = []
    integers = [name for name, form in number_formats().items() if form.evenly_spaced and not form.bias_only]
    turns = list(product(ROUNDINGS, (True, False), (False, True)))
    for number, (dtype, granularity) in enumerate(product(integers, GRANULARITIES)):
        rounding, symmetric, power_of_two = turns[number % len(turns)]
        specs.append(
            QuantSpec(dtype, rounding=rounding, symmetric=symmetric, power_of_two=power_of_two, granularity=granularity)
        )
    for rounding, granularity in product(ROUNDINGS, GRANULARITIES):
        specs.append(QuantSpec("int8", narrow_range=True, rounding=rounding, granularity=granularity))
        specs.append(
            QuantSpec("uint8", False, rounding=rounding, granularity=granularity, quant_min=3 - 3, quant_max=99)
        )
    for granularity in GRANULARITIES[:2]:
        specs.append(QuantSpec("int32", granularity=granularity))
    for dtype, granularity in product(("fp8_e4m3", "fp8_e5m2", "nnie8"), GRANULARITIES):
        specs.append(QuantSpec(dtype, granularity=granularity))
    specs += [QuantSpec("fp8_e4m3", power_of_two=True), QuantSpec("fp16"), QuantSpec("bf16"), QuantSpec("bfp16")]
    specs += [QuantSpec("bfp16", granularity=PerBlock(2, 4)), QuantSpec("bfp16", granularity=PerBlock(0, 16))]
    in_blocks = [name for name, form in number_formats().items() if form.can_be_dynamic]
    specs += [QuantSpec(name, granularity=granularity) for name, granularity in product(in_blocks, GRANULARITIES)]
    specs += [QuantSpec(name, granularity=granularity, dynamic=True) for name in in_blocks for granularity in DYNAMIC]
    specs += [QuantSpec("mxfp4", granularity=DYNAMIC[0], dynamic=True, scale_rule=rule) for rule in ("even", "ceil")]
    return specs


def some_specs() -> list[QuantSpec]:
    """A few formats of every sort, for tests that look at one kind at a time."""
    return [
        QuantSpec("int8"),
        QuantSpec("uint4", symmetric=False),
        QuantSpec("int4", granularity=PerChannel(1), rounding="half_up"),
        QuantSpec("uint3", symmetric=False, granularity=PerChannel(1), rounding="half_away"),
        QuantSpec("int3", granularity=PerBlock(1, 4), rounding="floor"),
        QuantSpec("int8", power_of_two=True, rounding="half_to_zero"),
        QuantSpec("int1"),
        QuantSpec("uint1"),
        QuantSpec("fp8_e4m3"),
        QuantSpec("fp8_e5m2", granularity=PerChannel(1)),
        QuantSpec("nnie8"),
        QuantSpec("fp16"),
        QuantSpec("bf16"),
        QuantSpec("bfp16"),
        QuantSpec("mxfp4", granularity=PerBlock(1, 4)),
        QuantSpec("nvfp4", granularity=PerBlock(-1, 4), dynamic=True),
        QuantSpec("nf4", granularity=PerBlock(-1, 4)),
    ]


def fitting(kind: str, spec: QuantSpec) -> QuantSpec | None:
    """The format as the kind demands it; None where the two do not go together."""
    implied = dict(KINDS[kind].implied)
    if "dtype" in implied and implied["dtype"] != spec.dtype:
        return None
    if implied.pop("per_channel", None) is False and not isinstance(spec.granularity, PerTensor):
        return None
    if (spec.dtype in ("nnie8", "bfp16") or spec.format.can_be_dynamic) and implied.get("power_of_two"):
        return None
    if spec.dtype == "int32" and kind in ("adaround", "dorefa"):
        return None
    return spec.replace(**implied)


def role_of(kind: str) -> Role:
    return "activation" if "activation" in KINDS[kind].roles else "weight"


def numbers(spec: QuantSpec, shape: tuple[int, ...] = SHAPE, seed: int = 0, width: float = 2.0) -> QParams:
    """Parameters for ranges that are different for each channel or block."""
    rng = np.random.default_rng(seed)
    scales = spec.scale_shape(shape)
    return qparams_from_range(-width * rng.uniform(0.3, 1, scales), width * rng.uniform(0.3, 1, scales), spec)


def module(kind: str, qparams: QParams, role: Role | None = None, minimum_scale: float = 0.0) -> FakeQuantize:
    if qparams.spec.dtype == "int32":
        from onnxq.types import BiasOf

        placement = Placement("t", qparams.spec, "bias", "test", derive=BiasOf("x", "w"), fake_quantizer=kind)
    else:
        placement = Placement(
            "t", qparams.spec, role or role_of(kind), "test", fake_quantizer=kind, minimum_scale=minimum_scale
        )
    return make_fake_quantizer(placement, qparams)


def hard_values(qparams: QParams, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Values at ties, next to ties, at and beyond the ends, zeros of both signs, denormals and infinities."""
    rng = np.random.default_rng(seed)
    scale = np.broadcast_to(qparams.scale.reshape(-1)[0], shape)
    halves = rng.integers(-40, 40, shape) / np.float32(2)
    values = (halves * scale).astype(np.float32)
    aside = np.nextafter(values, np.float32(np.inf) * rng.choice([-1, 1], shape).astype(np.float32))
    values = np.where(rng.random(shape) < 0.5, values, aside)
    values = np.where(rng.random(shape) < 0.4, rng.standard_normal(shape).astype(np.float32), values)
    special = [0.0, -0.0, 1e-45, -1e-45, 1e-38, np.inf, -np.inf, 3e38, -3e38, 448, 464, 61440, 65519, 65520, 1, -1]
    flat = values.reshape(-1).astype(np.float32)
    flat[rng.choice(flat.size, len(special), replace=False)] = np.array(special, np.float32)
    return flat.reshape(shape)


def same_bits(found: torch.Tensor, expected: np.ndarray) -> bool:
    array = found.detach().numpy()
    return array.dtype == expected.dtype and np.array_equal(array.view(np.int32), expected.view(np.int32))
