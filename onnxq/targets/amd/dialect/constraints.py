"""layer_params: what a layer's parameters are called in Keras, and where an ONNX node has them.

A value is compared as a whole; a single number stands for a list of equal ones, so that kernel_size 3 is [3, 3].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph, Node
from onnxq.json_file import JsonMapping
from onnxq.passes.clamp import clamp_of
from onnxq.targets.amd.dialect.layers import ACTIVATIONS, is_depthwise, is_parameter, weight_shape

Get = Callable[[Graph, Node], Any]
_LAYERS = ("Conv", "ConvTranspose")
_MATRICES = ("Gemm", "MatMul")


def _attribute(name: str, ops: tuple[str, ...], default: Any = None) -> Get:
    def get(graph: Graph, node: Node) -> Any:
        return node.attrs.get(name, default) if node.op in ops else None

    return get


def _spatial(name: str, ops: tuple[str, ...]) -> Get:
    """A list with one number for each spatial axis, all of them 1 where it is left out."""

    def get(graph: Graph, node: Node) -> Any:
        return node.attrs.get(name, [1]) if node.op in ops else None

    return get


def _kernel_size(graph: Graph, node: Node) -> Any:
    return (node.attrs.get("kernel_shape") or list(weight_shape(graph, node)[2:])) if node.op in _LAYERS else None


def _filters(graph: Graph, node: Node) -> Any:
    shape = weight_shape(graph, node)
    if node.op == "Conv" and shape:
        return shape[0]
    return shape[1] * int(node.attrs.get("group", 1)) if node.op == "ConvTranspose" and len(shape) > 1 else None


def _units(graph: Graph, node: Node) -> Any:
    shape = weight_shape(graph, node)
    if node.op not in _MATRICES or len(shape) < 2:
        return None
    return shape[0] if node.attrs.get("transB", 0) else shape[-1]


def _depth_multiplier(graph: Graph, node: Node) -> Any:
    return weight_shape(graph, node)[0] // int(node.attrs["group"]) if is_depthwise(graph, node) else None


def _padding(graph: Graph, node: Node) -> Any:
    """valid: no padding; same: the size stays, but for strides; otherwise the numbers themselves.

    With a stride s Keras pads k - s to k - 1 values, as the size demands; without one it is k - 1.
    """
    if node.op not in (*_LAYERS, "MaxPool", "AveragePool"):
        return None
    automatic = str(node.attrs.get("auto_pad", "NOTSET"))
    if automatic != "NOTSET":
        return "same" if automatic.startswith("SAME") else "valid"
    pads = list(node.attrs.get("pads", [0]))
    if not any(pads):
        return "valid"
    half = len(pads) // 2
    kernel = node.attrs.get("kernel_shape") or list(weight_shape(graph, node)[2:])
    spread = node.attrs.get("dilations") or [1] * half
    strides = node.attrs.get("strides") or [1] * half
    reach = [(size - 1) * step for size, step in zip(kernel, spread, strict=False)]
    added = [low + high for low, high in zip(pads[:half], pads[half:], strict=True)]
    fits = zip(added, reach, strides, strict=False)
    return "same" if all(most - stride < total <= most for total, most, stride in fits) else pads


def _activation(graph: Graph, node: Node) -> str | None:
    """The activation that a node computes itself, or that alone reads its result."""
    own = _activation_name(graph, node)
    if own is not None:
        return own
    readers = graph.consumers(node.outputs[0])
    following = _activation_name(graph, readers[0].node) if len(readers) == 1 else None
    return following or "linear"


def _activation_name(graph: Graph, node: Node) -> str | None:
    for name, ops in ACTIVATIONS.items():
        if node.op in ops and not node.domain:
            clamp = clamp_of(graph, node) if name == "relu6" else None
            if name != "relu6" or (clamp is not None and (clamp.low, clamp.high) == (0.0, 6.0)):
                return name
    return None


def _max_value(graph: Graph, node: Node) -> Any:
    clamp = clamp_of(graph, node) if node.op == "Clip" else None
    return None if clamp is None else clamp.high


def has_bias(graph: Graph, node: Node) -> bool | None:
    """Whether a layer has a bias; None where its operator knows none."""
    if node.op == "MatMul":
        readers = graph.consumers(node.outputs[0])
        return (
            len(readers) == 1
            and readers[0].node.op == "Add"
            and any(is_parameter(graph, tensor) for tensor in readers[0].node.inputs)
        )
    return len(node.inputs) > 2 and bool(node.inputs[2].name) if node.op in (*_LAYERS, "Gemm") else None


_POOLS = ("MaxPool", "AveragePool")

PARAMETERS: Mapping[str, Get] = MappingProxyType(
    {
        "kernel_size": _kernel_size,
        "filters": _filters,
        "units": _units,
        "strides": _spatial("strides", (*_LAYERS, *_POOLS)),
        "dilation_rate": _spatial("dilations", _LAYERS),
        "dilation": _spatial("dilations", _LAYERS),
        "groups": _attribute("group", _LAYERS, 1),
        "depth_multiplier": _depth_multiplier,
        "padding": _padding,
        "pool_size": _attribute("kernel_shape", _POOLS),
        "activation": _activation,
        "use_bias": has_bias,
        "max_value": _max_value,
        "alpha": _attribute("alpha", ("LeakyRelu", "Elu"), 0.01),
        "negative_slope": _attribute("alpha", ("LeakyRelu",), 0.01),
        "axis": _attribute("axis", ("Concat", "Softmax", "Flatten", "Gather")),
        "epsilon": _attribute("epsilon", ("BatchNormalization", "LayerNormalization"), 1e-5),
        "momentum": _attribute("momentum", ("BatchNormalization",), 0.9),
        "interpolation": _attribute("mode", ("Resize", "Upsample"), "nearest"),
    }
)
"""Name in Keras -> its value on a node; None where a node of this operator has no such parameter."""


def check_parameters(given: JsonMapping, graph: Graph, where: str) -> None:
    """Refuse names that neither Keras nor an operator of the model has."""
    if all(name in PARAMETERS for name in given):
        return
    known = [*PARAMETERS, *sorted({name for node in graph.nodes() for name in node.attrs})]
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{where}: unknown parameter '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}"
            )


def fulfils(graph: Graph, node: Node, given: JsonMapping) -> bool:
    """Whether a node has all of these parameters with these values."""
    for name, wanted in given.items():
        numbers = name == "padding" and not isinstance(wanted, str)
        get = _attribute("pads", (str(node.op),)) if numbers else PARAMETERS.get(name)
        held = node.attrs.get(name) if get is None else get(graph, node)
        if held is None or not _equal(held, wanted):
            return False
    return True


def held_values(graph: Graph, nodes: list[Node], name: str) -> list[str]:
    """The values that a parameter has on these nodes, for an error that shows them."""
    found = [PARAMETERS[name](graph, node) if name in PARAMETERS else node.attrs.get(name) for node in nodes]
    return list(dict.fromkeys(repr(value) for value in found if value is not None))


def _equal(held: Any, wanted: Any) -> bool:
    one, other = _plain(held), _plain(wanted)
    if isinstance(one, list) != isinstance(other, list):
        numbers, single = (one, other) if isinstance(one, list) else (other, one)
        return bool(numbers) and all(_equal(item, single) for item in numbers)
    if isinstance(one, list):
        if len(one) == 1 or len(other) == 1:  # attributes that are left out stand for ones on every axis
            return _equal(one[0], other) if len(one) == 1 else _equal(one, other[0])
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(other, int | float) and isinstance(one, int | float) and abs(one - other) <= 1e-6 * abs(other)
    return bool(one == other)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(value)
    return value.lower() if isinstance(value, str) else value
