"""Fixed: nothing is learnt; the scale is that of calibration, or follows the values while observing is on."""

from __future__ import annotations

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize


@FAKE_QUANTIZERS.register("fixed")
class Fixed(FakeQuantize):
    """Gradients go straight through where values are rounded, and are zero where they saturate.

    With observing on, the scale of a weight is that of its present range, so it follows the largest weight.
    """
