"""What values become in a number format: `onnxq.numerics.fake_quantize` in torch, bit for bit, without gradients.

Integers are rounded in C where that was built (`compiled.py`). Else the format says how (`NumberFormat.torch_values`);
one that does not is computed by numpy, which is slower and the same.
NaN stays NaN in every format, so that a loss that explodes is seen. `numerics` refuses NaN for integers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize.compiled import rounded_in_c
from onnxq.types.spec import QuantSpec


def grid_values(x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
    """The numbers of `spec` for float32 values; scale and zero point broadcast against them (`Layout`)."""
    made = rounded_in_c(x, scale, zero_point, spec)
    if made is not None:
        return made
    made = spec.format.torch_values(x, scale, zero_point, spec)
    if made is not None:
        assert isinstance(made, Tensor)
        return made
    values, unit, moved = (tensor.detach().cpu().numpy() for tensor in (x, scale, zero_point))
    known = ~np.isnan(values)
    stored = spec.format.encode(np.where(known, values, np.float32(0)), unit, moved, spec)
    real = np.where(known, spec.format.decode(stored, unit, moved, spec), np.float32(np.nan))
    return torch.from_numpy(real.astype(np.float32, copy=False)).to(x.device)
