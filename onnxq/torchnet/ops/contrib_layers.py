"""Layers that onnxruntime's optimizers write: fused norms, products and convolutions, and packed weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.convolution import conv
from onnxq.torchnet.ops.product import gemm
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import from_numpy

DOMAIN = "com.microsoft"

Activation = Callable[[Tensor], Tensor]


# ---- norms -----------------------------------------------------------------------------------------------------------


@op("SimplifiedLayerNormalization", since=1)
@op("SimplifiedLayerNormalization", since=1, domain=DOMAIN)
def simplified_layer_normalization(call: Call) -> Kernel:
    """A layer norm without the mean; onnxruntime keeps it in ONNX's own domain."""
    axis, epsilon = int(call.attribute("axis", -1)), float(call.attribute("epsilon", 1e-5))

    def run(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        inverse = torch.rsqrt(wide.square().mean(list(range(axis % x.dim(), x.dim())), keepdim=True) + epsilon)
        return (wide * inverse).to(x.dtype) * scale, inverse

    return run


@op("SkipLayerNormalization", since=1, domain=DOMAIN)
def skip_layer_normalization(call: Call) -> Kernel:
    """The layer norm of a sum. The fourth output is the sum; the statistics between are never written on a CPU."""
    epsilon = float(call.attribute("epsilon", 1e-12))

    def run(
        x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        total = x + skip if bias is None else x + skip + bias
        return F.layer_norm(total, total.shape[-1:], gamma, beta, epsilon), None, None, total

    return run


@op("SkipSimplifiedLayerNormalization", since=1, domain=DOMAIN)
def skip_simplified_layer_normalization(call: Call) -> Kernel:
    epsilon = float(call.attribute("epsilon", 1e-12))

    def run(x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None) -> tuple[Tensor | None, ...]:
        total = x + skip if bias is None else x + skip + bias
        return F.rms_norm(total, total.shape[-1:], gamma, epsilon), None, None, total

    return run


@op("EmbedLayerNormalization", since=1, domain=DOMAIN)
def embed_layer_normalization(call: Call) -> Kernel:
    """The layer norm of a sum of embeddings: of words, positions and segments. Outputs: norm, mask lengths, sum."""
    epsilon = float(call.attribute("epsilon", 1e-12))

    def run(
        words: Tensor,
        segments: Tensor | None,
        word_table: Tensor,
        position_table: Tensor,
        segment_table: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        placed = position_table[: words.shape[1]] if positions is None else position_table[positions.long()]
        total = word_table[words.long()] + placed
        if segments is not None and segment_table is not None:
            total = total + segment_table[segments.long()]
        lengths = words.new_zeros(words.shape[0]) if mask is None else mask.sum(1)
        return F.layer_norm(total, total.shape[-1:], gamma, beta, epsilon), lengths.to(torch.int32), total

    return run


# ---- products and convolutions ---------------------------------------------------------------------------------------


@op("FusedMatMul", "TransposeMatMul", since=1, domain=DOMAIN)
def fused_matmul(call: Call) -> Kernel:
    alpha = call.attribute("alpha", 1.0)
    sides = [
        (bool(call.attribute(f"trans{side}", 0)), bool(call.attribute(f"transBatch{side}", 0))) for side in ("A", "B")
    ]

    def run(a: Tensor, b: Tensor) -> Tensor:
        product = _turned(a, *sides[0]) @ _turned(b, *sides[1])
        return product if alpha == 1.0 else alpha * product

    return run


def _turned(x: Tensor, last_two: bool, first_to_last_but_one: bool) -> Tensor:
    """`transBatch` moves the first dimension to the last but one; then `trans` turns the last two round."""
    if first_to_last_but_one and x.dim() > 2:
        x = x.movedim(0, -2)
    return x.transpose(-1, -2) if last_two and x.dim() > 1 else x


@op("FusedConv", since=1, domain=DOMAIN)
def fused_conv(call: Call) -> Kernel:
    """A convolution, a sum with another tensor, and an activation."""
    convolve = conv(call)
    activate = _activation(call, call.attribute("activation_params", []))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None, added: Tensor | None = None) -> Tensor:
        y: Tensor = convolve(x, weight) if bias is None else convolve(x, weight, bias)
        return activate(y if added is None else y + added)

    return run


@op("FusedGemm", since=1, domain=DOMAIN)
def fused_gemm(call: Call) -> Kernel:
    multiply = gemm(call)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    activate = _activation(call, [call.attribute(name) for name in names if call.has_attribute(name)])

    def run(*inputs: Tensor) -> Tensor:
        return activate(multiply(*inputs))

    return run


ACTIVATIONS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "Relu": (0, torch.relu),
    "Sigmoid": (0, torch.sigmoid),
    "Tanh": (0, torch.tanh),
    "LeakyRelu": (1, F.leaky_relu),
    "Clip": (2, torch.clamp),
    "HardSigmoid": (2, lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1)),
    "HardSwish": (0, F.hardswish),
}
"""Fused activations: how many parameters they take, and the function."""


