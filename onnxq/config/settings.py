"""Config: everything a run can be told, in the order in which the pipeline does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, StrictBool, field_validator, model_validator

from onnxq.config.option import Option
from onnxq.config.quantizers import InputSettings, NodeSettings, QuantizerSettings, Strict, located
from onnxq.errors import ConfigError
from onnxq.observers import make_observer
from onnxq.progress.durations import read_duration
from onnxq.ptq.method import read_improvement
from onnxq.runtime.collect import Engine
from onnxq.runtime.memory import read_size
from onnxq.runtime.preprocessing import read_preprocessing
from onnxq.types.translation import Translation

PLACING = (
    *("backend", "fuse", "skip", "force", "quantize_inputs", "residual", "skip_ties", "observer", "weight_observer"),
    *("activation", "weight", "bias", "input", "output", "op", "node", "tensor"),
)
"""Keys that decide about a plan, and nothing after it."""

LONGEST_NAME = 60
"""Letters in the name of the files: what targets append to it, and letters of several bytes, must fit as well."""


def is_plain_name(value: str) -> bool:
    """Whether a text can be the name of files in a folder, and nothing outside of it."""
    return Path(value).name == value and value not in (".", "..") and value.isprintable() and len(value) <= LONGEST_NAME


class Config(Strict):
    """Everything a run can be told, with the backend's choice where a value is left out."""

    backend: Annotated[
        str | None,
        Option(
            "target",
            "--backend -b",
            "Target: a name from 'onnxq list backends', or a backend file.py; else that of -c.",
            unset="that of `-b`",
        ),
    ] = Field(None, min_length=1, description="the target with its options, as -b has it")

    # load
    inputs: dict[str, InputSettings] = Field({}, description="inputs of the model that get a fixed shape or value")
    extra_outputs: tuple[str, ...] = Field((), description="tensors inside the model that become outputs of it too")

    # passes
    passes: tuple[str, ...] = Field((), description="passes to run after the backend's own")
    skip_passes: tuple[str, ...] = Field((), description="graph passes of the backend to leave out")
    fuse: tuple[tuple[str, ...], ...] = Field(
        (), description='chains of operators that run as one, such as ["Conv", "Sigmoid"]: no quantizer in between'
    )

    # place
    skip: Annotated[
        tuple[str, ...],
        Option(
            "place",
            help="Nodes that stay float: name, glob, re:REGEX, op:OPERATOR. Repeatable.",
            metavar="PATTERN",
            adds=True,
        ),
    ] = Field((), description="nodes to leave float: exact name, glob, re:REGEX or op:OPERATOR")
    force: tuple[str, ...] = Field((), description="nodes to quantize though the target's rules leave them float")
    quantize_inputs: StrictBool | None = Field(None, description="a quantizer on every float input of the model")
    residual: Literal["both", "skip"] | None = Field(
        None, description="an Add of two branches: quantize both inputs, or not the one fused into its convolution"
    )
    skip_ties: tuple[str, ...] = Field(
        (), description="operators that the backend gives one scale on both sides and that shall have two"
    )
    activation: QuantizerSettings = Field(QuantizerSettings(), description="all computed tensors")
    weight: QuantizerSettings = Field(QuantizerSettings(), description="all weights")
    bias: QuantizerSettings = Field(QuantizerSettings(), description="all biases")
    input: QuantizerSettings = Field(QuantizerSettings(), description="the model's inputs")
    output: QuantizerSettings = Field(QuantizerSettings(), description="the model's outputs")
    op: dict[str, NodeSettings] = Field({}, description="by operator: [op.Conv]")
    node: dict[str, NodeSettings] = Field({}, description="by node: exact name, glob or re:REGEX")
    tensor: dict[str, QuantizerSettings] = Field({}, description="by tensor: exact name, glob or re:REGEX")

    # calibrate
    data: Annotated[
        str | None,
        Option(
            "data",
            "--data -d",
            "Samples: .npz or .npy file, folder of them or of images, or module:function.",
            unset="those of `-d`",
        ),
    ] = Field(None, min_length=1, description="calibration samples, as -d has them")
    observer: Annotated[str | None, Option("ranges")] = Field(
        None, min_length=1, description="how ranges of activations are found, such as percentile:99.99"
    )
    weight_observer: Annotated[str | None, Option("ranges")] = Field(
        None, min_length=1, description="how ranges of weights are found"
    )
    preprocess: Annotated[
        str | dict[str, Any] | None,
        Option(
            "images",
            help="How images become arrays: imagenet, unit, signed, or resize=256,crop=224,...",
            unset="from the model's input",
        ),
    ] = Field(None, description="how images become arrays: imagenet, unit, signed, or a table of settings")
    samples: Annotated[int | None, Option("samples", help="Use at most N samples.", metavar="N", unset="all")] = Field(
        None, ge=1, strict=True, description="use at most this many calibration samples"
    )
    workers: Annotated[
        int | None,
        Option(
            "engine", help="Samples to run at the same time; every core by default.", metavar="N", unset="every core"
        ),
    ] = Field(None, ge=1, strict=True, description="samples that are run at the same time")
    memory_limit: Annotated[
        str | int | None, Option("engine", metavar="SIZE", unset="a quarter of the free memory")
    ] = Field(None, description="what calibration may hold of observed tensors, such as 2GB")
    provider: Annotated[str | None, Option("engine", unset="the CPU")] = Field(
        None, min_length=1, description="onnxruntime's execution provider for calibration, such as cuda"
    )

    # refine
    skip_refinements: tuple[str, ...] = Field((), description="refinements of the backend to leave out")

    # improve
    effort: Annotated[
        int,
        Option(
            "improve",
            help="What is tried for accuracy: 0 calibration only; 1 (by default) some tens of runs over the samples; "
            "2 minutes; 3 longer.",
            metavar="0..3",
        ),
    ] = Field(
        1,
        ge=0,
        le=3,
        strict=True,
        description="what is tried for accuracy: 0 nothing, 1 seconds, 2 roundings (minutes), 3 blocks (longer)",
    )
    improvements: Annotated[
        tuple[str, ...] | None,
        Option(
            "improve",
            "--improve",
            "This improvement in the place of those of the default effort, such as gptq:act_order=no. Repeatable.",
            metavar="NAME",
            unset="those of the effort",
        ),
    ] = Field(
        None,
        description="these improvements, in order, in the place of those of the default effort; with an effort that is "
        "given, beside those",
    )
    skip_improvements: tuple[str, ...] = Field((), description="improvements of the effort to leave out")
    skip_steps: tuple[str, ...] = Field(
        (),
        description="steps of the search to leave out, as number:name of report.json; how config.json of a run with a "
        "time limit repeats it on any machine",
    )
    time_limit: Annotated[
        str | int | None,
        Option(
            "time",
            help="Leave out improvements and the diagnosis where the run would take longer, such as 90s, 2m or 1h30m. "
            "What was left out is in the summary; the result depends on the machine.",
            metavar="TIME",
            unset="none",
        ),
    ] = Field(
        None,
        description="what `quantize` may take, such as 90s or 2m (a number is seconds): improvements, diagnosis and "
        "the layers of the page are left out where they do not fit",
    )

    # latency
    optimize_for: Annotated[
        Literal["latency"] | None,
        Option(
            "latency",
            "--for",
            "latency: time groups of nodes in onnxruntime and leave float what is slower in integers (a minute).",
            unset="as the target's rules say",
        ),
    ] = Field(
        None,
        description="latency: nodes are timed in onnxruntime on this machine, and stay float where that is faster",
    )

    # half precision
    keep_float32: tuple[str, ...] = Field(
        (), description="nodes that compute in float32 where the rest of the target is half precision (`rest=fp16`)"
    )

    # emit
    name: str = Field("model", min_length=1, description="the files are called <name>.onnx, <name>_...")
    weight_storage: Literal["integer", "float"] | None = Field(
        None, description="integers in the file, or float with Q/DQ"
    )
    portable: StrictBool = Field(
        False, description="onnxruntime: weights that no processor's kernels saturate, at some speed"
    )
    skip_emitters: tuple[str, ...] = Field((), description="files of the backend to leave out, by their emitter")
    skip_simulations: tuple[str, ...] = Field(
        (), description="operators that `simulate` computes as ONNX has them, not as the chip does"
    )

    # verify
    strict: StrictBool = Field(False, description="refuse operators without a rule; a warning makes the exit code 1")
    verify_samples: int = Field(
        16, ge=1, strict=True, description="samples on which the written file is compared with the float model"
    )
    minimum_sqnr_db: Annotated[
        float,
        Option("verify", "--min-sqnr", "An output, or a part of one, below this many dB fails the run.", metavar="DB"),
    ] = Field(
        5.0,
        strict=True,
        allow_inf_nan=False,
        description="an output, or part of one, below this fails the run; so does a silent one, unless this is below"
        " 0. Unless it is set, results have to pass it by a standard error",
    )
    diagnose: Annotated[
        StrictBool,
        Option(
            "diagnose",
            "--diagnose/--no-diagnose",
            "Find out why a result is below 20 dB and what fixes it. By default with --effort 2 and 3, with 1 below 10 "
            "dB, with 0 only if a check fails.",
        ),
    ] = Field(
        True,
        description="find out why a result is below 20 dB, and what fixes it; unless it is given, with effort 1 only "
        "below 10 dB, with effort 0 only where a check fails",
    )

    # report
    report: Annotated[
        Literal["no", "quick", "full"] | None,
        Option(
            "report",
            help="report.html: no; quick, with what calibration saw; full (by default, with --effort 0 quick), with "
            "the noise of every layer.",
            unset="full, with effort 0 quick",
        ),
    ] = Field(
        None,
        description="the page report.html: no, quick (what calibration saw) or full (the noise of layers too)",
    )

    _sources: dict[tuple[str, ...], str] = PrivateAttr(default_factory=dict)
    _translation: Translation | None = PrivateAttr(default=None)

    @field_validator("preprocess", mode="before")
    @classmethod
    @located
    def _check_preprocess(cls, value: Any) -> Any:
        steps = read_preprocessing(value)
        return asdict(steps) if steps is value and steps is not None else value

    @model_validator(mode="after")
    @located
    def _check_tables(self) -> Config:
        for role in ("activation", "weight", "bias", "input", "output"):
            if getattr(self, role).share is not None:
                raise ConfigError(f"[{role}] share: one quantizer for all is not possible, name nodes or tensors")
        for pattern in self.tensor:
            if pattern.startswith("op:"):
                raise ConfigError(f'[tensor."{pattern}"]: op: names nodes, use [op.{pattern[3:]}]')
        return self

    @field_validator("name")
    @classmethod
    @located
    def _check_name(cls, value: str) -> str:
        if not is_plain_name(value):
            raise ConfigError(f"name: files are written into the folder of -o, so {value!r} must be a plain name")
        return value

    @field_validator("observer", "weight_observer")
    @classmethod
    @located
    def _check_observer(cls, value: str | None) -> str | None:
        if value is not None:
            make_observer(value)
        return value

    @field_validator("improvements")
    @classmethod
    @located
    def _check_improvements(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for text in value or ():
            read_improvement(text)
        return value

    @field_validator("time_limit", mode="before")
    @classmethod
    @located
    def _check_time_limit(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ConfigError(f"must be text or a number (got {value!r})")
        if isinstance(value, str | int | float):
            read_duration(value)
        return f"{value}s" if isinstance(value, float) else value

    @field_validator("skip_steps")
    @classmethod
    @located
    def _check_skip_steps(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            number, _, name = text.partition(":")
            if not number.isdecimal() or not int(number) or not name:
                raise ConfigError(f"a step is its number and its name, such as 3:gptq, got '{text}'")
        return value

    @field_validator("memory_limit", mode="before")
    @classmethod
    @located
    def _check_memory_limit(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ConfigError(f"must be text or a whole number (got {value!r})")
        if isinstance(value, str | int):
            read_size(value)
        return value

    def engine(self) -> Engine:
        """How calibration runs the model."""
        limit = None if self.memory_limit is None else read_size(self.memory_limit)
        return Engine(self.workers, limit, self.provider)

    def recorded(self) -> dict[str, Any]:
        """What was set and changes results, for a plan to remember."""
        return self.model_dump(
            mode="json",
            exclude_defaults=True,
            exclude={
                "backend",
                "data",
                "workers",
                "memory_limit",
                "strict",
                "diagnose",
                "report",
                # Of no effect on a plan: what they found stands in the parameters and in the float model beside them.
                "effort",
                "improvements",
                "skip_improvements",
                "skip_steps",
                "time_limit",
            },
        )

    @property
    def sources(self) -> dict[tuple[str, ...], str]:
        """Path of a value -> where it was set."""
        return dict(self._sources)

    @property
    def translation(self) -> Translation | None:
        """The other tool's configuration that this one was made of."""
        return self._translation

    def with_sources(self, sources: Mapping[tuple[str, ...], str], translation: Translation | None = None) -> Config:
        """The same settings with other knowledge of where they come from."""
        twin = self.model_copy()
        twin._sources, twin._translation = dict(sources), translation
        return twin

    def source(self, *path: str) -> str:
        """Where a value was set: a line of a file, an option, a key of another tool; the path itself if unknown."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._sources:
                return self._sources[path[:length]]
        return ".".join(path)
