"""Dynamic quantization: activations become integers in each run, with the range that they have in it.

    MatMul(x, W)     ->  DynamicQuantizeLinear(x), MatMulInteger, Cast, Mul(scale of x times scales of W)
    Gemm(x, W, c)    ->  the same with W turned where it is stored transposed, Add(c)
    Conv(x, W, b)    ->  DynamicQuantizeLinear(x), ConvInteger, Cast, Mul, Add(b)
    LSTM(x, W, R)    ->  DynamicQuantizeLSTM of com.microsoft, which quantizes its state in every step, too

Where rows of what a product reads may be unlike, each is divided by its largest value, and the product multiplied back
(`row_scales`).

The Q/DQ form of the model is made first, so that stored integers and tables of embeddings are the same in both. Layers
that read the same tensor share its DynamicQuantizeLinear. onnxruntime makes a DynamicQuantizeMatMul or a
MatMulIntegerToFloat of a MatMul's chain.

Weights of convolutions are stored unsigned with zero point 128, which are the same numbers: onnxruntime computes a
ConvInteger of signed weights without its fast kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.qdq import to_qdq
from onnxq.emit.simulations.rewrite import Rewrite
from onnxq.graph import DeferredValues, Graph, Node, Variable, collector_paused
from onnxq.graph.attributes import AttributeValues
from onnxq.targets.onnxruntime.qlinear import MICROSOFT
from onnxq.targets.onnxruntime.row_scales import divided_by_rows, has_unlike_rows
from onnxq.types import Backend, QParamsTable, QuantPlan
from onnxq.types.note import Note

DYNAMIC_LSTM = "DynamicQuantizeLSTM"
SIGNED_TO_UNSIGNED = 128


class Weight(NamedTuple):
    """Integers of a weight with the scales and zero points that stand for it."""

    name: str
    shape: tuple[int, ...]
    kind: np.dtype[Any]
    integers: Callable[[], np.ndarray]
    scale: np.ndarray
    zero_point: np.ndarray
    scope: Any

    def stored(self, graph: Graph, change: Callable[[np.ndarray], np.ndarray], like: np.ndarray) -> Any:
        """A constant with the changed integers, computed while the file is written; `like` has its shape and type."""
        values = DeferredValues(like.shape, like.dtype, lambda: np.ascontiguousarray(change(self.integers())))
        return graph.add_constant(self.name, values, scope=self.scope)

    def placeholder(self) -> np.ndarray:
        """An array of the weight's shape and type that takes no memory."""
        return np.broadcast_to(np.zeros((), self.kind), self.shape)


