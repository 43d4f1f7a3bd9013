"""Kinds whose name is a number format: NNIE's logarithmic grid, fp8, fp16 and bf16. Nothing is learnt.

Gradients go straight through where values are rounded, and are zero where they saturate. The clip value of NNIE and the
scales of fp8 are those of calibration, or follow the values while observing is on; fp16 and bf16 have no scale.
"""

from __future__ import annotations

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize


@FAKE_QUANTIZERS.register("nnie")
class Nnie(FakeQuantize):
    """Zero and powers of 2^(1/16) up to the clip value, `onnxq.numerics.formats.nnie`."""


@FAKE_QUANTIZERS.register("e4m3")
class E4M3(FakeQuantize):
    """8-bit floating point with 4 bits of exponent; largest 448 times the scale."""


@FAKE_QUANTIZERS.register("e5m2")
class E5M2(FakeQuantize):
    """8-bit floating point with 5 bits of exponent; largest 57344 times the scale."""


@FAKE_QUANTIZERS.register("fp16")
class Float16(FakeQuantize):
    """IEEE half precision; values beyond 65504 saturate."""


@FAKE_QUANTIZERS.register("bf16")
class BFloat16(FakeQuantize):
    """The upper half of a float32."""
