"""Windows that slide over the spatial axes: kernels, strides, dilations and pads of convolutions and pools.

size of a window    s = (kernel - 1) * dilation + 1
explicit pads       out = floor((in + begin + end - s) / stride) + 1, or ceil, without windows that start behind
                    the values
SAME_*              out = ceil(in / stride), total pad = max(0, (out - 1) * stride + s - in); the odd one lies at the
                    end (UPPER) or at the beginning (LOWER)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel

Pads = tuple[tuple[int, int], ...]
"""(begin, end) for each spatial axis."""

SAME = ("SAME_UPPER", "SAME_LOWER")

_AUTOMATIC = ("NOTSET", "VALID", *SAME)


@dataclass(frozen=True)
class Windows:
    """The attributes of a node, complete; `kernel` is None for a convolution that leaves it to its weight."""

    kernel: tuple[int, ...] | None
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    explicit: Pads
    automatic: str
    ceil: bool

    @property
    def fixed(self) -> bool:
        """Whether the pads do not depend on the size of the input."""
        return self.automatic not in SAME

    def pads(self, sizes: Sequence[int], kernel: Sequence[int]) -> Pads:
        """Pads for an input of these spatial sizes."""
        if self.fixed:
            return self.explicit
        found = []
        for size, window, stride in zip(sizes, self.spans(kernel), self.strides, strict=True):
            count = -(-size // stride)
            found.append(split_pad(max(0, (count - 1) * stride + window - size), self.automatic))
        return tuple(found)

    def spans(self, kernel: Sequence[int]) -> tuple[int, ...]:
        """The values that a window covers along each axis, those between its dilated ones included."""
        return tuple((k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True))

    def overhang(self, sizes: Sequence[int], kernel: Sequence[int], pads: Pads) -> tuple[int, ...]:
        """How far the last windows of `ceil` reach over the padded input."""
        if not self.ceil:
            return (0,) * len(kernel)
        found = []
        for size, span, stride, (begin, end) in zip(sizes, self.spans(kernel), self.strides, pads, strict=True):
            count = -(-(size + begin + end - span) // stride) + 1
            if (count - 1) * stride >= size + begin:
                count -= 1
            found.append(max(0, (count - 1) * stride + span - size - begin - end))
        return tuple(found)


def read_windows(call: Call, spatial: int) -> Windows:
    """The windows of a node with `spatial` spatial axes."""
    kernel = call.attribute("kernel_shape", None)
    automatic = call.attribute("auto_pad", "NOTSET") or "NOTSET"
    if automatic not in _AUTOMATIC:
        raise call.unsupported(f"auto_pad '{automatic}' is not one of {', '.join(_AUTOMATIC)}")
    pads = _as_many(call, "pads", 0, 2 * spatial) if automatic == "NOTSET" else (0,) * (2 * spatial)
    return Windows(
        kernel=None if kernel is None else tuple(int(k) for k in kernel),
        strides=_as_many(call, "strides", 1, spatial),
        dilations=_as_many(call, "dilations", 1, spatial),
        explicit=tuple(zip(pads[:spatial], pads[spatial:], strict=True)),
        automatic=automatic,
        ceil=bool(call.attribute("ceil_mode", 0)),
    )


def _as_many(call: Call, name: str, default: int, count: int) -> tuple[int, ...]:
    values = tuple(int(value) for value in call.attribute(name, None) or (default,) * count)
    if len(values) != count:
        raise call.unsupported(f"attribute '{name}' has {len(values)} numbers, not {count}")
    return values


def for_rank(call: Call, make: Callable[[int], Kernel]) -> Kernel:
    """`make(spatial axes)`: now if the model tells their number, otherwise when the first input comes."""
    known = _spatial_axes(call)
    if known is not None:
        return make(known)
    made: dict[int, Kernel] = {}

    def run(x: Tensor, *others: Tensor | None) -> object:
        spatial = x.dim() - 2
        if spatial not in made:
            made[spatial] = make(spatial)
        return made[spatial](x, *others)

    return run


def _spatial_axes(call: Call) -> int | None:
    for name, share in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        values = call.attribute(name, None)
        if values:
            return len(values) // share
    rank = call.rank(0)
    return None if rank is None else rank - 2


def split_pad(total: int, automatic: str) -> tuple[int, int]:
    """A total pad as (begin, end)."""
    small, large = total // 2, total - total // 2
    return (large, small) if automatic == "SAME_LOWER" else (small, large)


def symmetric(pads: Pads) -> tuple[int, ...] | None:
    """One pad for both ends of each axis, which torch's own kernels take; None if they differ."""
    if all(begin == end and begin >= 0 for begin, end in pads):
        return tuple(begin for begin, _ in pads)
    return None


def pad(x: Tensor, pads: Pads, value: float = 0.0) -> Tensor:
    """The spatial axes of `x` padded, or cut where a pad is negative."""
    flat = [number for begin, end in reversed(pads) for number in (begin, end)]
    return functional.pad(x, flat, value=value) if any(flat) else x
