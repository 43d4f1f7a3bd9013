"""Fake-quantizers as modules of torch: what each quantizer does while a network is trained."""

from onnxq.torchnet.fake_quantize.base import FAKE_QUANTIZERS, FakeQuantize
from onnxq.torchnet.fake_quantize.derived_bias import DerivedBias
from onnxq.torchnet.fake_quantize.make import make_fake_quantizer

__all__ = ["FAKE_QUANTIZERS", "DerivedBias", "FakeQuantize", "make_fake_quantizer"]
