"""Causes of a loss as values: what was found at a quantizer or in the data, with the numbers that show it.

A finding is one piece of evidence, a cause all findings of one kind with the proof: what the worst result gains when
this alone is taken away and everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from onnxq.files import json_number
from onnxq.json_file import JsonObject

Code = Literal[
    "wrong_preprocessing",
    "outlier_sample",
    "mask_quantized",
    "softmax_in_few_bits",
    "bias_overflow",
    "tied_ranges",
    "outlier_values",
    "dead_channels",
    "channels_differ",
    "normalization_in_few_bits",
    "too_few_samples",
    "saturating_kernel",
    "few_bits",
]
"""What can be wrong, the particular before the general: `few_bits` is left where nothing else explains the loss."""


@dataclass(frozen=True)
class Finding:
    """Evidence at one quantizer, whose name is `quantizer`: its tensor, or the one that leads those with its scale."""

    code: ClassVar[Code]
    quantizer: str

    def to_json(self) -> JsonObject:
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.to_json() if hasattr(value, "to_json") else value


@dataclass(frozen=True)
class OutlierSample(Finding):
    """One sample sets the range: its largest magnitude, and the range that the other samples need."""

    code = "outlier_sample"
    sample: int
    magnitude: float
    low: float
    high: float

    @property
    def of_others(self) -> float:
        return max(-self.low, self.high)


@dataclass(frozen=True)
class OutlierValues(Finding):
    """A few values of many samples set the range: all but `fraction` of the values are within `usual`."""

    code = "outlier_values"
    magnitude: float
    usual: float
    fraction: float


@dataclass(frozen=True)
class MaskQuantized(Finding):
    """Stand-ins for minus infinity are in the range: `value`, where all other values are within `usual`."""

    code = "mask_quantized"
    node: str
    value: float
    usual: float


@dataclass(frozen=True)
class Member:
    """One of several tensors with one scale: its own range; `lost` where it has too few steps of that scale."""

    tensor: str
    low: float
    high: float
    lost: bool

    def to_json(self) -> JsonObject:
        return {"tensor": self.tensor, "low": json_number(self.low), "high": json_number(self.high), "lost": self.lost}


@dataclass(frozen=True)
class TiedRanges(Finding):
    """Tensors of unlike ranges have one scale: `node` joins them, or the configuration does where it is None."""

    code = "tied_ranges"
    node: str | None
    step: float
    members: tuple[Member, ...]


@dataclass(frozen=True)
class DeadChannels(Finding):
    """A few channels are so small beside the others that all their values are rounded to one or two numbers.

    channels   their indices; `of` all of them
    magnitude  the largest of them, `largest` that of all channels
    """

    code = "dead_channels"
    node: str
    channels: tuple[int, ...]
    of: int
    magnitude: float
    step: float
    largest: float


@dataclass(frozen=True)
class ChannelsDiffer(Finding):
    """One scale for channels of very different size: the largest one, and half of the channels are below `median`."""

    code = "channels_differ"
    node: str
    channel: int
    of: int
    largest: float
    median: float


@dataclass(frozen=True)
class BiasOverflow(Finding):
    """A bias does not fit into its integers: the weight's scale was enlarged for it, or its own steps are too coarse.

    enlarged   factor on the scale of the weight, 1 where it has its own
    largest    magnitude of the bias, `step` the step that it has
    """

    code = "bias_overflow"
    node: str
    bias: str
    enlarged: float
    largest: float
    step: float


@dataclass(frozen=True)
class SoftmaxInFewBits(Finding):
    """Probabilities in few bits: most of them are below a step."""

    code = "softmax_in_few_bits"
    node: str
    op: str
    bits: int
    step: float
    median: float


@dataclass(frozen=True)
class NormalizationInFewBits(Finding):
    """A normalization, or what it computes with, in few bits."""

    code = "normalization_in_few_bits"
    node: str
    op: str
    bits: int


@dataclass(frozen=True)
class TooFewSamples(Finding):
    """Samples that calibration has not seen go beyond the range that it found."""

    code = "too_few_samples"
    samples: int
    magnitude: float
    beyond: float


@dataclass(frozen=True)
class SaturatingKernel(Finding):
    """onnxruntime's integer kernels on this machine lose more than the file says; `quantizer` is the output."""

    code = "saturating_kernel"
    in_file_db: float
    kernel_db: float


@dataclass(frozen=True)
class WrongPreprocessing(Finding):
    """The data is not what the network was trained on, by the statistics that its batch norms have kept.

    quantizer  the input
    given      what the values were taken for, `wanted` what they would have to be, as settings of `preprocess`
    distance   of the data as it is from the statistics, `of_wanted` with the other preprocessing: the divergence of two
               normal distributions, in nats, the mean over the channels of the first batch norms
    """

    code = "wrong_preprocessing"
    given: str
    wanted: str
    distance: float
    of_wanted: float
    batch_norms: tuple[str, ...]


@dataclass(frozen=True)
class FewBits(Finding):
    """No more than the noise of its bits; there is nothing particular about the quantizer."""

    code = "few_bits"
    bits: int


@dataclass(frozen=True)
class Cause:
    """All findings of one kind.

    share    of the noise of all quantizers alone, that of those in `findings`
    gain_db  what the worst result gains where this alone is taken away, whether the target could do that or not
    """

    code: Code
    findings: tuple[Finding, ...]
    share: float
    gain_db: float

    @property
    def quantizers(self) -> tuple[str, ...]:
        return tuple(finding.quantizer for finding in self.findings)

    def to_json(self) -> JsonObject:
        return {
            "code": self.code,
            "share": round(self.share, 6),
            "gain_db": json_number(round(self.gain_db, 3)),
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(frozen=True)
class Costly:
    """A quantizer by what it costs: SQNR of the worst result with nothing else quantized.

    position   of the node that makes its tensor, or reads its constant, in the order of the graph
    share      of the noise that all quantizers make alone
    """

    name: str
    role: str
    tensors: tuple[str, ...]
    format: str
    node: str
    position: int
    sqnr_db: float
    share: float

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "role": self.role,
            "tensors": list(self.tensors),
            "format": self.format,
            "node": self.node,
            "position": self.position,
            "sqnr_db": json_number(round(self.sqnr_db, 3)),
            "share": round(self.share, 6),
        }


Results = Mapping[str, float]
"""Output, or part of one -> SQNR."""
