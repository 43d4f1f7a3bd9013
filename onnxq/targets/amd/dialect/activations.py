"""no_quant_in_conv_act and no_quant_in_add_act: whether a quantizer stands between a layer and its activation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxq.compat.translation import counted
from onnxq.graph import Node
from onnxq.targets import get_backend
from onnxq.targets.amd.dialect.run import Apply, Run
from onnxq.types.translation import Outcome, no_effect


def between_layer_and_activation(*layers: str) -> Apply:
    """False gives the activations behind these operators quantizers of their own, so that the layer has one, too."""

    def apply(run: Run, key: str, value: Any) -> str | Outcome:
        if value:
            return "as the backend does it: the quantizer stands behind the activation"
        found = [str(node.name) for node in _activations(run, layers)]
        if not found:
            return no_effect("no activation of the model stands behind such a layer")
        run.translator.append("force", found, key)
        return f"force = {counted(found)}: a quantizer stands between the layer and its activation"

    return apply


def _activations(run: Run, layers: tuple[str, ...]) -> Iterator[Node]:
    """Activations that would run inside the layer in front of them, behind a batch norm that is folded too."""
    graph = run.graph
    for node in graph.nodes():
        if node.op not in get_backend("vitis").fused_activations:
            continue
        before = graph.producer(node.inputs[0])
        if before is not None and before.op == "BatchNormalization":
            before = graph.producer(before.inputs[0])
        if before is not None and before.op in layers and not before.domain:
            yield node