def to_dynamic(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> tuple[Graph, list[str]]:
    """A new graph whose layers quantize what they read at run time, and a line for each thing that changed."""
    result, notes = to_qdq(graph, plan, qparams, backend)
    inputs = DynamicInputs(result)
    with collector_paused():
        for node in result.nodes():
            if node.domain or node.op not in _LAYERS or node.name not in plan.quantized:
                continue
            weights = [_stored_weight(result, node.inputs[port]) for port in _LAYERS[node.op].weights]
            if any(weight is None for weight in weights):
                text = f"'{node.name}' ({node.op}) computes in float: its weight stays float"
                notes.append(Note("pairs", text))
                continue
            _LAYERS[node.op].write(inputs, node, [weight for weight in weights if weight is not None])
        result.remove_dead()
        result.remove_unused_constants()
    return result, notes


def _stored_weight(graph: Graph, tensor: Any) -> Weight | None:
    """The integers that a layer reads through a DequantizeLinear."""
    node = graph.producer(tensor)
    if node is None or node.op != "DequantizeLinear" or not graph.is_constant(node.inputs[0]):
        return None
    integers = node.inputs[0]
    kind = np.dtype(integers.dtype)
    scale = np.asarray(graph.values(node.inputs[1]), np.float32)
    given = len(node.inputs) > 2 and bool(node.inputs[2].name)
    zero_point = np.asarray(graph.values(node.inputs[2])) if given else np.zeros(scale.shape, kind)
    if kind not in (np.int8, np.uint8) or scale.size != zero_point.size or "block_size" in node.attrs:
        return None
    scope = graph.scope_of(node)
    shape = tuple(integers.shape)
    return Weight(integers.name, shape, kind, lambda: graph.values(integers), scale, zero_point, scope)


class DynamicInputs:
    """Quantizers that find their range at run time, one for each tensor that layers read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._made: dict[tuple[str, int], tuple[Any, Any, Any]] = {}
        self._divided: dict[tuple[str, int], tuple[Any, Any]] = {}

    def read_by(self, node: Node, scope: Any) -> tuple[Any, Any]:
        """What a layer reads before it is quantized, and what its result is multiplied by: None for nothing."""
        tensor = node.inputs[0]
        if not has_unlike_rows(self.graph, node):
            return tensor, None
        key = (tensor.name, id(scope))
        if key not in self._divided:
            self._divided[key] = divided_by_rows(self.graph, tensor, scope)
        return self._divided[key]

    def of(self, tensor: Any, scope: Any) -> tuple[Any, Any, Any]:
        """Integers, scale and zero point of a tensor in this scope."""
        key = (tensor.name, id(scope))
        if key not in self._made:
            graph = self.graph
            integers = graph.add_variable(f"{tensor.name}_quantized", np.dtype(np.uint8), tensor.shape)
            scale = graph.add_variable(f"{tensor.name}_scale", np.dtype(np.float32), [])
            zero_point = graph.add_variable(f"{tensor.name}_zero_point", np.dtype(np.uint8), [])
            made = (integers, scale, zero_point)
            name = f"{tensor.name}_DynamicQuantizeLinear"
            graph.add_node("DynamicQuantizeLinear", [tensor], list(made), name=name, scope=scope)
            self._made[key] = made
        return self._made[key]


class _Chain(Rewrite):
    """The integer operator in the place of a layer, and what makes floats of its sums."""

    def __init__(self, inputs: DynamicInputs, node: Node, op: str, weight: Any, zero_point: Any) -> None:
        super().__init__(inputs.graph, node)
        self._scope = inputs.graph.scope_of(node)
        read, self._row_factors = inputs.read_by(node, self._scope)
        integers, self._input_scale, input_zero_point = inputs.of(read, self._scope)
        node.op = op
        node.inputs.clear()
        node.inputs.extend([integers, weight, input_zero_point, zero_point])
        self.last.dtype = np.dtype(np.int32)
        self._name = str(node.name)

    def to_float(self, weight: Weight, scale: np.ndarray, added: Any = None) -> None:
        """Sums times the scale of the input and those of the weight, times those of rows, plus what the layer adds."""
        graph = self.graph
        self.then("Cast", kind=np.dtype(np.float32), attrs={"to": int(TensorProto.FLOAT)})
        scales = graph.add_constant(f"{weight.name}_scales", scale, scope=weight.scope)
        product = graph.add_variable(f"{self._name}_scales", np.dtype(np.float32), list(scale.shape))
        name = f"{self._name}_scales_Mul"
        graph.add_node("Mul", [self._input_scale, scales], [product], name=name, scope=self._scope)
        behind = [("Mul", product), ("Mul", self._row_factors), ("Add", added)]
        *first, last = [(op, operand) for op, operand in behind if operand is not None]
        for op, operand in first:
            self.then(op, operand)
        self.finish(*last)


def _write_matmul(inputs: DynamicInputs, node: Node, weights: list[Weight]) -> None:
    (weight,) = weights
    _write_product(inputs, node, weight, turned=False)


def _write_gemm(inputs: DynamicInputs, node: Node, weights: list[Weight]) -> None:
    (weight,) = weights
    turned = bool(node.attrs.get("transB", 0))
    added = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2].name else None
    node.attrs.clear()
    node.attr_types.clear()
    _write_product(inputs, node, weight, turned=turned, added=added)


def _write_product(inputs: DynamicInputs, node: Node, weight: Weight, *, turned: bool, added: Any = None) -> None:
    like = weight.placeholder()
    stored = weight.stored(inputs.graph, np.transpose if turned else np.asarray, like.T if turned else like)
    zero_point = inputs.graph.add_constant(f"{weight.name}_zero_point", weight.zero_point, scope=weight.scope)
    _Chain(inputs, node, "MatMulInteger", stored, zero_point).to_float(weight, weight.scale, added)


def _write_conv(inputs: DynamicInputs, node: Node, weights: list[Weight]) -> None:
    (weight,) = weights
    graph = inputs.graph
    shift = SIGNED_TO_UNSIGNED if weight.kind == np.int8 else 0

    def unsigned(integers: np.ndarray) -> np.ndarray:
        return (integers.astype(np.int16) + shift).astype(np.uint8)

    stored = weight.stored(graph, unsigned, np.broadcast_to(np.uint8(0), weight.shape))
    # ConvInteger of onnxruntime takes one zero point; the formats of weights have the same in each channel.
    zero_point = np.array(int(weight.zero_point.ravel()[0]) + shift, np.uint8)
    channels = [-1] + [1] * (len(weight.shape) - 2)
    scale = weight.scale.reshape(channels) if weight.scale.ndim else weight.scale
    added = None
    if len(node.inputs) > 2 and node.inputs[2].name:
        added = _reshaped(graph, node, node.inputs[2], channels)
    zero = graph.add_constant(f"{weight.name}_zero_point", zero_point, scope=weight.scope)
    _Chain(inputs, node, "ConvInteger", stored, zero).to_float(weight, scale, added)


def _reshaped(graph: Graph, node: Node, bias: Any, shape: list[int]) -> Any:
    """A bias with an axis for each axis of the result behind its own."""
    scope = graph.scope_of(node)
    if graph.is_constant(bias):
        return graph.add_constant(f"{bias.name}_reshaped", graph.values(bias).reshape(shape), scope=scope)
    target = graph.add_constant(f"{bias.name}_shape", np.array(shape, np.int64), scope=scope)
    made = graph.add_variable(f"{bias.name}_reshaped", bias.dtype)
    graph.add_node("Reshape", [bias, target], [made], name=f"{node.name}_bias_Reshape", scope=scope)
    return made


def _write_lstm(inputs: DynamicInputs, node: Node, weights: list[Weight]) -> None:
    read, attrs = dynamic_lstm(inputs.graph, node, weights)
    node.op, node.domain = DYNAMIC_LSTM, MICROSOFT
    node.attrs.clear()
    node.attr_types.clear()
    node.attrs.update(attrs)
    node.inputs.clear()
    node.inputs.extend(read)


def dynamic_lstm(graph: Graph, node: Node, weights: list[Weight]) -> tuple[list[Any], AttributeValues]:
    """What a DynamicQuantizeLSTM in the place of an LSTM reads, and its attributes.

    Weights are stored turned, with scales and zero points for each direction.
    """
    stored, parameters = [], []
    for weight in weights:
        like = weight.placeholder().transpose(0, 2, 1)
        stored.append(weight.stored(graph, lambda integers: integers.transpose(0, 2, 1), like))
        for what, values in (("scales", weight.scale), ("zero_points", weight.zero_point)):
            spread = np.broadcast_to(values, (weight.shape[0], *values.shape)).copy()
            parameters.append(graph.add_constant(f"{weight.name}_{what}", spread, scope=weight.scope))
    rest = list(node.inputs[3:])
    rest += [Variable("") for _ in range(5 - len(rest))]
    attrs = {key: value for key, value in node.attrs.items() if key != "layout"}
    return [node.inputs[0], *stored, *rest, *parameters], attrs


class _Layer(NamedTuple):
    """How a layer becomes dynamic, and the ports of its weights."""

    weights: tuple[int, ...]
    write: Callable[[DynamicInputs, Node, list[Weight]], None]


_LAYERS = {
    "MatMul": _Layer((1,), _write_matmul),
    "Gemm": _Layer((1,), _write_gemm),
    "Conv": _Layer((1,), _write_conv),
    "LSTM": _Layer((1, 2), _write_lstm),
}


def write_dynamic(request: EmitRequest) -> Emitted:
    """Write `<name>.onnx` whose layers quantize what they read at run time (DynamicQuantizeLinear, MatMulInteger)."""
    result, notes = to_dynamic(*request.quantized, request.backend)
    return Emitted(tuple(result.save(request.path(".onnx"))), tuple(notes))


EMITTERS.add("dynamic_quantization", Emitter(write_dynamic, files=(".onnx",)))
