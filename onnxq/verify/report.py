"""What the checks of an emitted model found: values that a report prints and a caller turns into an exit code."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from onnxq.errors import CheckFailed, OnnxqError
from onnxq.files import json_number
from onnxq.json_file import JsonObject
from onnxq.lint.finding import Finding
from onnxq.verify.kernels import KernelCount

if TYPE_CHECKING:
    import onnxruntime as ort


class FailureKind(StrEnum):
    """What is wrong with a file that must not be used."""

    INVALID = "invalid"
    """The ONNX checker or onnxruntime refuses it, or it does not run."""
    MODEL_IO = "model_io"
    """Inputs, outputs or metadata are not those of the float model."""
    LIMITS = "limits"
    """A limit of the target is broken: see `Finding`."""
    NOT_QUANTIZED = "not_quantized"
    """The plan quantizes tensors, and the file has no quantizer."""
    NOT_FINITE = "not_finite"
    """NaN or infinity where the float model has numbers."""
    LOW = "low"
    """An output, or a part of one, below the required SQNR."""
    SILENT = "silent"
    """An output, or a part of one, that has one value for everything where the float model's values differ."""
    OTHER = "other"
    """A check that the caller has added."""


@dataclass(frozen=True)
class Failure:
    """One reason not to use a file. `result` and `sqnr_db` are those of `LOW` and `SILENT` outputs and parts."""

    kind: FailureKind
    text: str
    result: str | None = None
    sqnr_db: float | None = None

    def __str__(self) -> str:
        return self.text


class ChecksFailed(CheckFailed):
    """Checks of written files failed, so that no files are there; `failures` says what, `results` how good it was."""

    def __init__(self, text: str, failures: tuple[Failure, ...], results: tuple[ResultCheck, ...]) -> None:
        super().__init__(text)
        self.failures = failures
        self.results = results


@dataclass(frozen=True)
class SampleFigures:
    """How the noise of a result lies in single samples.

    median_db    SQNR of the middle sample
    worst        number of the sample with the most noise, as the dataset counts; worst_db is its SQNR
    worst_share  the part of the noise of all samples that it has
    margin_db    what one standard error of the noise takes from the SQNR of all samples: much, where few of them have
                 the noise
    """

    count: int
    median_db: float
    worst: int
    worst_db: float
    worst_share: float
    margin_db: float = 0.0

    def to_json(self) -> JsonObject:
        return {key: json_number(value) if isinstance(value, float) else value for key, value in asdict(self).items()}


class DecisionKind(StrEnum):
    """What a caller reads from scores."""

    ARG_MAX = "arg_max"
    """The class with the highest score, at each position."""
    ABOVE_HALF = "above_half"
    """Scores above half of the sample's highest one: those that are so in both models, of those that are so in one."""
    BINARY = "binary"
    """Whether single scores are above 0.5, or single logits above 0."""


@dataclass(frozen=True)
class Decisions:
    """Whether what is decided by scores survives: the fraction of `compared` decisions that are the float model's."""

    kind: DecisionKind
    agreement: float
    compared: int

    def to_json(self) -> JsonObject:
        return {"kind": self.kind.value, "agreement": round(self.agreement, 6), "compared": self.compared}


@dataclass(frozen=True)
class ResultCheck:
    """A floating-point result that is evaluated by itself: an output, or a part of one ("output0[:, 4:84]").

    silent       it has one value for everything, where the values of the float model differ
    samples      None where there was nothing to compare
    decisions    None where it does not look like scores
    """

    name: str
    output: str
    sqnr_db: float
    silent: bool = False
    samples: SampleFigures | None = None
    decisions: Decisions | None = None

    @property
    def is_part(self) -> bool:
        return self.name != self.output

    @property
    def title(self) -> str:
        """What to call it in a sentence."""
        return f"part '{self.name}'" if self.is_part else f"output '{self.name}'"

    def to_json(self) -> JsonObject:
        return {"name": self.name, "sqnr_db": json_number(self.sqnr_db), **_further(self)}


