"""What calibration found out and had to decide, for the user to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from onnxq.json_file import JsonObject
from onnxq.types import QParamsTable, QuantPlan


@dataclass(frozen=True)
class CalibrationReport:
    """Counts and remarks.

    passes    runs through the data: more than one when the observed tensors did not fit into memory together
    widened   weight -> the largest factor by which a scale grew so that a bias fits into int32
    unseen    tensor -> why it has no range; its quantizer was taken out of the plan
    """

    samples: int = 0
    seconds: float = 0.0
    passes: int = 0
    weights: int = 0
    activations: int = 0
    biases: int = 0
    widened: Mapping[str, float] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "passes": self.passes,
            "weights": self.weights,
            "activations": self.activations,
            "biases": self.biases,
            "widened": dict(self.widened),
            "unseen": dict(self.unseen),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


class Calibration(NamedTuple):
    """The parameters, the plan they belong to (without what no sample reached), and the report."""

    qparams: QParamsTable
    plan: QuantPlan
    report: CalibrationReport
