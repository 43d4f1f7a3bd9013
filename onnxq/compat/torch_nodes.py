"""The nodes of a graph that were exported from a given layer or function of PyTorch, as far as the graph can tell.

Beyond the operator, this looks at what tells functions apart: a linear layer multiplies with a constant matrix and
torch.matmul with a computed one, an embedding gathers from a constant, a Conv2d has a weight of four dimensions, a mean
over the last axes is a pooling, and a MultiheadAttention has joint projections. Arithmetic of shapes and the inside of
a Gelu or LayerNorm are no calls of functions.

Fused classes (ConvBnReLU2d) and the layers of quantization-aware training (torch.nn.qat.Conv2d, Linear_sophgo) mean
exactly their chain: ConvReLU2d a Conv that a Relu follows directly, ConvBn2d one whose BatchNormalization no Relu
follows. Where the exporter has folded batch normalization, its traces in the file decide; without traces a class with
"Bn" means the same as the one without (see `type_note`).
"""

from __future__ import annotations

import re
from functools import cached_property

from onnxq.compat.module_paths import attention_paths
from onnxq.compat.structure import Structure, structure_of
from onnxq.compat.torch_lookup import Chain, chain_of, torch_name
from onnxq.compat.torch_table import UNITS
from onnxq.graph import Graph, Node

_NORM = "BatchNormalization"
_ACTIVATIONS = frozenset({"Relu", "Clip"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_RANKED = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", _NORM, "InstanceNormalization"})
_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "mm", "scaled_dot_product_attention"})
_ATTENTIONS = frozenset({"multiheadattention", "multi_head_attention_forward"})


def nodes_of_type(graph: Graph | Structure, thing: object, where: str) -> list[str]:
    """Names of the nodes where the chain of a layer or function begins, in the order of the graph; [] if none.

    For a layer that was exported in small operators (Gelu, SiLU, HardSwish, LayerNorm) these are all nodes of it.
    """
    return _Finder(structure_of(graph), thing, where).names()


def type_note(graph: Graph | Structure, thing: object, where: str) -> str:
    """A sentence for the reader where `nodes_of_type` cannot tell a class with batch normalization from one without."""
    finder = _Finder(structure_of(graph), thing, where)
    if finder.folds_unseen and any(_NORM in link for link in finder.chain[1:]):
        return (
            "the file holds no BatchNormalization (it was folded on export), so every such layer counts as one with it"
        )
    return ""


class _Finder:
    def __init__(self, structure: Structure, thing: object, where: str) -> None:
        self.graph, self.structure = structure.graph, structure
        self.chain: Chain = chain_of(thing, where)
        space, _, self.short = torch_name(thing).rpartition(".")
        self.plain = space == "onnx"  # an operator, wherever it came from
        self.exact = len(self.chain) > 1 or ".qat" in space
        dimensions = re.search(r"([123])d(_|$)", self.short)
        self.dimensions = int(dimensions[1]) if dimensions else None
        self.folded = {node.name for node in self.graph.nodes() if _folded_norm(node)}
        self.folds_unseen = not self.folded and not self.graph.nodes(_NORM)

    @cached_property
    def attention(self) -> set[str]:
        """The nodes inside of layers of torch.nn.MultiheadAttention."""
        paths = attention_paths(self.graph)
        return {
            name
            for name, origins in self.structure.origins.items()
            if any(origin.within(path) for origin in origins for path in paths)
        }

    def names(self) -> list[str]:
        kinds = set() if self.plain else {UNITS[operator] for operator in self.chain[0] if operator in UNITS}
        found = []
        for node in self.graph.nodes():
            unit = self.structure.unit_of(node)
            if (unit is not None and unit.kind in kinds) or (self._begins(node) and self._follows(node)):
                found.append(str(node.name))
        return found

    def _begins(self, node: Node) -> bool:
        """Whether a node can be the first of the chain."""
        structure, short = self.structure, self.short.lower()
        if self.plain or node.op not in self.chain[0]:
            return node.op in self.chain[0]
        if structure.is_preparation(node) or structure.is_inside(node):
            return False
        if short in _ATTENTIONS:
            return node.name in self.attention
        if node.op in ("Gemm", "MatMul") and short in _PRODUCTS:
            return not structure.has_constant_matrix(node)
        if node.op in ("Gemm", "MatMul") and short.startswith("linear"):
            return structure.has_constant_matrix(node)
        if node.op == "Gather":
            return structure.is_constant(node.inputs[0]) == short.startswith("embedding")
        if node.op in ("ReduceMean", "ReduceMax") and "pool" in short:
            return self._is_pooling(node)
        if node.op == "Reshape" and short == "flatten":
            return self._flattens(node)
        return self._has_rank(node)

    def _has_rank(self, node: Node) -> bool:
        """Whether a node works on as many dimensions as the name says; true where the graph does not tell."""
        if self.dimensions is None or (node.op not in _CONVOLUTIONS and node.op not in _RANKED):
            return True
        shape = self.graph.shape(node.inputs[1 if node.op in _CONVOLUTIONS else 0])
        flat = self.dimensions == 1 and node.op == _NORM  # BatchNorm1d takes (batch, channels) too
        return shape is None or len(shape) == self.dimensions + 2 or (flat and len(shape) == 2)

    def _flattens(self, node: Node) -> bool:
        """Whether a Reshape leaves fewer dimensions than there were; true where the graph does not tell."""
        before, after = self.graph.shape(node.inputs[0]), self.graph.shape(node.outputs[0])
        if after is None and self.graph.is_constant(node.inputs[1]):
            after = (None,) * self.graph.values(node.inputs[1]).size
        return before is None or after is None or len(after) < len(before)

    def _is_pooling(self, node: Node) -> bool:
        """Whether a reduction takes the mean or maximum over all spatial axes and keeps them."""
        axes = node.attrs.get("axes")
        if axes is None and len(node.inputs) > 1 and self.graph.is_constant(node.inputs[1]):
            axes = self.graph.values(node.inputs[1]).ravel().tolist()
        if not axes or not node.attrs.get("keepdims", 1) or len(axes) != self.dimensions:
            return False
        rank = len(axes) + 2
        return sorted(axis % rank for axis in axes) == list(range(2, rank))

    def _follows(self, first: Node) -> bool:
        """Whether the rest of the chain comes after its first node, and for an exact type nothing it would take."""
        if not self.exact:
            return True
        node, norm = self.structure.follower(first), first.name in self.folded
        for link in self.chain[1:]:
            if link == (_NORM,) and (norm or self.folds_unseen):
                norm = False
                continue
            if norm or node is None or node.op not in link:
                return False
            node = self.structure.follower(node)
        operators = {operator for link in self.chain for operator in link}
        taken = _ACTIVATIONS if _NORM in operators else _ACTIVATIONS | {_NORM}
        return not norm and (bool(operators & _ACTIVATIONS) or node is None or node.op not in taken)


def _folded_norm(node: Node) -> bool:
    """Whether a node other than a batch normalization says that it came from one: the exporter has folded it."""
    return node.op != _NORM and ".batchnorm." in node.metadata.get("pkg.torch.onnx.class_hierarchy", "")
