"""The fake-quantizer: LSQ whose scale is always one that the chip's register can hold.

A plain LSQ would be trained with scales that the constraint changes afterwards. Here forward rounds the scale as the
constraint does, and the gradient goes to the real number behind it, straight through.
"""

from importlib.util import find_spec

from onnxq.types.fake_quantizers import Kind, add_kind

from .scale_register import LARGEST, UNIT

add_kind(Kind("register_lsq", "LSQ with scales of 1/4096, as Quill holds them", "the same numbers as fixed", "scale"))

if find_spec("torch") is not None:  # calibration works without torch
    from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS
    from onnxq.torchnet.fake_quantize.functions import stand_in
    from onnxq.torchnet.fake_quantize.lsq import Lsq

    @FAKE_QUANTIZERS.register("register_lsq")
    class RegisterLsq(Lsq):
        """Everything but the scale is LSQ's."""

        def qparams(self):
            scale, zero_point = super().qparams()
            whole = (scale.detach().double() / UNIT).round().clamp(1, LARGEST)
            return stand_in(scale, (whole * UNIT).to(scale.dtype)), zero_point
