"""Keras layers in an ONNX graph: which operators a type of layer becomes, and what it is called there.

An ONNX operator's own name is a type, too. Where both have the name (Add, Flatten), the Keras layer is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import onnx

from onnxq.compat.translation import shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph, Node

Fits = Callable[[Graph, Node], bool]


@dataclass(frozen=True)
class LayerType:
    """The operators of a type, what else a node has to fulfil, and the roles of its constants by their Keras names."""

    ops: tuple[str, ...]
    fits: Fits | None = None
    constants: Mapping[str, str] = field(default_factory=dict)

    def matches(self, graph: Graph, node: Node) -> bool:
        return node.op in self.ops and not node.domain and (self.fits is None or self.fits(graph, node))


def is_parameter(graph: Graph, tensor: Any) -> bool:
    """Whether a tensor is a constant, or one that is only turned or renamed on its way."""
    while not graph.is_constant(tensor):
        producer = graph.producer(tensor)
        if producer is None or producer.op not in ("Identity", "Transpose", "Cast", "Reshape"):
            return False
        tensor = producer.inputs[0]
    return True


def computes_floats(graph: Graph, node: Node) -> bool:
    """Whether a node computes something that can be quantized: not a shape, nor constants from constants."""
    kind = graph.dtype(node.outputs[0]) if node.outputs else None
    floats = kind is None or kind.kind not in "iub"
    return floats and any(tensor.name and not is_parameter(graph, tensor) for tensor in node.inputs)


def weight_shape(graph: Graph, node: Node) -> tuple[Any, ...]:
    """The shape of a layer's weight; empty where it is not known."""
    return tuple(graph.shape(node.inputs[1]) or ()) if len(node.inputs) > 1 else ()


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether a convolution has a kernel of its own for each channel of its input."""
    shape = weight_shape(graph, node)
    return node.op == "Conv" and int(node.attrs.get("group", 1)) > 1 and len(shape) > 1 and shape[1] == 1


def _convolution(rank: int) -> Fits:
    return lambda graph, node: len(weight_shape(graph, node)) in (0, rank) and not is_depthwise(graph, node)


def _rank(rank: int) -> Fits:
    return lambda graph, node: len(weight_shape(graph, node)) in (0, rank)


def _pooling(dimensions: int) -> Fits:
    return lambda graph, node: len(node.attrs.get("kernel_shape", ())) in (0, dimensions)


def _computes_both(graph: Graph, node: Node) -> bool:
    return not any(is_parameter(graph, tensor) for tensor in node.inputs)


def _is_dense(graph: Graph, node: Node) -> bool:
    return len(node.inputs) > 1 and is_parameter(graph, node.inputs[1])


def _is_table(graph: Graph, node: Node) -> bool:
    return is_parameter(graph, node.inputs[0])


KERNEL = MappingProxyType({"kernel": "weight", "bias": "bias"})
_DEPTHWISE = MappingProxyType({"depthwise_kernel": "weight", "kernel": "weight", "bias": "bias"})
_NORM = MappingProxyType({"gamma": "weight", "beta": "bias"})

ACTIVATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "relu": ("Relu",),
        "relu6": ("Clip",),
        "sigmoid": ("Sigmoid",),
        "hard_sigmoid": ("HardSigmoid",),
        "swish": ("Swish",),
        "hard_swish": ("HardSwish",),
        "tanh": ("Tanh",),
        "softmax": ("Softmax",),
        "softplus": ("Softplus",),
        "softsign": ("Softsign",),
        "elu": ("Elu",),
        "selu": ("Selu",),
        "gelu": ("Gelu",),
        "leaky_relu": ("LeakyRelu",),
        "exponential": ("Exp",),
    }
)
"""Keras activation -> its operators."""

_OF_ACTIVATION_LAYERS = tuple(op for ops in ACTIVATIONS.values() for op in ops if op != "LeakyRelu")


def _by_dimensions(name: str, ops: tuple[str, ...]) -> dict[str, LayerType]:
    return {f"{name}{count}D": LayerType(ops, _pooling(count)) for count in (1, 2, 3)}


KERAS: Mapping[str, LayerType] = MappingProxyType(
    {
        **{f"Conv{count}D": LayerType(("Conv",), _convolution(count + 2), KERNEL) for count in (1, 2, 3)},
        **{f"DepthwiseConv{count}D": LayerType(("Conv",), is_depthwise, _DEPTHWISE) for count in (1, 2)},
        **{f"Conv{count}DTranspose": LayerType(("ConvTranspose",), _rank(count + 2), KERNEL) for count in (1, 2, 3)},
        "Dense": LayerType(("Gemm", "MatMul"), _is_dense, KERNEL),
        "Embedding": LayerType(("Gather",), _is_table, MappingProxyType({"embeddings": "weight"})),
        "Activation": LayerType(_OF_ACTIVATION_LAYERS),
        "ReLU": LayerType(("Relu", "Clip")),
        "LeakyReLU": LayerType(("LeakyRelu",)),
        "PReLU": LayerType(("PRelu",), None, MappingProxyType({"alpha": "weight"})),
        "ELU": LayerType(("Elu",)),
        "ThresholdedReLU": LayerType(("ThresholdedRelu",)),
        "Softmax": LayerType(("Softmax",)),
        "Add": LayerType(("Add", "Sum")),
        "Subtract": LayerType(("Sub",)),
        "Multiply": LayerType(("Mul",)),
        "Average": LayerType(("Mean",)),
        "Maximum": LayerType(("Max",)),
        "Minimum": LayerType(("Min",)),
        "Dot": LayerType(("MatMul",), _computes_both),
        "Concatenate": LayerType(("Concat",)),
        "BatchNormalization": LayerType(("BatchNormalization",), None, _NORM),
        "LayerNormalization": LayerType(("LayerNormalization",), None, _NORM),
        "GroupNormalization": LayerType(("GroupNormalization",), None, _NORM),
        **_by_dimensions("MaxPooling", ("MaxPool",)),
        **_by_dimensions("AveragePooling", ("AveragePool",)),
        **{f"GlobalAveragePooling{n}D": LayerType(("GlobalAveragePool", "ReduceMean")) for n in (1, 2, 3)},
        **{f"GlobalMaxPooling{n}D": LayerType(("GlobalMaxPool", "ReduceMax")) for n in (1, 2, 3)},
        **{f"UpSampling{n}D": LayerType(("Resize", "Upsample")) for n in (1, 2, 3)},
        **{f"ZeroPadding{n}D": LayerType(("Pad",)) for n in (1, 2, 3)},
        **{f"Cropping{n}D": LayerType(("Slice",)) for n in (1, 2, 3)},
        "Reshape": LayerType(("Reshape",)),
        "Flatten": LayerType(("Flatten", "Reshape")),
        "Permute": LayerType(("Transpose",)),
        "RepeatVector": LayerType(("Tile", "Expand")),
        "Dropout": LayerType(("Dropout",)),
        "SpatialDropout2D": LayerType(("Dropout",)),
        "LSTM": LayerType(("LSTM",)),
        "GRU": LayerType(("GRU",)),
        "SimpleRNN": LayerType(("RNN",)),
        "VitisConvBN": LayerType(("Conv",), _convolution(4), KERNEL),
        "VitisDepthwiseConvBN": LayerType(("Conv",), is_depthwise, _DEPTHWISE),
        "VitisAveragePooling2D": LayerType(("AveragePool",)),
        "VitisGlobalAveragePooling2D": LayerType(("GlobalAveragePool", "ReduceMean")),
        "VitisSigmoid": LayerType(("Sigmoid", "HardSigmoid")),
    }
)

INPUT_LAYER = "InputLayer"
"""No operator: what it names is an input of the graph, which only patterns of inputs can ask for."""

_ELSEWHERE = {
    "SeparableConv2D": "is a DepthwiseConv2D and a Conv2D in ONNX: name those",
    "SeparableConv1D": "is a DepthwiseConv1D and a Conv1D in ONNX: name those",
    "MultiHeadAttention": "is taken apart into Dense, Dot and Softmax in ONNX: name those",
    "TensorFlowOpLayer": "is a TensorFlow operation: name the ONNX operator that it became",
    "TFOpLambda": "is a TensorFlow operation: name the ONNX operator that it became",
    "Lambda": "is a Python function: name the ONNX operators that it became",
}


def layer_types(names: str, custom: Collection[str], where: str) -> tuple[LayerType, ...]:
    """The types behind "Conv2D|tensorflow.keras.layers.Dense"; none for "", which is any type."""
    return tuple(_layer_type(name.strip(), custom, where) for name in names.split("|")) if names.strip() else ()


def _layer_type(name: str, custom: Collection[str], where: str) -> LayerType:
    short = name.rpartition(".")[2]
    if short in KERAS:
        return KERAS[short]
    if short in custom:
        return _Custom((short,))
    if short in _ELSEWHERE:
        raise ConfigError(f"{where}: {short} {_ELSEWHERE[short]}")
    if short == INPUT_LAYER:
        raise ConfigError(f"{where}: {INPUT_LAYER} is no layer with quantizers of its own: see input_quantize_config")
    if onnx.defs.has(short):
        return LayerType((short,), None, KERNEL if short in ("Conv", "ConvTranspose", "Gemm", "MatMul") else {})
    known = [*KERAS, *custom, *sorted({schema.name for schema in onnx.defs.get_all_schemas()})]
    raise ConfigError(
        f"{where}: unknown layer type {shown(name)}.{did_you_mean(short, known)} Known: operators of ONNX, what "
        f"custom_layer_type lists, and the Keras layers {', '.join(KERAS)}"
    )


class _Custom(LayerType):
    """An operator of a domain of its own, as custom_layer_type names it."""

    def matches(self, graph: Graph, node: Node) -> bool:
        return node.op in self.ops
