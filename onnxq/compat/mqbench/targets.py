"""MQBench's backends: the targets of onnxq that they are, and what MQBench uses there where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from onnxq.errors import ConfigError, did_you_mean
from onnxq.targets import BACKENDS, file_of_backend, get_backend
from onnxq.types import Backend


class BackendType(Enum):
    """The names under which MQBench's users know the targets."""

    Academic = "Academic"
    Tensorrt = "Tensorrt"
    SNPE = "SNPE"
    PPLW8A16 = "PPLW8A16"
    NNIE = "NNIE"
    Vitis = "Vitis"
    ONNX_QNN = "ONNX_QNN"
    PPLCUDA = "PPLCUDA"
    OPENVINO = "OPENVINO"
    Tengine_u8 = "Tengine_u8"
    Tensorrt_NLP = "Tensorrt_NLP"
    Academic_NLP = "Academic_NLP"
    STPU = "STPU"
    QDQ = "QDQ"


_OTHER_NAMES = MappingProxyType({"qdq": "tensorrt:tables=no"})
"""Names that are no target of onnxq, even without regard to case. QDQ is TensorRT's scheme without its tables."""


@dataclass(frozen=True)
class Defaults:
    """Observers and fake-quantizers that get arguments which name neither."""

    w_observer: str = "MinMaxObserver"
    a_observer: str = "EMAMinMaxObserver"
    fakequantize: str = "LearnableFakeQuantize"


_DEFAULTS: Mapping[str, Defaults] = MappingProxyType(
    {
        "pplcuda": Defaults(a_observer="MinMaxObserver"),
        "onnx_qnn": Defaults(a_observer="MinMaxObserver"),
        "nnie": Defaults(fakequantize="NNIEFakeQuantize"),
        "vitis": Defaults("MinMaxFloorObserver", "PoTModeObserver", "TqtFakeQuantize"),
        "stpu": Defaults(fakequantize="FixedFakeQuantize"),
    }
)

NEEDS_SCHEMES = ("academic", "academic_nlp")
"""Targets without number formats of their own."""

IGNORES_SCHEMES = ("nnie",)
"""Targets with one number format: MQBench reads nothing but the names of observers for them."""


@dataclass(frozen=True)
class Target:
    """A backend of onnxq: `name` with its options, the backend itself, and MQBench's defaults for it."""

    name: str
    backend: Backend
    defaults: Defaults

    @property
    def family(self) -> str:
        """The name without options."""
        return self.name.partition(":")[0]

    def serves(self, wanted: Target) -> bool:
        """Whether what is prepared for this target is what `wanted` asks for; options may be left out in `wanted`."""
        if self.family != wanted.family:
            return False
        bare = ":" not in wanted.name and self.name not in _OTHER_NAMES.values()
        return bare or self.name == wanted.name

    def with_option(self, key: str, value: str) -> Target:
        """The same target with one option set; the option's earlier value, if any, is replaced."""
        family, _, text = self.name.partition(":")
        kept = [part for part in text.split(",") if part and part.partition("=")[0].strip() != key]
        return find_target(f"{family}:{','.join([*kept, f'{key}={value}'])}")


def find_target(backend: object) -> Target:
    """The target that a name means: one of MQBench's in any case, one of onnxq's, an enum member, with options.

    The path of a file that registers a backend is passed on as it is.
    """
    if isinstance(backend, Backend):
        return Target(backend.name, backend, Defaults())
    given = backend if isinstance(backend, str) else getattr(backend, "name", None)
    if not isinstance(given, str) or not given:
        raise ConfigError(f"a backend is a name or a BackendType, not {backend!r}. Known: {', '.join(_known())}")
    if file_of_backend(given) is not None:
        return Target(given, get_backend(given), Defaults())
    wanted, mark, options = given.removeprefix("BackendType.").partition(":")
    wanted = wanted.strip()
    name = _OTHER_NAMES.get(wanted.lower(), wanted.lower())
    if wanted in BACKENDS:
        name = wanted
    elif wanted.lower().startswith("sophgo") and name not in BACKENDS:
        raise ConfigError(
            f"'{wanted}' belongs to Sophgo's tool, whose configuration names the chip: use onnxq.targets.sophgo.dialect"
        )
    elif name.partition(":")[0] not in BACKENDS:
        raise ConfigError(f"unknown backend '{wanted}'.{did_you_mean(wanted, _known())} Known: {', '.join(_known())}")
    if mark:
        name = f"{name},{options}" if ":" in name else f"{name}:{options}"
    return Target(name, get_backend(name), _DEFAULTS.get(name.partition(":")[0], Defaults()))


def _known() -> list[str]:
    """MQBench's names first; names of onnxq that differ only in case are not repeated."""
    theirs = [member.value for member in BackendType]
    lowered = {name.lower() for name in theirs}
    return [*theirs, *(name for name in BACKENDS.names() if name not in lowered)]
