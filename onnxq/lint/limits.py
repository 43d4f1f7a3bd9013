"""lint: does a Q/DQ model keep to the limits of a target? Works on files from elsewhere too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.graph import Graph
from onnxq.lint.finding import Finding
from onnxq.lint.quantizers import INT32, UINT8, Quantizer, element_name, element_names, quantizers, type_name
from onnxq.lint.rules import LINTS
from onnxq.types import Backend, Limits
from onnxq.types.backend import check_backend
from onnxq.types.number_format import known_format

_BIAS_PORTS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}


def lint(model: Path | str | Graph, backend: Backend) -> list[Finding]:
    """Every violation, in the order of the nodes; an empty list means that the target takes the model's quantizers."""
    check_backend(backend)
    graph = model if isinstance(model, Graph) else Graph.load(model)
    with graph.unchanging():
        return _lint(graph, backend)


def _lint(graph: Graph, backend: Backend) -> list[Finding]:
    findings = [*_opset(graph, backend), *_operators(graph, backend)]
    found = quantizers(graph)
    for quantizer in found:
        for rule in _RULES:
            findings.extend(rule(graph, quantizer, backend.limits, backend.name))
    findings.extend(_pairs(found))
    for name in backend.lints:
        findings.extend(LINTS.get(name)(graph, found, backend))
    if not backend.limits.bias_quantized:
        findings.extend(_biases(graph, backend))
    return findings


def _opset(graph: Graph, backend: Backend) -> Iterator[Finding]:
    low, high = backend.limits.min_opset, backend.limits.max_opset
    if graph.opset < low or (high is not None and graph.opset > high):
        allowed = f"{low} or newer" if high is None else f"{low} to {high}"
        yield Finding(
            "opset",
            "",
            "",
            f"the model has opset {graph.opset}, {backend.name} takes {allowed}",
            "Export the model with an opset in that range",
        )


def _operators(graph: Graph, backend: Backend) -> Iterator[Finding]:
    """Integer operators that the target's reader does not know."""
    for node in graph.nodes():
        if node.op in backend.limits.refused_operators:
            yield Finding(
                "operator",
                str(node.outputs[0].name),
                str(node.name),
                f"tensor '{node.outputs[0].name}' (node '{node.name}') is made by {node.op}, which {backend.name} does "
                "not read",
                "Write the model with QuantizeLinear and DequantizeLinear around float operators, or make a float "
                "model of it with 'onnxq strip' and quantize that",
            )


