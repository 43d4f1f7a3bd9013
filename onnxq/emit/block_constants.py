"""Constants of formats that share scales in blocks, as codes and scales of their own with operators behind them.

For onnxruntime, which has no operator for numbers of 4 bits that are no integers:

    8 bits   DequantizeLinear(codes, scales) in blocks        E4M3, E5M2, int8; numbers of 6 bits are stored as E4M3
    4 bits   Mul(Gather(table, codes), scales)                codes [.., blocks, size, ..], two to a byte

With ONNX's own types (`own_types`), for compilers: DequantizeLinear in blocks with FLOAT4E2M1, FLOAT8E4M3FN ... codes,
and with scales that are FLOAT8E8M0 or, of two levels, the result of another DequantizeLinear.

onnxruntime computes all of this once, when it loads a file. Values are those of `onnxq.numerics`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxq.emit.uses import uses_of
from onnxq.graph import DeferredValues, Graph
from onnxq.numerics import quantize
from onnxq.types import PerBlock, Placement, QParams
from onnxq.types.at_rest import AtRest
from onnxq.types.attributes import AttributeValues
from onnxq.types.granularity import resolve_axis

_FLOAT = np.dtype(np.float32)
_INT32 = np.dtype(np.int32)


def write_block_constant(
    graph: Graph, placement: Placement, parameters: QParams, *, own_types: bool = False
) -> Any | None:
    """Let the readers of a constant read what its codes and scales say; returns the codes.

    None, and nothing is changed, for a constant whose format has no such form, or that has no blocks.
    """
    held, blocks = parameters.spec.format.at_rest, parameters.spec.granularity
    original = graph.tensor(placement.tensor)
    if held is None or not isinstance(blocks, PerBlock) or (own_types and held.own_type is None):
        return None
    uses = uses_of(graph, placement)
    readers = graph.consumers(original) if uses is None else uses
    writer = _Writer(graph, original, parameters, held, blocks)
    codes, made = writer.own_types() if own_types else writer.for_onnxruntime()
    graph.redirect(original, made, uses=readers)
    return codes


class _Writer:
    """The operators behind one constant, in its scope."""

    def __init__(self, graph: Graph, original: Any, parameters: QParams, held: AtRest, blocks: PerBlock) -> None:
        self._graph, self._original, self._parameters, self._held = graph, original, parameters, held
        self._shape = tuple(int(size) for size in original.shape)
        self._kind = np.dtype(original.dtype)
        self._axis, self._size = resolve_axis(blocks.axis, len(self._shape)), blocks.size
        self._scope = graph.home_of(original)
        self._name = str(original.name)

    # ---- what runs in onnxruntime -----------------------------------------------------------------------------------

    def for_onnxruntime(self) -> tuple[Any, Any]:
        """Codes, and the tensor with their values."""
        held = self._held
        if held.table is None:
            codes = self._constant("codes", self._shape, held.code_type, lambda: held.codes(self._stored()))
            return codes, self._dequantized(codes, self._scales())
        split = self._split_shape
        codes = self._constant("codes", split, held.code_type, lambda: self._in_blocks(held.codes(self._stored())))
        positions = self._add("Cast", [codes], _INT32, split, {"to": _INT32})
        table = self._fixed("values", held.table.astype(np.float32))
        numbers = self._add("Gather", [table, positions], _FLOAT, split)
        scales = self._reshaped("spread", self._scales(), self._spread_shape)
        values = self._add("Mul", [numbers, scales], _FLOAT, split)
        whole = self._reshaped("joined", values, self._filled_shape)
        if self._filled_shape != self._shape:
            bounds = [np.zeros(1, np.int64), np.array([self._shape[self._axis]]), np.array([self._axis])]
            parts = [self._fixed(f"slice_{i}", part.astype(np.int64)) for i, part in enumerate(bounds)]
            whole = self._add("Slice", [whole, *parts], _FLOAT, self._shape)
        return codes, self._of_kind(whole)

    def _scales(self) -> Any:
        """The scales of the blocks as a float32 tensor."""
        values, common = self._held.scales(self._parameters.scale)
        scales = self._fixed("scales", values)
        if values.dtype != _FLOAT:
            scales = self._add("Cast", [scales], _FLOAT, values.shape, {"to": _FLOAT})
        if not self._held.two_level:
            return scales
        return self._add("Mul", [scales, self._fixed("scale", np.float32(common))], _FLOAT, values.shape)

    def _dequantized(self, codes: Any, scales: Any) -> Any:
        attrs = {"axis": self._axis, "block_size": self._size}
        return self._of_kind(self._add("DequantizeLinear", [codes, scales], _FLOAT, self._shape, attrs))

    # ---- ONNX's own types -------------------------------------------------------------------------------------------

    def own_types(self) -> tuple[Any, Any]:
        """Codes of ONNX's type for these numbers, and the tensor with their values."""
        kind = self._held.own_type
        assert kind is not None
        codes = self._constant("codes", self._shape, kind, lambda: self._own(kind))
        values, common = self._held.scales(self._parameters.scale)
        scales = self._fixed("scales", values)
        attrs: AttributeValues = {"axis": self._axis, "block_size": self._size}
        if self._held.two_level:
            inputs = [scales, self._fixed("scale", np.float32(common))]
            scales = self._add("DequantizeLinear", inputs, _FLOAT, values.shape)
        elif values.dtype != _FLOAT:
            attrs = {**attrs, "output_dtype": _FLOAT}
        return codes, self._of_kind(self._add("DequantizeLinear", [codes, scales], _FLOAT, self._shape, attrs))

    def _own(self, kind: np.dtype[Any]) -> np.ndarray:
        stored = self._stored()
        return stored if stored.dtype == kind else stored.astype(np.float32).astype(kind)

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _stored(self) -> np.ndarray:
        return quantize(self._graph.values(self._original).astype(np.float32, copy=False), self._parameters)

    def _in_blocks(self, codes: np.ndarray) -> np.ndarray:
        missing = self._filled_shape[self._axis] - self._shape[self._axis]
        if missing:
            filling = [(0, missing if i == self._axis else 0) for i in range(codes.ndim)]
            codes = np.pad(codes.astype(np.uint8), filling).astype(codes.dtype)
        return codes.reshape(self._split_shape)

    @property
    def _filled_shape(self) -> tuple[int, ...]:
        whole = -(-self._shape[self._axis] // self._size) * self._size
        return tuple(whole if i == self._axis else size for i, size in enumerate(self._shape))

    @property
    def _split_shape(self) -> tuple[int, ...]:
        before, after = self._shape[: self._axis], self._shape[self._axis + 1 :]
        return (*before, self._filled_shape[self._axis] // self._size, self._size, *after)

    @property
    def _spread_shape(self) -> tuple[int, ...]:
        return tuple(1 if i == self._axis + 1 else size for i, size in enumerate(self._split_shape))

    def _reshaped(self, what: str, tensor: Any, shape: tuple[int, ...]) -> Any:
        sizes = self._fixed(f"{what}_shape", np.array(shape, np.int64))
        return self._add("Reshape", [tensor, sizes], _FLOAT, shape, made=what)

    def _of_kind(self, tensor: Any) -> Any:
        if self._kind == _FLOAT:
            return tensor
        return self._add("Cast", [tensor], self._kind, self._shape, {"to": self._kind}, made="narrowed")

    def _constant(self, what: str, shape: tuple[int, ...], kind: np.dtype[Any], get: Callable[[], np.ndarray]) -> Any:
        values = DeferredValues(shape, kind, get)
        return self._graph.add_constant(f"{self._name}_{what}", values, scope=self._scope)

    def _fixed(self, what: str, values: Any) -> Any:
        return self._graph.add_constant(f"{self._name}_{what}", np.asarray(values), scope=self._scope)

    def _add(
        self,
        op: str,
        inputs: list[Any],
        kind: np.dtype[Any],
        shape: tuple[int, ...],
        attrs: AttributeValues | None = None,
        *,
        made: str | None = None,
    ) -> Any:
        result = self._graph.add_variable(f"{self._name}_{made or op}", kind, shape)
        name = f"{self._name}_{made or op}"
        self._graph.add_node(op, inputs, [result], attrs=attrs or {}, name=name, scope=self._scope)
        return result
