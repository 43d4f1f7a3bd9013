"""A copy of a quantized model that says in Netron why each node is what it is, and which scale each quantizer has.

    from onnxq.integrations.netron import annotate

    annotate("out/")        # writes out/model_netron.onnx

The delivered file has no such entries: it stays as small as it can be, and its bytes depend on the numbers alone. The
copy computes the same; weights that lie in a file beside the model are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxq.errors import ConfigError
from onnxq.files import replace_file
from onnxq.json_file import read_object
from onnxq.pipeline.artifacts import COMPANIONS
from onnxq.types import QuantPlan

PLAN = COMPANIONS[0]
PREFIX = "onnxq."
QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
OLDEST_IR = 10
"""The first version of ONNX files in which nodes have metadata."""


def annotate(folder: str | Path, name: str = "model") -> Path:
    """Write NAME_netron.onnx beside NAME.onnx in the folder of a run, and return its path."""
    place = Path(folder)
    source, target = place / f"{name}.onnx", place / f"{name}_netron.onnx"
    if not source.is_file():
        raise ConfigError(
            f"{place} has no {source.name}: give the folder of a run, and name= where its files have another"
        )
    plan = QuantPlan.from_json(read_object(place / PLAN, "plan"))
    model = onnx.load(source, load_external_data=False)
    model.ir_version = max(model.ir_version, OLDEST_IR)
    constants = {entry.name: entry for entry in model.graph.initializer}
    for node in model.graph.node:
        for key, value in (*_of_quantizer(node, plan, constants), *_of_node(node, plan)):
            node.metadata_props.add(key=f"{PREFIX}{key}", value=value)
    replace_file(target, lambda file: file.write(model.SerializeToString()))
    return target


def _of_node(node: onnx.NodeProto, plan: QuantPlan) -> list[tuple[str, str]]:
    """Whether a node of the model runs quantized, and why, or why not."""
    states: dict[str, Mapping[str, object]] = {
        "quantized": plan.quantized,
        "fused": plan.fused,
        "float": plan.left_float,
    }
    return [
        entry
        for state, reasons in states.items()
        if node.name in reasons
        for entry in (("state", state), ("reason", str(reasons[node.name])))
    ]


def _of_quantizer(
    node: onnx.NodeProto, plan: QuantPlan, constants: dict[str, onnx.TensorProto]
) -> list[tuple[str, str]]:
    """Tensor, format, scale and zero point of a QuantizeLinear or DequantizeLinear."""
    if node.op_type not in QUANTIZERS:
        return []
    tensor = node.name.removesuffix(f"_{node.op_type}")
    found = [("tensor", tensor)]
    placement = plan.placements.get(tensor)
    if placement is not None:
        found += [("role", str(placement.role)), ("format", str(placement.spec.dtype)), ("why", str(placement.why))]
    for key, port in (("scale", 1), ("zero_point", 2)):
        entry = constants.get(node.input[port]) if len(node.input) > port else None
        if entry is not None and entry.data_location != onnx.TensorProto.EXTERNAL:
            found.append((key, _shown(numpy_helper.to_array(entry))))
    return found


def _shown(values: np.ndarray) -> str:
    """One number, or the least and the largest of many."""
    numbers = values.astype(np.float64)
    if numbers.size == 1:
        return f"{numbers.item():.6g}"
    return f"{numbers.min():.6g} to {numbers.max():.6g} ({numbers.size} values)"
