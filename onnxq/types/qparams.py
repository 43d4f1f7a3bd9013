"""QParams and QParamsTable: the scales and zero points that belong to a plan."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from onnxq.errors import SpecError, did_you_mean
from onnxq.glance import counted, short_repr, tally
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types.granularity import PerBlock, PerChannel, PerTensor
from onnxq.types.plan import check_document, entry_of
from onnxq.types.spec import QuantSpec

QPARAMS_FORM = "onnxq-qparams"


@dataclass(frozen=True, eq=False)
class QParams:
    """Scale (float32) and zero point (int32) of one tensor, both of the shape its granularity says.

    real = (q - zero_point) * scale. Scales are finite and above zero, or with `signed_scale` not zero; zero points lie
    inside the spec's range, those of many blocks are kept in bytes and are int32 when they are asked for. A format
    without scales has one scale of 1, whatever its granularity: the exponents of bfp16 belong to the values.
    """

    spec: QuantSpec
    scale: np.ndarray
    zero_point: np.ndarray

    def __post_init__(self) -> None:
        scale = _in_float32(self.scale)
        zero_point = _whole_numbers(np.asarray(self.zero_point))
        if zero_point.shape != scale.shape:
            if zero_point.shape not in ((), (1,)):
                raise SpecError(f"zero points of shape {zero_point.shape} do not fit scales of shape {scale.shape}")
            zero_point = np.full(scale.shape, zero_point.item(), np.int32)
        if scale.size == 0:
            raise SpecError("a tensor without channels has no scales and cannot be quantized")
        granularity = self.spec.scale_granularity
        if isinstance(granularity, PerTensor) and scale.ndim != 0:
            if scale.size != 1:
                raise SpecError(f"a per-tensor scale is one number, got shape {scale.shape}")
            scale, zero_point = scale.reshape(()), zero_point.reshape(())
        elif isinstance(granularity, PerChannel) and scale.ndim != 1:
            raise SpecError(f"a per-channel scale is one-dimensional, got shape {scale.shape}")
        elif isinstance(granularity, PerBlock) and scale.ndim < 1:
            raise SpecError("a per-block scale has the rank of its tensor, got a single number")
        sizes = np.abs(scale) if self.spec.signed_scale else scale
        smallest, largest = (sizes.item(),) * 2 if scale.ndim == 0 else (sizes.min(), sizes.max())
        if not (smallest > 0 and largest < np.inf):  # NaN fails both comparisons
            raise SpecError("scales must be finite and greater than zero")
        if smallest < _SMALLEST_SCALE:
            raise SpecError(
                f"scales must be {_SMALLEST_SCALE:.4g} or more, got {smallest:.4g}: processors may take a subnormal "
                "number for zero"
            )
        if self.spec.symmetric and zero_point.any():
            raise SpecError("a symmetric format has zero point 0")
        settled = self.spec.format.settled(scale, self.spec)
        scale = scale if settled is scale else np.array(settled, np.float32)
        self.spec.format.check_parameters(self.spec, scale, zero_point)
        if self.spec.symmetric and scale.ndim:
            zero_point = np.broadcast_to(np.int32(0), scale.shape)  # one number, whatever the number of blocks
        scale.setflags(write=False)
        zero_point.setflags(write=False)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", zero_point)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, QParams)
            and self.spec == other.spec
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> JsonObject:
        """Plain values; float32 scales print so that they read back to the same bits.

        From MANY scales on, as the blocks of a large weight have them, arrays are their bytes in base64: in digits,
        those of a language model would take more room than its weights.
        """
        if self.scale.size < MANY:
            return {
                "spec": self.spec.to_json(),
                "scale": _shortest(self.scale),
                "zero_point": self.zero_point.tolist(),
            }
        narrow = np.dtype(("int" if self.spec.signed else "uint") + ("8" if self.spec.bits <= 8 else "32"))
        zero_point = 0 if self.spec.symmetric else _encoded(self.zero_point.astype(narrow))
        return {"spec": self.spec.to_json(), "scale": _encoded(self.scale), "zero_point": zero_point}

    @classmethod
    def from_json(cls, data: JsonMapping) -> QParams:
        return cls(
            QuantSpec.from_json(data["spec"]),
            _array(data["scale"], np.dtype(np.float32)),
            _array(data["zero_point"], None),
        )


def _zero_point(self: QParams) -> np.ndarray:
    kept: np.ndarray = self.__dict__["zero_point"]
    if not isinstance(kept, np.ndarray) or kept.dtype not in (np.int8, np.uint8):
        return kept  # wide, or as the caller gave it, before it was looked at
    wide = kept.astype(np.int32)
    wide.setflags(write=False)
    return wide


def _keep_zero_point(self: QParams, given: np.ndarray) -> None:
    if isinstance(given, np.ndarray) and given.size >= MANY and given.strides[-1] and _fits_bytes(self.spec, given):
        given = given.astype(np.int8 if self.spec.signed else np.uint8)
        given.setflags(write=False)
    self.__dict__["zero_point"] = given


def _fits_bytes(spec: QuantSpec, zero_point: np.ndarray) -> bool:
    blocks = zero_point.dtype == np.int32 and isinstance(spec.granularity, PerBlock) and not spec.symmetric
    return blocks and spec.bits <= 8


QParams.zero_point = property(_zero_point, _keep_zero_point)  # type: ignore[assignment]


def _in_float32(given: Any) -> np.ndarray:
    """A copy in float32. What that cannot hold is infinite, and refused later."""
    if isinstance(given, np.ndarray) and given.dtype == np.float32:
        return given.copy()
    with np.errstate(over="ignore"):
        return np.array(given, dtype=np.float32)


_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def _whole_numbers(given: np.ndarray) -> np.ndarray:
    """Zero points as int32; one that is cut off on the way would be another number, without a word."""
    if given.dtype == np.int32:
        return given.copy()
    if given.dtype.kind not in "iufb":
        raise SpecError(f"zero points are whole numbers, got {given.dtype.name} values")
    with np.errstate(invalid="ignore"):
        whole = np.array(given, dtype=np.int32)
    if not np.array_equal(given, whole):
        wrong = given[given != whole].reshape(-1)[0]
        raise SpecError(f"zero points are whole numbers of 32 bits, got {wrong}")
    return whole


MANY = 2**14
"""Scales of one tensor from which on they are stored as bytes."""

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int64")
_STORED = ("float32", "int8", "uint8", "int32", "uint32")


def _encoded(array: np.ndarray) -> JsonObject:
    """An array as JSON values: its type, little-endian, its shape and its bytes."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": b64encode(plain.data).decode("ascii")}


