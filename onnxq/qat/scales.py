"""How the scales of quantizers move while a network trains: scales.csv, a row for a moment, a column for a tensor.

A tensor with one scale has that; one with a scale for each channel or block their geometric mean, because scales move
by factors. Tied tensors have the column of their leader. Biases whose scales follow from others have none, nor have
formats without a scale.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from onnxq.files import replace_file
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.qat.net import QatNet
from onnxq.torchnet.fake_quantize import DerivedBias, FakeQuantize

NAME = "scales.csv"

MOST_MOMENTS = 60
"""Rows of scales.csv: a chart shows no more, and a network has hundreds of scales."""

DIGITS = 6


@dataclass
class ScaleCourse:
    """The scales of `tensors` after `steps`, `every` so many and at both ends; one row of `rows` for each moment."""

    every: int
    tensors: tuple[str, ...]
    steps: list[int] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)

    @classmethod
    def of(cls, net: QatNet, steps: int) -> ScaleCourse:
        """An empty course for a training of so many steps."""
        known = [name for name, module in net.fake_quantizers.items() if _has_scale(module)]
        return cls(max(-(-steps // (MOST_MOMENTS - 1)), 1), tuple(known))

    def due(self, step: int) -> bool:
        return step % self.every == 0

    @torch.no_grad()
    def take(self, step: int, net: QatNet) -> None:
        """The scales of now; a moment that is there already is left as it is."""
        if step in self.steps[-1:]:
            return
        self.steps.append(step)
        self.rows.append([_one(net.fake_quantizers[name].qparams()[0]) for name in self.tensors])

    def write(self, folder: Path) -> Path:
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("step", *self.tensors))
        for step, row in zip(self.steps, self.rows, strict=True):
            writer.writerow((step, *(f"{value:.{DIGITS}g}" for value in row)))
        path = folder / NAME
        replace_file(path, lambda out: out.write(stream.getvalue().encode("utf-8", "surrogatepass")))
        return path

    def to_json(self) -> JsonObject:
        return {"every": self.every, "tensors": list(self.tensors), "steps": self.steps, "rows": self.rows}

    @classmethod
    def from_json(cls, data: JsonMapping) -> ScaleCourse:
        return cls(data["every"], tuple(data["tensors"]), list(data["steps"]), [list(row) for row in data["rows"]])


def _has_scale(module: nn.Module) -> bool:
    """Whether a quantizer has a scale of its own."""
    return isinstance(module, FakeQuantize) and not isinstance(module, DerivedBias) and module.spec.has_scale


def _one(scale: Tensor) -> float:
    """The scale, or the geometric mean of several."""
    if scale.numel() == 1:
        return float(scale.reshape(()))
    return float(scale.double().abs().clamp_min(torch.finfo(torch.float64).tiny).log().mean().exp())
