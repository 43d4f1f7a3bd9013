"""Fake-quantizers: how training treats a quantizer, by name, with arguments, and what it means without training."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from onnxq.errors import ConfigError, SpecError, did_you_mean
from onnxq.json_file import JsonMapping
from onnxq.plugins import load_installed
from onnxq.registry import read_arguments
from onnxq.types.number_format import number_format
from onnxq.types.plan import Role

EVERYWHERE: tuple[Role, ...] = ("activation", "weight", "bias", "output")
ACTIVATIONS: tuple[Role, ...] = ("activation", "output")
WEIGHTS: tuple[Role, ...] = ("weight",)


@dataclass(frozen=True)
class Argument:
    """A number that a fake-quantizer takes, and the values that are allowed: those inside `low` .. `high`.

    `closed` lets the two ends in.
    """

    name: str
    default: float
    low: float = 0.0
    high: float = math.inf
    closed: bool = False

    def allows(self, value: float) -> bool:
        inside = self.low <= value <= self.high if self.closed else self.low < value < self.high
        return inside and math.isfinite(value)

    @property
    def allowed(self) -> str:
        if math.isinf(self.high):
            return f"above {self.low:g}"
        return f"{self.low:g} .. {self.high:g}" + ("" if self.closed else ", the ends left out")


@dataclass(frozen=True)
class Kind:
    """A fake-quantizer as data.

    summary    what it does in training
    untrained  what it does to a model that is not trained
    learns     what training finds, in words; empty where nothing is learnt
    roles      the tensors it makes sense for
    implied    what it demands of the number format, in the words of a configuration
    """

    name: str
    summary: str
    untrained: str
    learns: str = ""
    roles: tuple[Role, ...] = EVERYWHERE
    arguments: tuple[Argument, ...] = ()
    implied: JsonMapping = field(default_factory=dict)


_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_AS_FIXED = "the same numbers as fixed"
_FORMAT = "the number format itself; nothing depends on training"

_GRADIENTS = Argument("use_grad_scaling", 1.0, high=1.0, closed=True)
"""1: gradients of scales have the factor of LSQ's paper; 0: they are the plain sums."""

_KINDS = (
    Kind("fixed", "scale and zero point stay as calibration found them", "rounds with the calibrated scale"),
    Kind(
        "lsq",
        "Learned Step Size Quantization: the scale is trained with the weights",
        _AS_FIXED,
        "scale",
        arguments=(_GRADIENTS,),
    ),
    Kind(
        "lsq_plus",
        "LSQ+: scale and zero point are trained with the weights; without a zero point (symmetric) it is lsq",
        _AS_FIXED,
        "scale and zero point",
        arguments=(_GRADIENTS,),
    ),
    Kind("nnie", "the logarithmic grid of HiSilicon's NNIE", _FORMAT, implied={"dtype": "nnie8"}),
    Kind(
        "dorefa",
        "DoReFa-Net: the weights that are trained go through tanh and are divided by their largest",
        "the same numbers as fixed: tanh would change a network that was not trained with it",
        roles=WEIGHTS,
    ),
    Kind(
        "dsq",
        "Differentiable Soft Quantization: steps of tanh stand for rounding while gradients are computed",
        "the same numbers as fixed: the soft steps end in the same rounding",
        arguments=(Argument("alpha", 0.4, high=1.0),),
    ),
    Kind(
        "pact",
        "Parameterized Clipping Activation: the limit alpha of the range is trained",
        "the range is limited to [-alpha, alpha] before the scale is computed",
        "limit of the range",
        ACTIVATIONS,
        (Argument("alpha", 6.0),),
        {"per_channel": False},
    ),
    Kind(
        "tqt",
        "Trained Quantization Thresholds: the logarithm of a power-of-two scale is trained",
        "power-of-two scale, symmetric; apart from that the same numbers as fixed",
        "scale",
        implied={"power_of_two": True, "symmetric": True},
    ),
    Kind(
        "adaround",
        "AdaRound: for every weight, layer by layer, whether it is rounded up or down",
        "the same numbers as fixed: rounding to the nearest is where it starts from",
        "rounding of every weight",
        WEIGHTS,
    ),
    Kind(
        "qdrop",
        "QDrop: while layers are reconstructed, values are quantized with probability p and float otherwise",
        "the same numbers as fixed: nothing is dropped outside of training",
        "scale",
        ACTIVATIONS,
        (Argument("p", 1.0, high=1.0, closed=True),),
    ),
    Kind("e4m3", "8-bit floating point, 4 bits of exponent", _FORMAT, implied={"dtype": "fp8_e4m3"}),
    Kind("e5m2", "8-bit floating point, 5 bits of exponent", _FORMAT, implied={"dtype": "fp8_e5m2"}),
    Kind("fp16", "IEEE half precision", _FORMAT, implied={"dtype": "fp16"}),
    Kind("bf16", "bfloat16", _FORMAT, implied={"dtype": "bf16"}),
)