def _array(data: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
    """The array of nested lists, or of bytes; `dtype` is that of lists."""
    if not isinstance(data, Mapping):
        array = np.asarray(data)
        if array.dtype.kind not in "iuf":
            raise SpecError("scales and zero points are numbers, or lists of numbers of equal lengths")
        with np.errstate(over="ignore"):
            return array if dtype is None else array.astype(dtype)
    kind = np.dtype(data["dtype"])
    if kind.name not in _STORED:
        raise SpecError(f"parameters are stored as {', '.join(_STORED)}, not as {kind.name}")
    stored = np.frombuffer(b64decode(data["base64"], validate=True), kind.newbyteorder("<"))
    return stored.astype(kind, copy=False).reshape(data["shape"])


def _integers(data: JsonMapping) -> np.ndarray:
    """Integer weights, exactly as they are written."""
    if data["dtype"] not in _INTEGERS:
        raise SpecError(f"integer weights are stored as {', '.join(_INTEGERS)}, not as {data['dtype']!r}")
    given = np.asarray(data["values"])
    stored = given.astype(data["dtype"]) if given.dtype.kind in "iu" else None
    if stored is None or not np.array_equal(stored, given):
        raise SpecError(f"integer weights must be whole numbers that {data['dtype']} can hold")
    return stored


def _shortest(scale: np.ndarray) -> Any:
    """Nested lists of floats with the fewest digits that identify each float32."""
    if scale.ndim == 0:
        return float(str(scale[()]))
    if scale.ndim == 1:
        return [float(str(number)) for number in scale]
    return [_shortest(part) for part in scale]


@dataclass
class QParamsTable:
    """Tensor name -> QParams, integer weights that an algorithm has fixed, and where each came from.

    origins   tensor -> what has found its parameters, then what has changed them, in order
    """

    entries: dict[str, QParams] = field(default_factory=dict)
    integer_weights: dict[str, np.ndarray] = field(default_factory=dict)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, tensor: str) -> QParams:
        try:
            return self.entries[tensor]
        except KeyError:
            raise SpecError(
                f"no quantization parameters for tensor '{tensor}'.{did_you_mean(tensor, self.entries)}"
            ) from None

    def __repr__(self) -> str:
        fixed = len(self.integer_weights)
        return short_repr(
            "QParamsTable",
            "",
            f"{counted(len(self), 'tensor')} ({tally(held.spec.dtype for held in self.entries.values()) or 'none'})",
            f"{counted(fixed, 'weight')} as integers" if fixed else "",
        )

    def __contains__(self, tensor: object) -> bool:
        return tensor in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def provenance(self) -> dict[str, str]:
        """Tensor name -> where its parameters came from, for people."""
        return {tensor: self.origin(tensor) for tensor in self.origins}

    def origin(self, tensor: str) -> str:
        """Where the parameters of one tensor came from, for people; "" where nothing is known."""
        return ", ".join(self.origins.get(tensor, ()))

    def put(self, tensor: str, qparams: QParams, *origin: str) -> None:
        """Parameters from a new origin: what has found them, and what has changed them since."""
        self.entries[tensor] = qparams
        self.origins[tensor] = origin

    def change(self, tensor: str, qparams: QParams, change: str) -> None:
        """Other parameters for a tensor, and what has changed them."""
        known = self.origins.get(tensor, ())
        self.put(tensor, qparams, *(known if known[-1:] == (change,) else (*known, change)))

    def copy(self) -> QParamsTable:
        """A table that can be changed; parameters and integers are shared, since nobody changes those."""
        return QParamsTable(dict(self.entries), dict(self.integer_weights), dict(self.origins))

    def to_json(self) -> JsonObject:
        data = self.for_json_file()
        data["tensors"] = {name: entry() for name, entry in data["tensors"].items()}
        return data

    def for_json_file(self) -> JsonObject:
        """`to_json` with a function for each tensor: the text of a large model's scales is larger than these."""
        tensors = {name: partial(self._entry, name) for name in self.entries}
        data: JsonObject = {"format": QPARAMS_FORM, "version": 1, "tensors": tensors}
        if self.integer_weights:
            data["integer_weights"] = {
                name: {"dtype": str(values.dtype), "values": values.tolist()}
                for name, values in self.integer_weights.items()
            }
        return data

    def _entry(self, name: str) -> JsonObject:
        return {**self.entries[name].to_json(), "from": self.origin(name)}

    @classmethod
    def from_json(cls, data: JsonMapping) -> QParamsTable:
        check_document(data, QPARAMS_FORM, "table of quantization parameters", {"tensors", "integer_weights"})
        table = cls()
        for name, entry in data["tensors"].items():
            qparams = entry_of(name, entry, lambda _, item: QParams.from_json(item))
            table.put(name, qparams, *filter(None, [str(entry.get("from", ""))]))
        for name, entry in data.get("integer_weights", {}).items():
            table.integer_weights[name] = entry_of(name, entry, lambda _, item: _integers(item))
        return table