def _steps(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    """Stored integers beyond those that the target computes with, such as -128 where it has -127 .. 127."""
    stored = [steps for steps in limits.steps if steps[0] < 0 or quantizer.dtype == UINT8]
    if quantizer.op != "DequantizeLinear" or not stored or not graph.is_constant(quantizer.data_name):
        return
    values = graph.values(quantizer.data_name)
    if values.dtype.itemsize != 1 or values.size == 0:
        return  # biases, and types that the rule of types is about
    low, high = min(steps[0] for steps in stored), max(steps[1] for steps in stored)
    lowest, highest = int(values.min()), int(values.max())
    if lowest < low or highest > high:
        yield quantizer.finding(
            "steps",
            f"holds integers from {lowest} to {highest}, {target} computes with {low} .. {high}",
            "Quantize it again with a narrow range",
        )


def _dtype(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    kind = quantizer.dtype
    if kind in element_names(limits.weight_only_dtypes) and not quantizer.constant:
        yield quantizer.finding(
            "dtype", f"is computed at run time and {kind}, which {target} takes for weights only", "Use int8 for it"
        )
    if kind is None or kind in element_names(limits.dtypes):
        return
    if kind == INT32 and quantizer.constant and not limits.bias_quantized:
        return  # a bias, which has a rule of its own
    yield quantizer.finding(
        "dtype",
        f"is {kind}, {target} takes {', '.join(limits.dtypes)}",
        "Choose one of these formats for this tensor",
    )


def _zero_point(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    if quantizer.zero_point_name and quantizer.zero_point is None:
        yield quantizer.finding(
            "constant-zero-point",
            f"has a zero point '{quantizer.zero_point_name}' that is computed at run time",
            "Make it a constant",
        )
    if quantizer.zero_point is None:
        return
    only_zero = limits.zero_point_zero or (limits.weights_symmetric and _is_weight(graph, quantizer))
    if only_zero and np.any(quantizer.zero_point.astype(np.float64) != 0):
        yield quantizer.finding(
            "zero-point-zero",
            f"has a zero point other than 0, and {target} takes only 0",
            "Use a symmetric format for this tensor",
        )
    stored = element_name(type_name(quantizer.zero_point.dtype))
    if quantizer.dtype is not None and stored != quantizer.dtype:
        yield quantizer.finding(
            "zero-point-type",
            f"holds {quantizer.dtype} but its zero point is {stored}",
            "Give the zero point the type of the quantized values",
        )
    single = quantizer.scale is not None and quantizer.scale.size == quantizer.zero_point.size == 1  # () or (1,)
    if quantizer.scale is not None and not single and quantizer.zero_point.shape != quantizer.scale.shape:
        yield quantizer.finding(
            "zero-point-shape",
            f"has a zero point of shape {quantizer.zero_point.shape} and a scale of shape {quantizer.scale.shape}",
            "Give both the same shape",
        )


def _is_weight(graph: Graph, quantizer: Quantizer) -> bool:
    """Whether a quantizer stands on the weight of a layer; other constants have the format of activations."""
    readers = graph.consumers(quantizer.output_name) if quantizer.constant else []
    return any(use.port == 1 and use.node.op in ("Conv", "ConvTranspose", "Gemm", "MatMul") for use in readers)


def _scale(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    if quantizer.scale is None:
        yield quantizer.finding(
            "constant-scale",
            f"has a scale '{quantizer.scale_name}' that is computed at run time",
            "Make it a constant, or leave this tensor float",
        )
        return
    scale = quantizer.scale.astype(np.float64)
    turned = limits.signed_scales and quantizer.constant
    if not (np.isfinite(scale).all() and ((np.abs(scale) if turned else scale) > 0).all()):
        yield quantizer.finding(
            "positive-scale", "has a scale that is not a finite number above 0", "Calibrate this tensor again"
        )
    kind = type_name(quantizer.scale.dtype)
    if kind not in limits.float_types and element_name(kind) not in element_names(limits.dtypes):
        yield quantizer.finding(
            "float-type",
            f"has a {quantizer.scale.dtype.name} scale, {target} computes in {', '.join(limits.float_types)}",
            "Convert the float model to one of these types before quantizing it",
        )
    yield from _scale_shape(graph, quantizer)


def _scale_shape(graph: Graph, quantizer: Quantizer) -> Iterator[Finding]:
    """A scale along an axis has as many entries as the tensor has along it."""
    shape = graph.shape(quantizer.data_name)
    if quantizer.scale is None or quantizer.scale.ndim != 1 or quantizer.scale.size == 1 or shape is None:
        return
    axis = quantizer.axis
    length = shape[axis] if -len(shape) <= axis < len(shape) else None
    if not -len(shape) <= axis < len(shape) or (isinstance(length, int) and length != quantizer.scale.size):
        yield quantizer.finding(
            "scale-shape",
            f"has {quantizer.scale.size} scales along axis {axis}, but its shape is {list(shape)}",
            "Give one scale for each index along the axis",
        )


def _granularity(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    if (
        limits.activations_per_tensor
        and not quantizer.constant
        and quantizer.scale is not None
        and quantizer.scale.size > 1
    ):
        yield quantizer.finding(
            "activation-per-tensor",
            f"is computed at run time and has {quantizer.scale.size} scales, {target} takes one for an activation",
            "Quantize it per tensor",
        )
    if limits.weights_per_tensor and quantizer.constant and quantizer.scale is not None and quantizer.scale.size > 1:
        if quantizer.dtype == INT32:
            return  # a bias, which has as many scales as its weight: one finding is enough
        yield quantizer.finding(
            "weight-per-tensor",
            f"is a constant with {quantizer.scale.size} scales, {target} takes one for a weight",
            "Quantize it per tensor",
        )


def _least_range(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    if limits.minimum_range is None or quantizer.constant or quantizer.scale is None or quantizer.dtype is None:
        return
    form = known_format(quantizer.dtype)
    bits = form.bits if form is not None and form.evenly_spaced else 0
    width = float(quantizer.scale.astype(np.float64).min()) * (2**bits - 1)
    if bits and 0 < width < limits.minimum_range * (1 - 1e-6):  # a float32 scale is not exact
        yield quantizer.finding(
            "minimum-range",
            f"has a range of {width:g}, {target} makes it at least {limits.minimum_range:g} wide",
            "Widen its range",
        )


def _power_of_two(graph: Graph, quantizer: Quantizer, limits: Limits, target: str) -> Iterator[Finding]:
    if not limits.power_of_two or quantizer.scale is None:
        return
    scale = quantizer.scale.astype(np.float64).reshape(-1)
    wrong = scale[(scale > 0) & np.isfinite(scale)]
    wrong = wrong[np.frexp(wrong)[0] != 0.5]
    if wrong.size:
        nearest = 2.0 ** np.rint(np.log2(wrong[0]))
        yield quantizer.finding(
            "power-of-two",
            f"has a scale of {wrong[0]:g}, which is no power of two, and {target} scales by shifting bits",
            f"Use a power of two such as {nearest:g} (power_of_two = true)",
        )


Rule = Callable[[Graph, Quantizer, Limits, str], Iterator[Finding]]
_RULES: tuple[Rule, ...] = (_dtype, _zero_point, _scale, _granularity, _power_of_two, _least_range, _steps)


def _pairs(found: list[Quantizer]) -> Iterator[Finding]:
    """A DequantizeLinear behind a QuantizeLinear has the same parameters: otherwise the pair multiplies the values."""
    writers = {q.output_name: q for q in found if q.op == "QuantizeLinear"}
    for reader in found:
        writer = writers.get(reader.data_name)
        if reader.op != "DequantizeLinear" or writer is None:
            continue
        if not (_same(reader.scale, writer.scale) and _same(_or_zero(reader), _or_zero(writer))):
            yield reader.finding(
                "pair",
                f"is dequantized with another scale or zero point than node '{writer.node}' quantized it with",
                "Use the same parameters on both sides",
            )


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.array_equal(one.astype(np.float64), other.astype(np.float64)))


def _or_zero(quantizer: Quantizer) -> Any:
    if quantizer.zero_point is not None or quantizer.zero_point_name or quantizer.scale is None:
        return quantizer.zero_point
    return np.zeros(quantizer.scale.shape)


def _biases(graph: Graph, backend: Backend) -> Iterator[Finding]:
    ports = dict(_BIAS_PORTS)
    for rule in backend.rules:
        if rule.bias is not None:
            ports.update(dict.fromkeys(rule.ops, rule.bias))
    for node in graph.nodes():
        port = ports.get(node.op)
        if port is None or len(node.inputs) <= port or not node.inputs[port].name:
            continue
        producer = graph.producer(node.inputs[port])
        if producer is not None and producer.op == "DequantizeLinear":
            yield Finding(
                "float-bias",
                str(producer.inputs[0].name),
                str(node.name),
                f"the bias of node '{node.name}' ({node.op}) is quantized, and {backend.name} takes float biases",
                "Leave the bias float",
            )
