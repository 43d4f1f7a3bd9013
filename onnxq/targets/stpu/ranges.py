"""The range file of SenseTime's STPU, and the float model that it belongs to.

    <tensor>            {"min": -127 s, "max": 127 s}, for results of Conv, ConvTranspose, Gemm and Resize also "emin"
    <node>_weights      {"min": -127 s, "max": 127 s}
    <node>_bias         {"alpha": scale of the input * scale of the weight, "zero_point": 0}

`emin` is the lowest exponent that the accumulator keeps, counted as in the exponent field of a float32. For a
convolution it lies 10 below the exponent of max(sqrt(n) * input * weight, output), n being the product of the weight's
sizes without the first; for a Gemm it is 128; for Resize 20 below that of its result. The result of a Sigmoid has the
range -1 to 1. What stands in front of a Relu or Clip has the range of what stands behind it, unless it has one of its
own because others read it too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.deploy import deploy_model
from onnxq.emit.passed_back import LAYERS, operand_rows
from onnxq.emit.tables import Row, derived_key, differs, missing_and_extra, rows
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph, Node
from onnxq.types import PerTensor, QParamsTable, QuantPlan

PRECISION = 1e-6
STEPS = 127
CONVOLUTION_BITS, RESIZE_BITS, GEMM_EMIN = 10, 20, 128
SIGMOID = 1.0
"""The chip's Sigmoid gives -1 to 1, in 127 steps on each side."""

Entry = dict[str, float | int]


def write_ranges(request: EmitRequest) -> Emitted:
    """Write `<name>_stpu_minmax.json`: ranges of tensors and weights, scales of biases, exponents of accumulators."""
    path = request.path("_stpu_minmax.json")
    table = ranges(*request.quantized)
    write_json(path, table)
    notes = [
        f"{path.name}: '{tensor}' has the range -{held:g} to {held:g}, and the Sigmoid that makes it gives -1 to 1 on "
        "the chip. Leave its observer as it is, and keep it out of a Concat with wider inputs"
        for node in request.graph.nodes("Sigmoid")
        if (tensor := node.outputs[0].name) in table and (held := float(table[tensor]["max"])) != SIGMOID
    ]
    return Emitted((path,), tuple(notes))


def write_model(request: EmitRequest) -> Emitted:
    """Write `<name>_for_stpu.onnx`: the float model that the ranges belong to, weights within their ranges."""
    return Emitted(tuple(deploy_model(*request.quantized).save(request.path("_for_stpu.onnx"))))


def check_ranges(request: EmitRequest) -> Iterator[str]:
    """Compare ranges and bias scales with the parameters, and every exponent with the numbers that it has to hold."""
    path = request.path("_stpu_minmax.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    wanted, biases = ranged_rows(*request.quantized), bias_scales(*request.quantized)
    exponents = {node.outputs[0].name: node for node in request.graph.nodes() if _has_exponent(node, wanted)}
    yield from missing_and_extra(path.name, found, wanted.keys() | biases.keys())
    for entry, row in wanted.items():
        held = found.get(entry, {})
        keys = {"min", "max", "emin"} if entry in exponents else {"min", "max"}
        if held and held.keys() != keys:
            yield f"{path.name}: '{entry}' has {sorted(held)}, it should have {sorted(keys)}"
        for key, sign in (("min", -1.0), ("max", 1.0)):
            if key in held and differs(sign * held[key] / STEPS, row.qparams.scale, PRECISION):
                yield f"{path.name}: {key} of '{entry}' is {held[key]}, not {STEPS} steps of {row.qparams.scale}"
        if entry in exponents and "emin" in held:
            yield from _other_exponent(path.name, request.graph, exponents[entry], held["emin"], wanted)
    for entry, alpha in biases.items():
        held = found.get(entry)
        if held is not None and (differs(held.get("alpha"), alpha, PRECISION) or held.get("zero_point") != 0):
            yield f"{path.name}: '{entry}' is {held}, it should be alpha {alpha} with the zero point 0"


def _other_exponent(file: str, graph: Graph, node: Node, emin: int, wanted: dict[str, Row]) -> Iterator[str]:
    """2^exponent must be the largest power of two that is not above the number it stands for."""
    if node.op == "Gemm":
        if emin != GEMM_EMIN:
            yield f"{file}: emin of Gemm '{node.name}' is {emin}, it should be {GEMM_EMIN}"
        return
    result = float(wanted[node.outputs[0].name].high)
    bits, largest = RESIZE_BITS, result
    if node.op not in ("Resize", "Upsample"):
        data, weights = float(wanted[node.inputs[0].name].high), float(wanted[f"{node.name}_weights"].high)
        products = graph.values(node.inputs[1])[0].size
        bits, largest = CONVOLUTION_BITS, max(products**0.5 * data * weights, result)
    low = math.ldexp(1.0, emin + bits - 127)
    if not low * (1 - PRECISION) <= largest <= 2 * low * (1 + PRECISION):
        yield f"{file}: emin of '{node.outputs[0].name}' is {emin}, which does not go with {largest:g}"


def ranges(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Entry]:
    """The whole table: tensors in the order of the plan, then layers, each weight beside its bias."""
    listed, biases = ranged_rows(graph, plan, qparams), bias_scales(graph, plan, qparams)
    table: dict[str, Entry] = {}
    for entry, row in listed.items():
        table[entry] = _symmetric(row)
        bias = f"{entry.removesuffix('_weights')}_bias"
        if entry.endswith("_weights") and bias in biases:
            table[bias] = {"alpha": biases[bias], "zero_point": 0}
    for node in graph.nodes():
        if _has_exponent(node, listed):
            table[node.outputs[0].name]["emin"] = _accumulator_exponent(graph, node, table)
    return table


def ranged_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Row]:
    """Entry -> the parameters that its range is of: operands, weights, and what stands in front of an activation."""
    listed = operand_rows(graph, plan, qparams)
    weights = {row.tensor: row for row in rows(graph, plan, qparams, role="weight")}
    for node in graph.nodes():
        if node.op in LAYERS and node.inputs[1].name in weights:
            key = f"{node.name}_weights"
            listed[derived_key(key, key in listed, node.name)] = weights[node.inputs[1].name]
    for node in reversed(graph.nodes()):
        if (
            node.op in ("Relu", "Clip")
            and node.outputs[0].name in listed
            and graph.producer(node.inputs[0]) is not None
        ):
            listed.setdefault(node.inputs[0].name, listed[node.outputs[0].name])
    return listed


