"""What every backend writes for every golden graph, as text: `python -m tools.golden [BACKEND ...]` rewrites it.

The parameters are synthetic: activation ranges follow from the position of a tensor in the plan, weight ranges are the
smallest and largest value. So the text depends on placement, passes and emitters alone, and on no processor. Models are
listed node by node, with their small constants; tables stand as they are, except that the entries of JSON files take
one line each.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxq.emit import emit, read_back
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import derived_bias_scale, qparams_from_range
from onnxq.observers import make_observer, observe_constant
from onnxq.passes import run_passes
from onnxq.place import place
from onnxq.refine import refine
from onnxq.targets import BACKENDS
from onnxq.types import Backend, PerBlock, PerChannel, Placement, QParams, QParamsTable, QuantPlan
from tests.golden_graphs import GOLDEN

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"
MODEL = "model"
_NEVER_NEGATIVE = ("Relu", "Clip", "Sigmoid", "Softmax")
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear", "FakeQuantize", "FixNeuron")
"""Listed with the numbers of their scales, zero points and bounds in place of the names."""
_WITH_ATTRIBUTES = ("QuantizeLinear", "DequantizeLinear", "Resize", "Upsample")
_SMALL = 4
"""Constants of more numbers are left out: they are the weights that a golden graph was given."""
_SHORT = (("_QuantizeLinear", "~q"), ("_DequantizeLinear", "~dq"), ("QuantizeLinear", "Q"), ("DequantizeLinear", "DQ"))
_INNERMOST = re.compile(r"[{\[][^{}\[\]]*[}\]]")
"""An object or array without another one inside: it is stored in one line."""


def golden_texts(backend: Backend, graph_name: str) -> dict[str, str]:
    """File name -> text, for one backend and one golden graph; a refusal is a text too."""
    graph = Graph.from_model(GOLDEN[graph_name]().model)
    graph.infer_shapes()
    run_passes(graph, list(backend.passes))
    graph.infer_shapes()
    plan = place(graph, backend)
    texts = {"plan.txt": plan_text(plan)}
    if not len(plan):
        return texts
    qparams = refine(graph, plan, synthetic_parameters(graph, plan), backend).qparams
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = emit(graph, plan, qparams, backend, Path(folder), MODEL).files
        except UnsupportedError as error:
            return {**texts, "refused.txt": f"{error}\n"}
        wrong = read_back(graph, plan, qparams, backend, Path(folder), MODEL)
        if wrong:
            raise AssertionError(f"{backend.name} reads its files for {graph_name} differently: {wrong[:3]}")
        float_listing = listing(graph.to_model(given_names=True))
        for path in files:
            texts |= dict([_file_text(path, float_listing)])
    return texts


def _file_text(path: Path, float_listing: str) -> tuple[str, str]:
    if path.suffix == ".json":
        return path.name, _INNERMOST.sub(lambda part: " ".join(part.group().split()), path.read_text(encoding="utf-8"))
    if path.suffix != ".onnx":
        return path.name, path.read_text(encoding="utf-8")
    text = listing(onnx.load(path))
    return f"{path.name}.txt", "the nodes of the float model\n" if text == float_listing else text


# ---- parameters ------------------------------------------------------------------------------------------------------


def synthetic_parameters(graph: Graph, plan: QuantPlan) -> QParamsTable:
    """Parameters for every placement, from formulas instead of samples."""
    table = QParamsTable()
    for position, placement in enumerate(plan):
        if placement.tie is None and placement.derive is None:
            table.put(placement.tensor, _own_parameters(graph, placement, position), "synthetic")
    for placement in plan:
        if placement.tie is not None:
            table.put(placement.tensor, table[placement.tie], "synthetic")
        elif placement.derive is not None:
            data, weight = table[plan.leader(placement.derive.input)], table[placement.derive.weight]
            scale = derived_bias_scale(data, weight)
            parameters = QParams(placement.spec, scale, np.zeros(scale.shape, np.int32))
            table.put(placement.tensor, parameters, "synthetic")
    table.entries = {placement.tensor: table[placement.tensor] for placement in plan}
    return table


def _own_parameters(graph: Graph, placement: Placement, position: int) -> QParams:
    if graph.is_constant(placement.tensor) and isinstance(placement.spec.granularity, PerBlock):
        return observe_constant(graph.values(placement.tensor), make_observer("minmax"), placement.spec)
    if graph.is_constant(placement.tensor):
        return qparams_from_range(*_extremes(graph.values(placement.tensor), placement), placement.spec)
    if placement.observer.startswith("fixed:"):
        low, high = (float(part) for part in placement.observer.removeprefix("fixed:").split(","))
        return qparams_from_range(low, high, placement.spec)
    low, high = -1.0 - 0.5 * (position % 7), 2.0 + 0.75 * (position % 5)
    producer = graph.producer(placement.tensor)
    only_positive = placement.spec.symmetric and not placement.spec.signed
    if only_positive or (producer is not None and producer.op in _NEVER_NEGATIVE):
        low = 0.0
    return qparams_from_range(low, high, placement.spec)


def _extremes(values: np.ndarray, placement: Placement) -> tuple[np.ndarray, np.ndarray]:
    granularity = placement.spec.granularity
    axis = granularity.axis % values.ndim if isinstance(granularity, PerChannel) else None
    others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
    return values.min(others), values.max(others)


# ---- text ------------------------------------------------------------------------------------------------------------


def plan_text(plan: QuantPlan) -> str:
    """One line for each tensor, then one for each node."""
    lines = [f"backend {plan.backend}"]
    for placement in plan:
        edges = "everywhere" if placement.edges is None else " ".join(f"{e.node}:{e.port}" for e in placement.edges)
        tie = "" if placement.tie is None else f" | tied to {placement.tie}"
        derived = (
            "" if placement.derive is None else f" | scale of {placement.derive.input} * {placement.derive.weight}"
        )
        observer = "" if placement.observer == "minmax" else f" | {placement.observer}"
        lines.append(
            f"tensor {placement.tensor} | {placement.role} | {placement.spec} | {edges}{tie}{derived}{observer}"
        )
    lines += [f"quantized {name} | {why}" for name, why in plan.quantized.items()]
    lines += [f"fused {name} | into {leader}" for name, leader in plan.fused.items()]
    lines += [f"float {name} | {why}" for name, why in plan.left_float.items()]
    return "\n".join(lines) + "\n"


def listing(model: onnx.ModelProto) -> str:
    """Opsets, nodes (operator, inputs, outputs, attributes) and small constants; bodies indented below their node."""
    opsets = ", ".join(f"{entry.domain or 'onnx'} {entry.version}" for entry in model.opset_import)
    return "\n".join([f"opset {opsets}", *_nodes(model.graph, "")]) + "\n"


def _nodes(graph: onnx.GraphProto, indent: str) -> Iterator[str]:
    small = {tensor.name: _numbers(tensor) for tensor in graph.initializer if math.prod(tensor.dims) <= _SMALL}
    said = set()
    for node in graph.node:
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        read = list(node.input)
        if node.op_type in _QUANTIZERS:
            said |= set(read[1:])
            read[1:] = [small.get(name, name) for name in read[1:]]
        inputs, outputs = (" ".join(name or "-" for name in names) for names in (read, node.output))
        yield indent + _shortened(f"{operator} {inputs} > {outputs}{_attributes(node)}")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield f"{indent}  {attribute.name}"
                yield from _nodes(attribute.g, indent + "    ")
    yield from (f"{indent}{name} = {numbers}" for name, numbers in small.items() if name not in said)


def _numbers(tensor: onnx.TensorProto) -> str:
    return ",".join(f"{float(value):.7g}" for value in numpy_helper.to_array(tensor).reshape(-1).tolist())


def _attributes(node: onnx.NodeProto) -> str:
    """Attributes of operators whose parameters onnxq writes, sorted by name; other operators are as they were given."""
    if not node.domain and node.op_type not in _WITH_ATTRIBUTES:
        return ""
    held = [(item.name, helper.get_attribute_value(item)) for item in node.attribute if not item.HasField("g")]
    return "".join(f" {key}={_attribute_text(value)}" for key, value in sorted(held))


def _attribute_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, onnx.TensorProto):
        return _numbers(value)
    if isinstance(value, Sequence):
        return ",".join(_attribute_text(part) for part in value)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _shortened(line: str) -> str:
    for long, short in _SHORT:
        line = line.replace(long, short)
    return line


# ---- the folder ------------------------------------------------------------------------------------------------------


def rewrite(backends: list[str]) -> None:
    """Write the folders of some backends anew, and remove those of backends that are gone."""
    known = BACKENDS.names()
    for old in FOLDER.iterdir() if FOLDER.exists() else ():
        if old.is_dir() and old.name not in known:
            shutil.rmtree(old)
    for name in backends:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        for graph_name in GOLDEN:
            for file, text in golden_texts(BACKENDS.get(name), graph_name).items():
                path = FOLDER / name / graph_name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite(sys.argv[1:] or BACKENDS.names())
