"""DerivedBias: a bias with scale(input) * scale(weight), as integer kernels add it to their sums."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.errors import SpecError
from onnxq.numerics import derived_bias_scale
from onnxq.torchnet.fake_quantize.base import FakeQuantize
from onnxq.types.fake_quantizers import read_fake_quantizer
from onnxq.types.plan import Placement
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec


class DerivedBias(FakeQuantize):
    """The quantizer of a bias whose scale follows those of two others at each forward; zero point 0.

    `input` and `weight` belong to their own tensors: they are no submodules, and nothing of theirs is in this module's
    state_dict, which is empty. `spec` has as many scales as the weight. The gradient goes straight through to the bias,
    and none to the two scales. Where one of the two is switched off, there is no scale to derive: the bias stays float.
    """

    observes_by_default = False
    sources: tuple[FakeQuantize, FakeQuantize]

    def __init__(self, placement: Placement, input: FakeQuantize, weight: FakeQuantize, spec: QuantSpec) -> None:
        if not spec.symmetric:
            raise SpecError(f"bias '{placement.tensor}' derives its scale, so its format must be symmetric, not {spec}")
        self.__dict__["sources"] = (input, weight)  # before torch's own __init__, and hidden from it
        start = _derived(input.to_qparams(), weight.to_qparams(), spec, placement.tensor)
        super().__init__(placement, start, read_fake_quantizer("fixed"))

    def init_qparams(self, qparams: QParams) -> None:
        """Nothing: the numbers belong to the two others."""

    def set_qparams(self, qparams: QParams) -> None:
        """Nothing: the numbers belong to the two others."""

    def observe(self, values: Tensor) -> None:
        """Nothing: the scale does not depend on the bias."""

    def quantized(self, values: Tensor) -> Tensor:
        return super().quantized(values) if all(source.quantizing for source in self.sources) else values

    def qparams(self) -> tuple[Tensor, Tensor]:
        input, weight = self.sources
        scale = input.qparams()[0].detach() * weight.qparams()[0].detach()
        return scale, torch.zeros_like(scale, dtype=torch.int32)

    def to_qparams(self) -> QParams:
        """Exactly the numbers that forward uses now; a scale beyond float32 is an error."""
        input, weight = self.sources
        return _derived(input.to_qparams(), weight.to_qparams(), self.spec, self.tensor)


def _derived(input: QParams, weight: QParams, spec: QuantSpec, tensor: str) -> QParams:
    try:
        scale = derived_bias_scale(input, weight)
    except SpecError as error:
        raise SpecError(f"bias '{tensor}': {error}") from error
    return QParams(spec, scale, scale.astype("int32") * 0)