@dataclass(frozen=True)
class OutputCheck:
    """One output of the float model against the quantized one.

    sqnr_db      for float outputs; inf without any difference, None for other types
    agreement    for integers, bools and text: the fraction of equal values; None for floats
    compared     values that went into it; those the float model has as NaN, infinity or mask do not
    kernel_db, kernel_agreement   the same measures between onnxruntime's fused kernels on this machine and the
                 file's own meaning; None where they were not measured
    reshaped     samples whose output had another shape than the float model's: a selection by the data, which is not
                 compared, or a Loop or If that went another way, where what is missing or too much counts as noise
    silent       it has one value for everything, where the values of the float model differ
    samples      how its noise lies in single samples
    decisions    whether what is decided by it survives, where it looks like scores
    parts        the results of which it is joined, where these are unlike (boxes and scores) or one is silent; mostly
                 empty
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
    silent: bool = False
    samples: SampleFigures | None = None
    decisions: Decisions | None = None
    parts: tuple[ResultCheck, ...] = ()

    @property
    def parts_db(self) -> dict[str, float]:
        """Part -> SQNR."""
        return {part.name: part.sqnr_db for part in self.parts}

    @property
    def results(self) -> tuple[ResultCheck, ...]:
        """What is evaluated by itself: the output and its parts; nothing where it is not floating-point."""
        if self.sqnr_db is None:
            return ()
        whole = ResultCheck(self.name, self.name, self.sqnr_db, self.silent, self.samples, self.decisions)
        return (whole, *self.parts)

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

    def to_json(self) -> JsonObject:
        """Plain values; JSON has no infinity, which becomes text."""
        numbers = {
            key: json_number(value) if isinstance(value, float) else value
            for key, value in vars(self).items()
            if isinstance(value, str | float | int) and key != "silent"
        }
        parts_db = {name: json_number(value) for name, value in self.parts_db.items()}
        parts = {"parts_db": parts_db, "parts": [part.to_json() for part in self.parts]} if self.parts else {}
        return {**numbers, **_further(self), **parts}


def _further(check: OutputCheck | ResultCheck) -> JsonObject:
    """What outputs and parts have in common, where there is something to say."""
    found: JsonObject = {"silent": True} if check.silent else {}
    if check.samples is not None:
        found["per_sample"] = check.samples.to_json()
    if check.decisions is not None:
        found["decisions"] = check.decisions.to_json()
    return found


@dataclass(frozen=True)
class SelectionCheck:
    """What a node selects by itself: the fraction of `compared` entries that it selects in the float model too.

    Outputs behind it are compared for what the float model selects (`onnxq.verify.selections`).
    """

    node: str
    op: str
    agreement: float
    compared: int

    def to_json(self) -> JsonObject:
        return {"node": self.node, "op": self.op, "agreement": round(self.agreement, 6), "compared": self.compared}


@dataclass(frozen=True)
class VerifyReport:
    """All checks of one file; it may be used when `failures` is empty. `warnings` are worth a look.

    kernels      what onnxruntime's optimizer makes of the file here; None where it was not asked
    nodes        how many the file has; 0 where it could not be read
    refusal      the error with which onnxruntime did not load or run the file; it is among the failures
    selections   what TopK, NonMaxSuppression and NonZero select; mostly empty
    notes        what is not as ONNX wants it, and was not in the float model either; what could not be evaluated
    session      the file as users run it in onnxruntime, where it was made in one thread: for measuring its speed
    """

    samples: int
    seconds: float
    outputs: tuple[OutputCheck, ...] = ()
    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    kernels: KernelCount | None = None
    nodes: int = 0
    notes: tuple[str, ...] = ()
    refusal: OnnxqError | None = None
    selections: tuple[SelectionCheck, ...] = ()
    session: ort.InferenceSession | None = field(default=None, compare=False, repr=False)

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output -> SQNR, float outputs only."""
        return {check.name: check.sqnr_db for check in self.outputs if check.sqnr_db is not None}

    @property
    def results(self) -> tuple[ResultCheck, ...]:
        """Every floating-point output, each followed by its parts."""
        return tuple(result for check in self.outputs for result in check.results)

    @property
    def parts_db(self) -> dict[str, float]:
        """SQNR of the parts of outputs that were joined of unlike ones."""
        return {label: value for check in self.outputs for label, value in check.parts_db.items()}

    def low(self, below_db: float) -> tuple[ResultCheck, ...]:
        """Outputs and parts below an SQNR, and those that are silent."""
        return tuple(result for result in self.results if result.silent or result.sqnr_db < below_db)

    @property
    def kernel_margin_db(self) -> float:
        """The smallest margin of all outputs: see `OutputCheck.kernel_margin_db`."""
        return min((check.kernel_margin_db for check in self.outputs), default=math.inf)

    @property
    def worst_db(self) -> float | None:
        """The lowest SQNR of all float outputs and their parts; None when there is none."""
        return min((result.sqnr_db for result in self.results), default=None)

    def to_json(self) -> JsonObject:
        return {
            "passed": self.passed,
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "outputs": [check.to_json() for check in self.outputs],
            **({"selections": [check.to_json() for check in self.selections]} if self.selections else {}),
            "findings": [vars(finding) for finding in self.findings],
            "failures": [str(failure) for failure in self.failures],
            "warnings": list(self.warnings),
        }
