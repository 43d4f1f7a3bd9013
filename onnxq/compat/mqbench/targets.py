"""MQBench's backends: the targets of onnxq that they are, by the names that targets say they have there (`KnownAs`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from onnxq.errors import ConfigError, did_you_mean
from onnxq.targets import BACKENDS, file_of_backend, get_backend, joined_name, split_name
from onnxq.types import Backend, KnownAs
from onnxq.types.dialect import DIALECTS


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


@dataclass(frozen=True)
class Target:
    """A backend of onnxq: `name` with the options that were given, the backend, and MQBench's defaults for it."""

    name: str
    backend: Backend
    options: Mapping[str, str]
    defaults: KnownAs

    @property
    def family(self) -> str:
        """The name without options."""
        return split_name(self.name)[0]

    def serves(self, wanted: Target) -> bool:
        """Whether what is prepared for this target is what `wanted` asks for; options may be left out in `wanted`."""
        if self.family != wanted.family:
            return False
        other_target = any(known.options and known.options == self.options for known in self.backend.known_as)
        return self.options == wanted.options or not (wanted.options or other_target)

    def with_option(self, key: str, value: str) -> Target:
        """The same target with one option set; the option's earlier value, if any, is replaced."""
        kept = {name: held for name, held in self.options.items() if name != key}
        return find_target(joined_name(self.family, {**kept, key: value}))


def find_target(backend: object) -> Target:
    """The target that a name means: one of MQBench's in any case, one of onnxq's, an enum member, with options.

    The path of a file that registers a backend is passed on as it is.
    """
    if isinstance(backend, Backend):
        return Target(backend.name, backend, backend.chosen, _defaults(backend))
    given = backend if isinstance(backend, str) else getattr(backend, "name", None)
    if not isinstance(given, str) or not given:
        raise ConfigError(f"a backend is a name or a BackendType, not {backend!r}. Known: {', '.join(_known())}")
    if file_of_backend(given) is not None:
        loaded = get_backend(given)
        return Target(given, loaded, loaded.chosen, _defaults(loaded))
    wanted, mark, options = given.removeprefix("BackendType.").partition(":")
    wanted = wanted.strip()
    name = _names().get(wanted.lower(), wanted.lower())
    if wanted in BACKENDS:
        name = wanted
    elif split_name(name)[0] not in BACKENDS:
        for key, dialect in DIALECTS.items():
            if not dialect.target and wanted.lower().startswith(key) and key not in BACKENDS:
                raise ConfigError(
                    f"'{wanted}' belongs to {dialect.tool}'s tool, whose configuration names the chip: use "
                    f"{dialect.module}"
                )
        raise ConfigError(f"unknown backend '{wanted}'.{did_you_mean(wanted, _known())} Known: {', '.join(_known())}")
    if mark:
        name = f"{name},{options}" if ":" in name else f"{name}:{options}"
    found = get_backend(name)
    return Target(name, found, split_name(name)[1], _defaults(found))


def _names() -> dict[str, str]:
    """MQBench's names without regard to case -> the target, with the options that make it the same."""
    return {
        known.name.lower(): joined_name(name, known.options)
        for name, backend in BACKENDS.items()
        for known in backend.known_as
    }


def _defaults(backend: Backend) -> KnownAs:
    return backend.known_as[0] if backend.known_as else KnownAs(backend.name)


def _known() -> list[str]:
    """MQBench's names first; names of onnxq that differ only in case are not repeated."""
    theirs = [member.value for member in BackendType]
    lowered = {name.lower() for name in theirs}
    return [*theirs, *(name for name in BACKENDS.names() if name not in lowered)]
