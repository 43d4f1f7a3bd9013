"""NF4: the 16 quantiles of a normal distribution between -1 and 1, in blocks whose largest magnitude is the scale.

Dettmers, Pagnoni, Holtzman, Zettlemoyer: "QLoRA: Efficient Finetuning of Quantized LLMs", 2023. The numbers are
those of bitsandbytes and of onnxruntime's MatMulBnb4; above the middle between two, a value becomes the upper one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.numerics.formats.block_scaled import BlockScaled
from onnxq.numerics.formats.elements import TableElement
from onnxq.types.at_rest import AtRest
from onnxq.types.number_format import Operators
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor

_QUANTILES = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
QUANTILES = TableElement(
    bits=4,
    largest=1.0,
    emax=0,
    fraction=3,
    table=_QUANTILES,
    borders=tuple((low + high) / 2 for low, high in pairwise(_QUANTILES)),
)
_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Nf4(BlockScaled):
    """The scale is the largest magnitude."""

    grid = "non-uniform"
    summary = "quantiles of a normal distribution"

    def scaled(self, spec: QuantSpec) -> bool:
        return not spec.dynamic

    def block_scales(self, largest: np.ndarray, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return np.asarray(np.maximum(largest, _TINY))

    def torch_block_scales(self, largest: Tensor, scale: Tensor, spec: QuantSpec) -> Tensor:
        return largest.clamp(min=float(_TINY))

    def block_scale_operators(self, to: Operators, largest: Any, parameters: QParams) -> Any:
        return to.add("Max", [largest, to.constant("tiny", _TINY)], shaped=False)

    @property
    def at_rest(self) -> AtRest:
        return AtRest(np.dtype(ml_dtypes.uint4), np.dtype(np.float32), 21, QUANTILES.values)


NF4 = Nf4("nf4", 4, element=QUANTILES, block=64)
