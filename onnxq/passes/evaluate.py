"""The value of a node whose inputs are known, computed by the reference implementation of ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, LazyValues, Node
from onnxq.graph.write import node_to_proto
from onnxq.passes.edits import loaded

_BROADCASTING = {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod"}
_BROADCASTING |= {"Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor", "Mean"}

_WINDOWS = {"BlackmanWindow", "HammingWindow", "HannWindow"}
_ENDLESS = 2**63


class Evaluation:
    """One node with the values of its inputs, ready to be computed as often as somebody needs the result."""

    def __init__(self, graph: Graph, node: Node, inputs: Sequence[np.ndarray | LazyValues | None]) -> None:
        self._op, self._opset, self._inputs = node.op, graph.opset, list(inputs)
        self._node = node_to_proto(node, _refuse_weights, str)

    def compute(self) -> list[np.ndarray]:
        """All outputs in order (None for one that is left out); raises UnsupportedError where no value can be had."""
        from onnx.reference import ReferenceEvaluator

        arrays = [None if held is None else loaded(held) for held in self._inputs]
        names = {name: array for name, array in zip(self._node.input, arrays, strict=True) if array is not None}
        graph = onnx.GraphProto(name="one node", node=[self._node])
        graph.input.extend(onnx.ValueInfoProto(name=name) for name in names)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._node.output if name)
        try:
            with np.errstate(all="ignore"):
                found = iter(ReferenceEvaluator(graph, opsets={"": self._opset}).run(None, names))
        except Exception as error:  # the evaluator raises whatever numpy does, and classes of its own
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UnsupportedError(f"the ONNX reference implementation cannot compute it: {reason}") from error
        values = [next(found) if name else None for name in self._node.output]
        if not all(value is None or isinstance(value, np.ndarray | np.generic) for value in values):
            raise UnsupportedError("its result is not a tensor")
        return [np.asarray(value) for value in values]

    def expected_size(self) -> int:
        """Elements of the result as far as they follow from the inputs without computing it, otherwise 0."""
        try:
            return self._expected_size()
        except (ValueError, IndexError, OverflowError):  # inputs that do not fit together: computing them says so
            return 0

    def _expected_size(self) -> int:
        if self._op in _BROADCASTING:
            return math.prod(np.broadcast_shapes(*(held.shape for held in self._inputs if held is not None)))
        if self._op == "ConstantOfShape":
            return _product(self._value(0))
        if self._op == "Expand":
            return math.prod(np.broadcast_shapes(self._shape(0), tuple(self._value(1).tolist())))
        if self._op == "Tile":
            return math.prod(self._shape(0)) * _product(self._value(1))
        if self._op == "Range":
            start, limit, step = (float(self._value(port).reshape(())) for port in range(3))
            count = (limit - start) / step if step else 0.0
            return _ENDLESS if count == math.inf else max(0, math.ceil(count))
        if self._op == "Pad":
            sizes, pads = self._shape(0), self._value(1).reshape(-1).tolist()
            if len(pads) != 2 * len(sizes):
                return 0
            return math.prod(n + a + b for n, a, b in zip(sizes, pads, pads[len(sizes) :], strict=False))
        if self._op == "OneHot":
            return math.prod(self._shape(0)) * int(self._value(1).reshape(-1)[0])
        if self._op in _WINDOWS:
            return int(self._value(0).reshape(()))
        if self._op == "MelWeightMatrix":
            bins, length = (int(self._value(port).reshape(())) for port in range(2))
            return bins * (length // 2 + 1)
        if self._op == "DFT" and len(self._inputs) > 1 and self._inputs[1] is not None:
            return 2 * math.prod(self._shape(0)) * int(self._value(1).reshape(()))
        if self._op == "MaxUnpool" and len(self._inputs) > 2:
            return _product(self._value(2))
        if self._op == "MatMul":
            return math.prod(self._shape(0)[:-1]) * math.prod(self._shape(1)[:-2]) * self._shape(1)[-1]
        return 0

    def _shape(self, port: int) -> tuple[int, ...]:
        held = self._inputs[port]
        return () if held is None else tuple(held.shape)

    def _value(self, port: int) -> np.ndarray:
        held = self._inputs[port]
        return np.zeros(0) if held is None else loaded(held)


def _product(sizes: np.ndarray) -> int:
    return math.prod(int(size) for size in sizes.reshape(-1))


def _refuse_weights(proto: onnx.TensorProto, values: np.ndarray | LazyValues) -> None:
    raise UnsupportedError("it has a body")
