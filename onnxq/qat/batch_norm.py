"""Batch norms that stay apart while a net is trained, though the plan is made for the graph in which they are folded.

The graph that is trained is the folded one, in which the weight and bias of such a layer are computed:

    weight, gamma, variance              -> onnxq::FoldedWeight -> quantizer -> onnxq::ConvBatchNorm
    bias, gamma, beta, mean, variance    -> onnxq::FoldedBias   -> quantizer ->

So weights are quantized as they will be in the file. With frozen statistics the layer computes exactly what the file
will compute; with live ones it normalizes with the statistics of the batch and learns the running ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.passes import run_passes
from onnxq.passes.channels import group_of, output_axis, over_outputs
from onnxq.session.prepare import Prepared

BatchNorms = Literal["folded", "frozen", "live"]
"""folded: into the weights before training; frozen, live: apart, with fixed or with learnt statistics."""

CHOICES: tuple[BatchNorms, ...] = ("folded", "frozen", "live")
FOLDING = "fold_batchnorm"
AS_LAYERS = "batchnorm_to_conv"
"""The passes that leave no batch norm: into the layer in front, and as a layer of its own where there is none."""
DOMAIN = "onnxq"
"""The domain of the operators that exist only while a net is trained."""

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Unfolded:
    """The graph to train.

    renamed  weight or bias of the folded graph -> the tensor that is computed in its place
    notes    a line for each batch norm that stays folded, and why
    """

    graph: Graph
    renamed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def unfold(original: Graph, prepared: Prepared, batch_norms: BatchNorms) -> Unfolded:
    """The graph of `prepared` with its batch norms as `batch_norms` wants them; `original` had no passes yet."""
    if batch_norms not in CHOICES:
        raise ConfigError(f"batch norms can be {', '.join(CHOICES)} in training, not '{batch_norms}'")
    graph = prepared.graph.copy()
    if batch_norms == "folded" or FOLDING not in prepared.backend.passes:
        return Unfolded(graph)
    apart = original.copy()
    apart.infer_shapes()
    steps = [*prepared.backend.passes, *prepared.config.passes, *prepared.own_passes]
    run_passes(apart, [step for step in steps if step not in (FOLDING, AS_LAYERS)])
    renamed: dict[str, str] = {}
    notes = []
    for norm in apart.nodes("BatchNormalization"):
        if graph.has_node(norm.name):
            continue  # it was not folded in the first place
        problem = _put_apart(graph, apart, norm, renamed)
        if problem:
            notes.append(f"batch norm '{norm.name}' is trained folded: {problem}")
    graph.header.opset_import.add(domain=DOMAIN, version=1)
    graph.sort()
    return Unfolded(graph, renamed, tuple(notes))


def _put_apart(graph: Graph, apart: Graph, norm: Node, renamed: dict[str, str]) -> str | None:
    """Compute the layer's weight and bias in `graph` from those in `apart`; returns why that is not possible."""
    before = apart.producer(norm.inputs[0])
    if before is None or before.op not in _LAYERS or before.domain or not graph.has_node(before.name):
        return f"only a {', '.join(_LAYERS)} in front of a batch norm can be trained apart from it"
    layer = graph.node(before.name)
    if layer.op != before.op or len(layer.inputs) < 3 or not all(map(graph.is_constant, layer.inputs[1:3])):
        return f"'{layer.name}' was changed after folding"
    weight, bias = (tensor.name for tensor in layer.inputs[1:3])
    own_weight = apart.values(before.inputs[1])
    own_bias = apart.values(before.inputs[2]) if len(before.inputs) > 2 and before.inputs[2].name else None
    if any(len(graph.consumers(name)) != 1 for name in (weight, bias)):
        return f"'{layer.name}' shares its weight or bias with other nodes"
    if before.op == "Gemm" and any(float(before.attrs.get(name, 1.0)) != 1.0 for name in ("alpha", "beta")):
        return f"'{layer.name}' multiplies by alpha or beta"
    statistics = [apart.values(tensor).astype(own_weight.dtype) for tensor in norm.inputs[1:5]]
    epsilon = float(norm.attrs.get("epsilon", 1e-5))
    if not _is_their_product(graph, layer, own_weight, statistics, epsilon):
        return f"the weight of '{layer.name}' was changed after folding"

    names = [_constant(graph, tensor.name, values) for tensor, values in zip(norm.inputs[1:5], statistics, strict=True)]
    gamma, beta, mean, variance = names
    graph.set_values(weight, own_weight.astype(graph.values(weight).dtype))
    own = ""
    if own_bias is not None:
        graph.set_values(bias, own_bias.astype(graph.values(bias).dtype).reshape(graph.values(bias).shape))
        own = bias
    folding = {"epsilon": epsilon, **_weight_layout(layer)}
    folded_weight = _computed(graph, "FoldedWeight", [weight, gamma, variance], folding, weight)
    folded_bias = _computed(graph, "FoldedBias", [own or None, gamma, beta, mean, variance], {"epsilon": epsilon}, bias)
    renamed[weight], renamed[bias] = folded_weight, folded_bias
    layer.inputs[1], layer.inputs[2] = graph.tensor(folded_weight), graph.tensor(folded_bias)
    for name in (*names, *([own] if own else [])):
        layer.inputs.append(graph.tensor(name))
    layer.attrs["layer"] = layer.op
    layer.attrs["epsilon"], layer.attrs["momentum"] = epsilon, float(norm.attrs.get("momentum", 0.9))
    layer.op, layer.domain = "ConvBatchNorm", DOMAIN
    return None


def _is_their_product(
    graph: Graph, layer: Node, weight: np.ndarray, statistics: list[np.ndarray], epsilon: float
) -> bool:
    """Whether the folded weight is nothing but the weight times the factors of the batch norm."""
    gamma, _, _, variance = (part.astype(np.float64) for part in statistics)
    folded = graph.values(layer.inputs[1]).astype(np.float64)
    if folded.shape != weight.shape:
        return False
    product = weight * over_outputs(layer, gamma / np.sqrt(variance + epsilon), weight.shape)
    return bool(np.allclose(product, folded, rtol=_TOLERANCE, atol=_TOLERANCE * np.abs(folded).max(initial=0.0)))


def _weight_layout(layer: Node) -> dict[str, int]:
    """The axis of output channels in the weight; a ConvTranspose has those of one group there."""
    return {"axis": output_axis(layer), "groups": group_of(layer) if layer.op == "ConvTranspose" else 1}


def _constant(graph: Graph, name: str, values: np.ndarray) -> str:
    """A constant that has the name of the file, which folding had set free."""
    made = graph.add_constant(name, values)
    if made.name != name and not graph.has_tensor(name):
        graph.rename(made, name, claim=False)
    return str(made.name)


def _computed(graph: Graph, op: str, inputs: list[str | None], attrs: Mapping[str, float], of: str) -> str:
    made = graph.add_variable(f"{of}_folded", graph.dtype(of), graph.shape(of))
    graph.add_node(op, inputs, [made], attrs=attrs, name=f"{of}_{op}", domain=DOMAIN)
    return str(made.name)
