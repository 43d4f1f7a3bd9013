"""The float model for tpu-mlir, with the attributes written out that it would read as something else when left out.

tpu-mlir takes the strides of a pooling that names none for the size of its window, where ONNX says 1, and it ends its
run on a Split without an axis or a ConvTranspose without a kernel_shape.
"""

from __future__ import annotations

from pathlib import Path

from onnxq.emit import EMITTERS, Emitted
from onnxq.emit.deploy import deploy_model
from onnxq.emit.tables import MODEL_SUFFIX
from onnxq.graph import Graph
from onnxq.types import Backend, QParamsTable, QuantPlan


def write_out_defaults(graph: Graph) -> list[str]:
    """Give nodes the attributes that ONNX would assume, and return a line for each."""
    notes = []
    for node in graph.nodes():
        if node.op in ("MaxPool", "AveragePool") and "strides" not in node.attrs:
            node.attrs["strides"] = [1] * len(node.attrs["kernel_shape"])
            notes.append(f"node '{node.name}' ({node.op}): strides of 1 written out, tpu-mlir would take its window")
        elif node.op == "Split":
            node.attrs.setdefault("axis", 0)
        elif node.op in ("Conv", "ConvTranspose") and "kernel_shape" not in node.attrs:
            shape = graph.shape(node.inputs[1])
            if shape is not None:
                node.attrs["kernel_shape"] = [int(size) for size in shape[2:] if isinstance(size, int)]
    return notes


@EMITTERS.register("sophgo_deploy")
def write_deploy_model(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_deploy_model.onnx`: the float model for tpu-mlir's model_transform."""
    result = deploy_model(graph, plan, qparams)
    notes = write_out_defaults(result)
    return Emitted(tuple(result.save(folder / f"{name}{MODEL_SUFFIX}.onnx")), tuple(notes))
