"""`bf16_mix_prec`: convolutions and linear layers are quantized, everything else runs in BF16."""

from __future__ import annotations

from onnxq.compat.structure import Structure
from onnxq.compat.translation import Translator, counted
from onnxq.graph import Node
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect.target import KEY
from onnxq.targets.sophgo.names import LAYERS


def translate_mixed(structure: Structure, backend: str, out: Translator) -> dict[str, str]:
    """Skip what `backend` would quantize besides layers; what comes back are options of it."""
    where = f"{KEY}.bf16_mix_prec"
    operators = {op for rule in get_backend(backend).rules for op in rule.ops}
    skipped = [node.name for node in structure.graph.nodes() if node.op in operators and not _is_layer(structure, node)]
    out.append("skip", skipped, where)
    what = f"skip what is no layer: {counted(skipped)}" if skipped else "only layers are quantized anyway"
    out.row(where, True, f"option float=BF16 of the backend; {what}")
    return {"float": "BF16"}


def _is_layer(structure: Structure, node: Node) -> bool:
    """A node with a weight, or arithmetic that is folded: with shapes, or with constants behind a layer."""
    if node.op in LAYERS:
        return structure.has_constant_matrix(node)
    if structure.is_preparation(node):
        return True
    makers = [structure.graph.producer(tensor) for tensor in node.inputs if tensor.name]
    behind = any(maker is not None and maker.op in LAYERS for maker in makers)
    return behind and any(structure.is_constant(tensor) for tensor in node.inputs)
