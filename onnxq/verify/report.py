"""What the checks of an emitted model found: values that a report prints and a caller turns into an exit code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxq.errors import OnnxqError
from onnxq.files import json_number
from onnxq.verify.kernels import KernelCount


@dataclass(frozen=True)
class Finding:
    """One violation of a target's limits: which rule, where, what is wrong, and what to do about it."""

    rule: str
    tensor: str
    node: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.message}. {self.remedy}"


@dataclass(frozen=True)
class OutputCheck:
    """One output of the float model against the quantized one.

    sqnr_db      for float outputs; inf without any difference, None for other types
    agreement    for integers, bools and text: the fraction of equal values; None for floats
    compared     values that went into it; those the float model has as NaN, infinity or mask do not
    kernel_db, kernel_agreement   the same measures between onnxruntime's fused kernels on this machine and the
                 file's own meaning; None where they were not measured
    reshaped     samples whose output had another shape than the float model's (outputs that depend on the data)
    parts_db     SQNR of each part of an output that was joined of unlike ones (boxes and scores); mostly empty
    """

    name: str
    sqnr_db: float | None = None
    cosine: float | None = None
    max_abs_error: float | None = None
    agreement: float | None = None
    compared: int = 0
    reshaped: int = 0
    kernel_db: float | None = None
    kernel_agreement: float | None = None
    parts_db: Mapping[str, float] = field(default_factory=dict)

    @property
    def kernel_margin_db(self) -> float:
        """How far the error of this machine's kernels lies below that of the quantization; negative when above.

        Outputs that are not float count by their disagreeing values. inf where nothing was measured.
        """
        if self.kernel_db is not None and self.sqnr_db is not None:
            return math.inf if math.isinf(self.sqnr_db) and self.kernel_db > 100 else self.kernel_db - self.sqnr_db
        if self.kernel_agreement is not None and self.agreement is not None:
            wrong, allowed = 1.0 - self.kernel_agreement, 0.02 + (1.0 - self.agreement)
            return math.inf if wrong == 0 else 10.0 * math.log10(allowed / wrong)
        return math.inf

    def to_json(self) -> dict[str, Any]:
        """Plain values; JSON has no infinity, which becomes text."""
        data = {key: value for key, value in vars(self).items() if value is not None and value != {}}
        if self.parts_db:
            data["parts_db"] = {name: json_number(value) for name, value in self.parts_db.items()}
        return {key: json_number(value) if isinstance(value, float) else value for key, value in data.items()}


@dataclass(frozen=True)
class VerifyReport:
    """All checks of one file; it may be used when `failures` is empty. `warnings` are worth a look.

    kernels      what onnxruntime's optimizer makes of the file here; None where it was not asked
    refusal      the error with which onnxruntime did not load or run the file; it is among the failures
    notes        what is not as ONNX wants it, and was not in the float model either
    """

    samples: int
    seconds: float
    outputs: tuple[OutputCheck, ...] = ()
    findings: tuple[Finding, ...] = ()
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kernels: KernelCount | None = None
    refusal: OnnxqError | None = None
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output -> SQNR, float outputs only."""
        return {check.name: check.sqnr_db for check in self.outputs if check.sqnr_db is not None}

    @property
    def parts_db(self) -> dict[str, float]:
        """SQNR of the parts of outputs that were joined of unlike ones."""
        return {label: value for check in self.outputs for label, value in check.parts_db.items()}

    @property
    def kernel_margin_db(self) -> float:
        """The smallest margin of all outputs: see `OutputCheck.kernel_margin_db`."""
        return min((check.kernel_margin_db for check in self.outputs), default=math.inf)

    @property
    def worst_db(self) -> float | None:
        """The lowest SQNR of all float outputs; None when there is none."""
        return min((check.sqnr_db for check in self.outputs if check.sqnr_db is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "outputs": [check.to_json() for check in self.outputs],
            "findings": [vars(finding) for finding in self.findings],
            "failures": list(self.failures),
            "warnings": list(self.warnings),
        }
