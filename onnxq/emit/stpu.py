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
from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.deploy import deploy_model
from onnxq.emit.passed_back import LAYERS, operand_rows
from onnxq.emit.ppl import missing_and_extra
from onnxq.emit.tables import differs
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph, Node
from onnxq.types import Backend, PerTensor, QParams, QParamsTable, QuantPlan

PRECISION = 1e-6
STEPS = 127
CONVOLUTION_BITS, RESIZE_BITS, GEMM_EMIN = 10, 20, 128
SIGMOID = 1.0
"""The chip's Sigmoid gives -1 to 1, in 127 steps on each side."""

Entry = dict[str, float | int]


@EMITTERS.register("stpu_ranges")
def write_ranges(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_stpu_minmax.json`: ranges of tensors and weights, scales of biases, exponents of accumulators."""
    path = folder / f"{name}_stpu_minmax.json"
    table = ranges(graph, plan, qparams)
    write_json(path, table)
    notes = [
        f"{path.name}: '{tensor}' has the range -{held:g} to {held:g}, and the Sigmoid that makes it gives -1 to 1 on "
        "the chip. Leave its observer as it is, and keep it out of a Concat with wider inputs"
        for node in graph.nodes("Sigmoid")
        if (tensor := node.outputs[0].name) in table and (held := float(table[tensor]["max"])) != SIGMOID
    ]
    return Emitted((path,), tuple(notes))


@EMITTERS.register("stpu_model")
def write_model(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_for_stpu.onnx`: the float model that the ranges belong to, weights within their ranges."""
    return Emitted(tuple(deploy_model(graph, plan, qparams).save(folder / f"{name}_for_stpu.onnx")))


@READ_BACKS.register("stpu_ranges")
def check_ranges(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    """Compare ranges and bias scales with the parameters, and every exponent with the ranges in the file."""
    path = folder / f"{name}_stpu_minmax.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    wanted = ranges(graph, plan, qparams)
    yield from missing_and_extra(path, found, wanted)
    for entry in wanted.keys() & found.keys():
        if found[entry].keys() != wanted[entry].keys():
            yield f"{path.name}: '{entry}' has {sorted(found[entry])}, it should have {sorted(wanted[entry])}"
            continue
        for key, value in wanted[entry].items():
            if differs(found[entry][key], value, PRECISION):
                yield f"{path.name}: {key} of '{entry}' is {found[entry][key]}, it should be {value}"


def ranges(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Entry]:
    """The whole table, in the order of the plan."""
    table = {tensor: _symmetric(tensor, row.qparams) for tensor, row in operand_rows(graph, plan, qparams).items()}
    for node in graph.nodes():
        _add_parameters(graph, plan, qparams, node, table)
    for node in reversed(graph.nodes()):
        if node.op in ("Relu", "Clip") and node.outputs[0].name in table and graph.producer(node.inputs[0]) is not None:
            table.setdefault(node.inputs[0].name, dict(table[node.outputs[0].name]))
    for node in graph.nodes():
        emin = _accumulator_exponent(graph, node, table)
        if emin is not None:
            table[node.outputs[0].name]["emin"] = emin
    return table


def _add_parameters(graph: Graph, plan: QuantPlan, qparams: QParamsTable, node: Node, table: dict[str, Entry]) -> None:
    if node.op not in LAYERS or node.inputs[1].name not in plan or not graph.is_constant(node.inputs[1]):
        return
    data, weight = node.inputs[0].name, node.inputs[1].name
    table[f"{node.name}_weights"] = _symmetric(weight, qparams[weight])
    if len(node.inputs) > 2 and node.inputs[2].name and data in plan:
        alpha = float(qparams[weight].scale) * float(qparams[data].scale)
        table[f"{node.name}_bias"] = {"alpha": alpha, "zero_point": 0}


def _symmetric(tensor: str, parameters: QParams) -> Entry:
    if not isinstance(parameters.spec.granularity, PerTensor) or np.any(parameters.zero_point != 0):
        raise UnsupportedError(
            f"tensor '{tensor}' is quantized as {parameters.spec}; STPU's table has one symmetric range for each "
            "tensor: leave the formats of stpu as they are"
        )
    top = STEPS * float(parameters.scale)
    if not differs(top, SIGMOID, PRECISION):
        top = SIGMOID  # 1 / 127 as a float32 is not exactly that
    return {"min": -top, "max": top}


def _accumulator_exponent(graph: Graph, node: Node, table: dict[str, Entry]) -> int | None:
    """`emin` of a node's result, None for operators without one and for nodes that are not quantized."""
    result = table.get(node.outputs[0].name) if node.outputs else None
    if result is None:
        return None
    if node.op == "Gemm":
        return GEMM_EMIN
    if node.op in ("Resize", "Upsample"):
        return exponent_field(float(result["max"])) - RESIZE_BITS
    weights = table.get(f"{node.name}_weights")
    data = table.get(node.inputs[0].name) if node.inputs else None
    if node.op not in ("Conv", "ConvTranspose") or weights is None or data is None:
        return None
    products = math.prod(int(size) for size in graph.values(node.inputs[1]).shape[1:])
    largest = max(math.sqrt(products) * float(data["max"]) * float(weights["max"]), float(result["max"]))
    return exponent_field(largest) - CONVOLUTION_BITS


def exponent_field(value: float) -> int:
    """The exponent of a float32 as its bits have it (127 for 1.0); 0 for 0, 1 for what is smaller than 2^-126."""
    if value == 0:
        return 0
    return min(max(math.frexp(value)[1] + 126, 1), 254)