def _activation(call: Call, parameters: Sequence[float]) -> Activation:
    name = call.attribute("activation", "")
    if not name:
        return lambda x: x
    if name not in ACTIVATIONS:
        raise call.unsupported(f"activation '{name}'; implemented are {', '.join(ACTIVATIONS)}")
    count, function = ACTIVATIONS[name]
    if len(parameters) < count:
        raise call.unsupported(f"activation '{name}' with {len(parameters)} parameters; it takes {count}")
    chosen = tuple(parameters[:count])
    return (lambda x: function(x, *chosen)) if chosen else function


# ---- packed weights --------------------------------------------------------------------------------------------------


@op("MatMulNBits", since=1, domain=DOMAIN)
def matmul_n_bits(call: Call) -> Kernel:
    """x times a weight of 2 to 8 bits, which has a scale and a zero point for each block of input features."""
    bits, size = int(call.attribute("bits", 4)), int(call.attribute("block_size"))
    features, rows = int(call.attribute("K")), int(call.attribute("N"))
    blocks = -(-features // size)
    if not 1 <= bits <= 8:
        raise call.unsupported(f"{bits} bits; onnxruntime knows 2 to 8")
    if call.attribute("weight_prepacked", 0):
        raise call.unsupported("weights that are packed for one machine; write the model without prepacking")
    packed = call.constant(1)
    known = None if packed is None else unpack(from_numpy(packed).reshape(rows, blocks, -1), bits, size)
    call.keep_fixed(3, 4)

    def run(
        x: Tensor,
        weight: Tensor,
        scales: Tensor,
        zeros: Tensor | None = None,
        groups: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        codes = unpack(weight.reshape(rows, blocks, -1), bits, size) if known is None else known.to(x.device)
        scale = scales.reshape(rows, blocks)
        if zeros is None:
            zero = torch.full_like(scale, 2.0 ** (bits - 1))
        elif zeros.is_floating_point():
            zero = zeros.reshape(rows, blocks)
        else:
            zero = unpack(zeros.reshape(rows, -1), bits, blocks).to(scale.dtype)
        values = codes.to(scale.dtype).reshape(rows, -1)[:, :features]
        block = torch.arange(features, device=x.device) // size if groups is None else groups[:features].long()
        dequantized = (values - zero[:, block]) * scale[:, block]
        return F.linear(x, dequantized.to(x.dtype), bias)

    return run


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """`count` numbers of `bits` bits each from the last dimension; the lowest bits of a byte come first."""
    bytes_as_bits = (packed.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    stream = bytes_as_bits.flatten(-2)[..., : count * bits].reshape(*packed.shape[:-1], count, bits)
    return (stream << torch.arange(bits, dtype=torch.uint8, device=packed.device)).sum(-1, dtype=torch.uint8)
