"""NumberFormat: what a dtype such as "int8" stands for, as a value that answers for itself; and where they are found.

onnxq's own are files of `onnxq.numerics.formats`, which is loaded when the first one is asked for. A plugin adds one
with `add_format`; from then on every stage knows it, because none of them knows a format by its name.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from onnxq.errors import ConfigError, SpecError, did_you_mean
from onnxq.plugins import load_installed
from onnxq.types.at_rest import AtRest
from onnxq.types.attributes import AttributeValues
from onnxq.types.granularity import Granularity, PerChannel, PerTensor

if TYPE_CHECKING:
    from onnxq.types.qparams import QParams
    from onnxq.types.spec import QuantSpec, SpecChanges


class Side(NamedTuple):
    """The numbers on one side of zero in units of the scale, from zero outwards, without zero itself.

    A magnitude of `boundaries[i]` or more is rounded to `levels[i]`, up to the next boundary.
    """

    levels: np.ndarray
    boundaries: np.ndarray


class Operators(Protocol):
    """Adds float ONNX operators behind the tensor `source`, in the scope that makes it; `onnxq.emit` has one."""

    source: Any
    kind: np.dtype[Any]
    """The element type of the source, which the result has too."""

    @property
    def opset(self) -> int: ...

    def add(
        self,
        op: str,
        inputs: list[Any],
        kind: np.dtype[Any] | None = None,
        attrs: AttributeValues | None = None,
        *,
        shaped: bool = True,
        node: str | None = None,
        made: str | None = None,
    ) -> Any:
        """One more operator and its result, of the type of its first input and the shape of the source.

        shaped=False: of a shape that nobody tells. `node` and `made` are ends of names, the operator's by default.
        """

    def constant(self, what: str, values: Any) -> Any:
        """An initializer."""

    def cast(self, tensor: Any, kind: np.dtype[Any]) -> Any:
        """The tensor in this element type."""

    def spread(self, values: np.ndarray, parameters: QParams) -> np.ndarray:
        """A number for each scale of `parameters`, in a shape that broadcasts against the source."""


@dataclass(frozen=True)
class NumberFormat(ABC):
    """The numbers that a tensor can hold, in units of its scale, and how they are computed, stored and written.

    A subclass says `encode`, `decode` and `ends`, and `operators` where QuantizeLinear lacks the format (`in_onnx`).
    Everything else has an answer for a format with a scale, without a zero point, whose levels are where they are.
    """

    name: str
    bits: int
    signed: bool = True
    has_scale: bool = True
    """Whether calibration chooses a scale; without one the parameters are a single scale of 1."""

    grid: ClassVar[str] = "non-uniform"
    """The kind of levels, for sentences: "a floating-point grid"."""
    summary: ClassVar[str] = "levels of its own"
    """The kind of levels, for a list of formats."""

    evenly_spaced: ClassVar[bool] = False
    """Whether the levels are the integers from `spec.qmin` to `spec.qmax`, around a zero point if there is one."""
    any_scale: ClassVar[bool] = True
    """Whether every positive number can be a scale; otherwise `legal_scale` tells which."""
    scales_are_searched: ClassVar[bool] = True
    """Whether steps that choose scales of weights make sense for the format."""
    has_nan: ClassVar[bool] = False
    """Whether the format has a number for NaN; otherwise quantizing one is an error."""
    can_be_dynamic: ClassVar[bool] = False
    """Whether blocks can have scales that are computed from their values at run time (`QuantSpec.dynamic`)."""
    scale_rules: ClassVar[tuple[str, ...]] = ()
    """How a scale may follow from a largest magnitude, where there is a choice; the first is the usual one."""
    range_factors: ClassVar[tuple[float, ...]] = ()
    """Factors of a block's range that lead to other scales worth trying; empty: any may."""
    bias_only: bool = False
    """Whether it is for sums of products, and never for what is multiplied."""

    # ---- numbers ----------------------------------------------------------------------------------------------------

    @property
    def storage(self) -> np.dtype[Any]:
        """The numpy dtype of stored numbers; formats of fewer than 8 bits take a byte for each value."""
        return np.dtype(np.uint8 if self.bits <= 8 else np.uint16)

    def storage_of(self, spec: QuantSpec) -> np.dtype[Any]:
        """The numpy dtype of the numbers of a spec."""
        return self.storage

    @abstractmethod
    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """Stored numbers of real values; scale and zero point broadcast against them."""

    @abstractmethod
    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """Real float32 values of stored numbers."""

    def fake(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """What real values become by storage: bit for bit what `decode` makes of what `encode` makes of them."""
        return self.decode(self.encode(x, scale, zero_point, spec), scale, zero_point, spec)

    @abstractmethod
    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        """The lowest and the highest number in units of the scale, before the zero point is taken off.

        `rounded` moves them outwards to where values begin to saturate instead of being rounded to the end.
        """

    def sides(self, spec: QuantSpec) -> tuple[Side, Side]:
        """The levels above zero and those below; asked for where levels are not evenly spaced and have a scale."""
        codes = np.arange(1 << self.bits).astype(self.storage)
        unit = np.ones((), np.float32), np.zeros((), np.int32)
        values = self.decode(codes, *unit, spec).astype(np.float64)
        return nearest_levels(values[values > 0]), nearest_levels(-values[values < 0])

    def pieces(self, shape: Sequence[int], spec: QuantSpec) -> Iterator[tuple[slice, ...]] | None:
        """Indices of the pieces that can be quantized one by one; None: any part of a tensor can."""
        return None

    def legal_scale(self, scale: np.ndarray, *, up: bool = False) -> np.ndarray:
        """The scale that the format can have nearest to each given one, or (`up`) the nearest not below it."""
        return scale

    def scale_for(self, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """The scales that blocks or channels get whose range, divided by the largest number, is `scale`."""
        return self.legal_scale(scale)

    def settled(self, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """The scales (float32) of a whole tensor, where some of them limit the others."""
        return scale

    def torch_values(self, x: Any, scale: Any, zero_point: Any, spec: QuantSpec) -> Any:
        """`decode(encode(x))` of float32 torch tensors, bit for bit, NaN kept; None: `onnxq.torchnet` asks numpy."""
        return None

    # ---- what a spec may say ----------------------------------------------------------------------------------------

    def scaled(self, spec: QuantSpec) -> bool:
        """Whether calibration chooses a scale for a spec of this format."""
        return self.has_scale

    @property
    def integers(self) -> tuple[int, int]:
        """Full range of an integer format, such as (-128, 127) for int8."""
        raise SpecError(f"{self.name} is not an integer format")

    def check(self, spec: QuantSpec) -> None:
        """Raise SpecError for a spec of this format that cannot be."""
        if not spec.symmetric:
            raise SpecError(f"{self.name} is a {self.grid} grid: it has no zero point, so it must be symmetric")
        if spec.narrow_range or spec.quant_min is not None or spec.quant_max is not None:
            raise SpecError(f"{self.name} is a {self.grid} grid: narrow_range, quant_min and quant_max do not apply")
        if spec.rounding != "half_even":
            raise SpecError(f"{self.name} rounds half_even; '{spec.rounding}' is for integer formats")
        if spec.signed_scale:
            raise SpecError(f"{self.name} is a {self.grid} grid: its scales are positive")

    def check_parameters(self, spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray) -> None:  # noqa: B027
        """Raise SpecError for scales or zero points that the format cannot have."""

    def usual_granularity(self, given: Granularity) -> Granularity:
        """What a spec's granularity means; PerTensor() is what is said where nothing is said."""
        return given

    def wanted_granularity(self, held: Granularity, axis: int | None, per_channel: bool | None) -> Granularity | None:
        """The granularity of a spec that is to have channels, or none; None leaves it as it is.

        Channels are marked as axis 0 where no axis is given: the caller knows which axis a tensor's channels are on.
        """
        if per_channel is False:
            return PerTensor()
        if per_channel or (axis is not None and isinstance(held, PerChannel)):
            return PerChannel(0 if axis is None else axis)
        return None

    def implied(self, held: QuantSpec) -> SpecChanges:
        """The fields that `held` must change when its dtype becomes this format."""
        fields: SpecChanges = {"symmetric": True, "narrow_range": False, "rounding": "half_even"}
        if not self.has_scale or not self.any_scale:  # no scale that could have channels or be a power of two
            fields |= {"granularity": PerTensor(), "power_of_two": False}
        return fields

    def with_bits(self, bits: int) -> str:
        """The format of the same kind with other bits: int4 for int8."""
        raise SpecError(f"bits is for integer formats, {self.name} has its own: give a dtype such as int{bits}")

    @property
    def unsigned(self) -> str | None:
        """The format without negative numbers that a target may take for values that never are."""
        return None

    # ---- in files ---------------------------------------------------------------------------------------------------

    @property
    def onnx_type(self) -> str | None:
        """The ONNX element type that stores it; None where ONNX has none."""
        return None

    @property
    def stored_as(self) -> str:
        """The element type as limits and lint rules name it; what ONNX has no type for goes by its own name."""
        return self.onnx_type or self.name

    @property
    def stored_bits(self) -> int:
        """Bits that a number takes in a file."""
        return self.bits

    @property
    def at_rest(self) -> AtRest | None:
        """How constants lie in files as codes with scales in blocks; None: QuantizeLinear or float values say it."""
        return None

    in_onnx: ClassVar[bool] = False
    """Whether QuantizeLinear and DequantizeLinear have the format."""
    in_operators: ClassVar[bool] = True
    """Whether `operators` computes it."""
    guarded: ClassVar[bool] = False
    """Whether onnxruntime's optimizer mistakes Q/DQ pairs of it for pairs of integers (`onnxq.emit.guards`)."""

    @property
    def onnx_storage(self) -> np.dtype[Any]:
        """The numpy dtype of what QuantizeLinear stores."""
        return self.storage

    @property
    def opset(self) -> int:
        """The lowest opset whose operators can write it."""
        return 13

    def opset_of(self, spec: QuantSpec, *, constant: bool) -> int:
        """The lowest opset for a constant, or for a tensor that is computed at run time."""
        held = self.at_rest
        return self.opset if held is None or not constant else held.opset

    def operators(self, ops: Operators, parameters: QParams) -> Any:
        """Float ONNX operators that compute `decode(encode(x))` of the source, bit for bit; returns their result."""
        raise NotImplementedError


_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_OWN = "onnxq.numerics.formats"
_known: dict[str, NumberFormat] = {}


def add_format(item: NumberFormat) -> NumberFormat:
    """Make a format known under its name; a plugin that is loaded again replaces its own."""
    held = _known.get(item.name)
    if not _NAME.fullmatch(item.name):
        raise ConfigError(
            f"a number format's name is letters, digits and underscores and begins with a letter, got '{item.name}'"
        )
    if held is not None and _home(held) != _home(item):
        raise ConfigError(f"number format '{item.name}' exists already; choose another name")
    if not item.in_onnx and (not item.in_operators or type(item).operators is NumberFormat.operators):
        raise ConfigError(
            f"number format '{item.name}' can stand in no file: QuantizeLinear does not have it (in_onnx), and its "
            "class has no method `operators` that writes it with float operators"
        )
    _known[item.name] = item
    return item


def forget_format(name: str) -> None:
    """Take a format out that a plugin has added; unknown names are nobody's loss, onnxq's own stay."""
    if name in _known and not type(_known[name]).__module__.startswith(_OWN):
        del _known[name]


def number_format(name: str) -> NumberFormat:
    """The format with this name; an unknown one is a SpecError."""
    return (_known.get(name) if isinstance(name, str) else None) or _find(str(name))


def known_format(name: str) -> NumberFormat | None:
    """The format with this name; None for a name that no format has."""
    return _known.get(name) or number_formats().get(name)


def number_formats() -> Mapping[str, NumberFormat]:
    """Name -> format, those of plugins included."""
    importlib.import_module(_OWN)
    load_installed()
    return dict(_known)


def name_of_stored(numpy_type: str) -> str:
    """The format whose numbers fill a type of QuantizeLinear, by numpy's name of it; the same name if there is none."""
    own = number_formats().values()
    fills = (item for item in own if item.in_onnx and item.bits == item.stored_bits)
    return next((item.name for item in fills if item.onnx_storage.name == numpy_type), numpy_type)


def names_but_integers() -> list[str]:
    """The names of the formats that are not int1 .. int32 or uint1 .. uint16."""
    return [name for name, item in number_formats().items() if not item.evenly_spaced]


def _find(name: str) -> NumberFormat:
    importlib.import_module(_OWN)
    if name not in _known:
        load_installed()
    if name not in _known:
        raise SpecError(
            f"unknown dtype '{name}'.{did_you_mean(name, _known)} "
            f"Known: int1..int16, uint1..uint16, int32, {', '.join(names_but_integers())}. A file that adds one "
            "is given with --plugin FILE.py, or with -b FILE.py together with its target"
        )
    return _known[name]


def _home(item: NumberFormat) -> tuple[str, str]:
    return type(item).__module__, type(item).__qualname__


def nearest_levels(values: np.ndarray) -> Side:
    """Levels that values are rounded to when they are the nearest."""
    levels = np.unique(values)
    below = np.concatenate([np.zeros(1), levels[:-1]])
    return Side(levels, 0.5 * (levels + below))


def is_own(item: NumberFormat) -> bool:
    """Whether a format is onnxq's, and not a plugin's."""
    return type(item).__module__.partition(".")[0] == __name__.partition(".")[0]


def edge_values(spec: QuantSpec) -> np.ndarray:
    """Numbers of a format in units of the scale, the middles between them, their neighbours, and far too large ones."""
    outwards = [np.concatenate([*side, [0.0]]).astype(np.float32) for side in spec.format.sides(spec)]
    edges = np.concatenate([outwards[0], -outwards[1]])
    around = [edges, np.nextafter(edges, np.float32(-np.inf)), np.nextafter(edges, np.float32(np.inf)), 4 * edges]
    return np.concatenate(around).astype(np.float32)


def power_of_two_scale(spec: QuantSpec) -> np.ndarray:
    """A scale by which values are divided without rounding, so that a middle stays one."""
    return spec.format.legal_scale(np.array(0.125, np.float32), up=True) if spec.has_scale else np.ones((), np.float32)