_known: dict[str, Kind] = {kind.name: kind for kind in _KINDS}

KINDS: Mapping[str, Kind] = MappingProxyType(_known)
"""Name -> kind, those that plugins have added included."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        # MQBench
        "FixedFakeQuantize": "fixed",
        "LearnableFakeQuantize": "lsq_plus",  # it learns the zero point where there is one
        "NNIEFakeQuantize": "nnie",
        "DoReFaFakeQuantize": "dorefa",
        "DSQFakeQuantize": "dsq",
        "PACTFakeQuantize": "pact",
        "TqtFakeQuantize": "tqt",
        "AdaRoundFakeQuantize": "adaround",
        "QDropFakeQuantize": "qdrop",
        # Sophgo
        "E4M3FakeQuantize": "e4m3",
        "E5M2FakeQuantize": "e5m2",
        "Fp16FakeQuantize": "fp16",
        "BF16FakeQuantize": "bf16",
        # Vitis AI
        "TQTQuantizer": "tqt",
    }
)
"""Names that other tools give to them."""

_ABSENT: Mapping[str, str] = MappingProxyType(
    {
        "FP4FakeQuantize": (
            "a table of 16 to 256 values, such as nf4 or fp6_e2m3, for weights. Use 'e4m3' for floating-point values, "
            "or 'fixed' with dtype int4 or int6"
        ),
        "FPXGROUPFakeQuantize": (
            "tables of 4- and 6-bit floating-point values with one scale for each group of weights. Use 'e4m3', or "
            "'fixed' with dtype int4 and per_channel = true"
        ),
        **dict.fromkeys(
            ("FP4GROUPFakeQuantize", "FP4GROUPFakeQuantize1"),
            "4-bit floating-point values with one scale for each group of weights. Use 'e4m3', or 'fixed' with dtype "
            "int4",
        ),
        "GPTQFakeQuantize": (
            "4-bit weights of groups of 128, where the error of each column is made good in the next ones. Use "
            "'adaround' or 'fixed' with dtype int4 and per_channel = true"
        ),
        "GPTQFP4FakeQuantize": (
            "nf4 weights of groups of 128, where the error of each column is made good in the next ones. Use "
            "'adaround' or 'fixed' with dtype int4 and per_channel = true"
        ),
    }
)
"""Names of other tools without a counterpart: what they are, and what to use."""


_classes: dict[type, str] = {}
"""Classes of torch modules -> the kinds that they are registered for, by `onnxq.torchnet.fake_quantize`."""


def add_class(name: str, module: type) -> None:
    """Let a class stand for the kind whose module it is, for configurations that hold classes."""
    _classes[module] = name


def forget_class(module: type) -> None:
    """Take a class out that `add_class` has made known."""
    _classes.pop(module, None)


def name_of_class(module: type) -> str:
    """The kind that a class is registered for."""
    if module in _classes:
        return _classes[module]
    raise ConfigError(
        f"the class {module.__qualname__} is no fake-quantizer of onnxq: make a name known with add_kind, and register "
        "it in FAKE_QUANTIZERS (docs/qat.md, 'Your own fake-quantizers')"
    )


def add_kind(kind: Kind) -> Kind:
    """Make a kind known under its name, as a plugin does; adding an equal one again changes nothing.

    Training needs its module too: a class registered in `onnxq.torchnet.fake_quantize.FAKE_QUANTIZERS`.
    """
    if not _NAME.fullmatch(kind.name):
        raise ConfigError(
            f"a fake-quantizer's name is letters, digits and underscores and begins with a letter, got '{kind.name}'"
        )
    if kind.name in ALIASES or kind.name in _ABSENT or _known.get(kind.name, kind) != kind:
        raise ConfigError(f"fake-quantizer '{kind.name}' exists already; choose another name")
    _known[kind.name] = kind
    return kind


def forget_kind(name: str) -> None:
    """Take a kind out that `add_kind` has made known; unknown names are nobody's loss, onnxq's own stay."""
    if name not in {kind.name for kind in _KINDS}:
        _known.pop(name, None)


@dataclass(frozen=True)
class FakeQuantizer:
    """A kind of `KINDS` with a value for each of its arguments, in their order."""

    name: str
    arguments: tuple[tuple[str, float], ...] = ()

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def implied(self) -> JsonMapping:
        """What it demands of the number format, in the words of a configuration."""
        return self.kind.implied

    def argument(self, name: str) -> float:
        """The value of one of its arguments."""
        return dict(self.arguments)[name]

    def __str__(self) -> str:
        """The shortest text that `read_fake_quantizer` reads back; arguments at their default are left out."""
        defaults = {argument.name: argument.default for argument in self.kind.arguments}
        given = [f"{name}={_shortest(value)}" for name, value in self.arguments if value != defaults[name]]
        return f"{self.name}:{','.join(given)}" if given else self.name


def read_fake_quantizer(description: str | JsonMapping | FakeQuantizer) -> FakeQuantizer:
    """A fake-quantizer from "pact", "pact:4", "pact:alpha=4" or {"name": "pact", "alpha": 4}.

    The names that other tools use (`ALIASES`) are understood as well.
    """
    if isinstance(description, FakeQuantizer):
        return description
    if isinstance(description, str):
        name, _, text = description.partition(":")
        kind = _find(name.strip())
        names = [argument.name for argument in kind.arguments]
        return _build(kind, read_arguments(text, names, f"fake-quantizer '{kind.name}'", "argument"))
    if not isinstance(description, Mapping):
        raise ConfigError(f'a fake-quantizer is a name, such as "lsq", or a table with a "name"; got {description!r}')
    arguments = dict(description)
    if "name" not in arguments:
        raise ConfigError(f'a fake-quantizer needs a "name", one of {", ".join(KINDS)}; got {arguments}')
    return _build(_find(str(arguments.pop("name"))), arguments)


def _find(name: str) -> Kind:
    known = ALIASES.get(name, name)
    if known not in KINDS and name not in _ABSENT:
        load_installed()
        known = next((kind for module, kind in _classes.items() if module.__name__ == name), known)
    if known in KINDS:
        return KINDS[known]
    if name in _ABSENT:
        raise ConfigError(f"onnxq has no fake-quantizer '{name}': {_ABSENT[name]}. Known: {', '.join(KINDS)}")
    raise ConfigError(
        f"unknown fake-quantizer '{name}'.{did_you_mean(name, [*KINDS, *ALIASES])} Known: {', '.join(KINDS)}. Names of "
        f"other tools: {', '.join(ALIASES)}"
    )


def _build(kind: Kind, given: JsonMapping) -> FakeQuantizer:
    _check_format(kind)
    names = [argument.name for argument in kind.arguments]
    for key in given:
        if key not in names:
            raise ConfigError(
                f"fake-quantizer '{kind.name}' has no argument '{key}'.{did_you_mean(str(key), names)} Its arguments: "
                f"{', '.join(names) or 'none'}"
            )
    values = [(item.name, _number(kind, item, given.get(item.name, item.default))) for item in kind.arguments]
    return FakeQuantizer(kind.name, tuple(values))


def _check_format(kind: Kind) -> None:
    """A format that only a fake-quantizer computes could be trained, and then neither calibrated nor written."""
    dtype = kind.implied.get("dtype")
    if dtype is None:
        return
    try:
        number_format(dtype)
    except SpecError as error:
        raise ConfigError(
            f"fake-quantizer '{kind.name}' computes the number format '{dtype}', which nobody else knows, so that no "
            f"file could hold what is trained: add it with onnxq.types.number_format.add_format ({error})"
        ) from None


def _number(kind: Kind, argument: Argument, value: Any) -> float:
    where = f"argument '{argument.name}' of fake-quantizer '{kind.name}' must be a number, {argument.allowed}"
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not argument.allows(number):
        raise ConfigError(f"{where}; got {value!r}")
    return number


def _shortest(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
