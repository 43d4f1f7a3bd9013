"""What the checks of an emitted model found: values that a report prints and a caller turns into an exit code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
    reshaped     samples whose output had another shape than the float model's (outputs that depend on the data)
    """

    name: str
    sqnr_db: float | None = None
    cosine: float | None = None
    max_abs_error: float | None = None
    agreement: float | None = None
    compared: int = 0
    reshaped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; JSON has no infinity, which becomes text."""
        data = {key: value for key, value in vars(self).items() if value is not None}
        return {key: str(v) if isinstance(v, float) and not math.isfinite(v) else v for key, v in data.items()}


@dataclass(frozen=True)
class VerifyReport:
    """All checks of one file; it may be used when `failures` is empty. `warnings` are worth a look.

    kernels      what onnxruntime's optimizer makes of the file here; None where it was not asked
    kernel_db    SQNR of these kernels against the file's own meaning, the worst over all float outputs; a low value
                 means that the processor saturates (x86 without VNNI adds pairs of uint8 * int8 products in 16 bits)
    """

    samples: int
    seconds: float
    outputs: tuple[OutputCheck, ...] = ()
    findings: tuple[Finding, ...] = ()
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kernels: KernelCount | None = None
    kernel_db: float | None = None

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output -> SQNR, float outputs only."""
        return {check.name: check.sqnr_db for check in self.outputs if check.sqnr_db is not None}

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
            "kernel_db": self.kernel_db
            if self.kernel_db is None or math.isfinite(self.kernel_db)
            else str(self.kernel_db),
        }