def bias_scales(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, float]:
    """Entry -> scale of the input * scale of the weight, for every layer with a bias."""
    found = {}
    tensors = operand_rows(graph, plan, qparams)
    for node in graph.nodes():
        if node.op not in LAYERS or len(node.inputs) < 3 or not node.inputs[2].name:
            continue
        data, weight = node.inputs[0].name, node.inputs[1].name
        if data in plan and weight in plan and graph.is_constant(weight):
            key = f"{node.name}_bias"
            scale = float(qparams[weight].scale) * float(qparams[data].scale)
            found[derived_key(key, key in tensors, node.name)] = scale
    return found


def _symmetric(row: Row) -> Entry:
    parameters = row.qparams
    if not isinstance(parameters.spec.granularity, PerTensor) or np.any(parameters.zero_point != 0):
        raise UnsupportedError(
            f"tensor '{row.tensor}' is quantized as {parameters.spec}; STPU's table has one symmetric range for each "
            "tensor: leave the formats of stpu as they are"
        )
    top = STEPS * float(parameters.scale)
    if not differs(top, SIGMOID, PRECISION):
        top = SIGMOID  # 1 / 127 as a float32 is not exactly that
    return {"min": -top, "max": top}


def _has_exponent(node: Node, listed: dict[str, Row]) -> bool:
    """Whether the result of a node has `emin`: quantized results of operators with an accumulator."""
    if not node.outputs or node.outputs[0].name not in listed:
        return False
    if node.op in ("Conv", "ConvTranspose"):
        return f"{node.name}_weights" in listed and node.inputs[0].name in listed
    return node.op in ("Gemm", "Resize", "Upsample")


def _accumulator_exponent(graph: Graph, node: Node, table: dict[str, Entry]) -> int:
    result = float(table[node.outputs[0].name]["max"])
    if node.op == "Gemm":
        return GEMM_EMIN
    if node.op in ("Resize", "Upsample"):
        return exponent_field(result) - RESIZE_BITS
    data, weights = (float(table[entry]["max"]) for entry in (node.inputs[0].name, f"{node.name}_weights"))
    products = math.prod(int(size) for size in graph.values(node.inputs[1]).shape[1:])
    return exponent_field(max(math.sqrt(products) * data * weights, result)) - CONVOLUTION_BITS


def exponent_field(value: float) -> int:
    """The exponent of a float32 as its bits have it (127 for 1.0); 0 for 0, 1 for what is smaller than 2^-126."""
    if value == 0:
        return 0
    return min(max(math.frexp(value)[1] + 126, 1), 254)


EMITTERS.add("stpu_ranges", Emitter(write_ranges, files=("_stpu_minmax.json",), read_back=check_ranges))
EMITTERS.add("stpu_model", Emitter(write_model, files=("_for_stpu.onnx",)))
