"""The nodes of a graph that were exported from a given layer or function of PyTorch, as far as the graph can tell.

Beyond the operator, this looks at what tells functions apart: a linear layer multiplies with a constant matrix and
torch.matmul with a computed one, an embedding gathers from a constant, a Conv2d has a weight of four dimensions, a mean
over the last axes is a pooling, and a MultiheadAttention has joint projections. Arithmetic of shapes and the inside of
a Gelu or LayerNorm are no calls of functions.

A function does not mean the inside of a layer, nor a class what functions compute, where the file tells the two apart
(`Structure.called_as`): F.relu leaves the modules torch.nn.ReLU alone, as torch.fx has it.

Fused classes (ConvBnReLU2d) and the layers of quantization-aware training (torch.nn.qat.Conv2d, Linear_sophgo) mean
exactly their chain: ConvReLU2d a Conv that a Relu follows directly, ConvBn2d one whose BatchNormalization no Relu
follows. Where the exporter has folded batch normalization, its traces in the file decide; without traces a class with
"Bn" means the same as the one without (see `type_note`).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

from onnxq.compat.module_paths import attention_paths
from onnxq.compat.structure import Structure, structure_of
from onnxq.compat.torch_lookup import FLOAT_FUNCTIONAL_SPACE, FUNCTION_SPACES, Chain, chain_of, torch_name
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

    For a layer that was exported in small operators (Gelu, SiLU, HardSwish, LayerNorm) these are all nodes of it, and
    for FloatFunctional.add_relu both.
    """
    return _Finder(structure_of(graph), thing, where).names()


def type_note(graph: Graph | Structure, thing: object, where: str) -> str:
    """How nodes were told apart, as far as a reader has to know: modules and functions, layers with folded norms."""
    finder = _Finder(structure_of(graph), thing, where)
    if finder.folds_unseen and any(_NORM in link for link in finder.chain[1:]):
        return (
            "the file holds no BatchNormalization (it was folded on export), so every such layer counts as one with it"
        )
    found = finder.names()
    if finder.of_the_other_kind:
        names = finder.of_the_other_kind
        first = f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        if finder.wanted_as == "module":
            return f"not {first}: calls of functions, which a class does not mean"
        return f"not {first}: modules, which are named by their paths or by their class, not as a function"
    if finder.wanted_as is not None and any(finder.is_untold(name) for name in found):
        return "the file does not tell modules from functions, so that both count"
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
        self.wanted_as = None if self.exact and space != FLOAT_FUNCTIONAL_SPACE else _wanted_as(space, self.short)
        self.takes_scalar = self.short.endswith("_scalar") if space == FLOAT_FUNCTIONAL_SPACE else None
        self.whole = space == FLOAT_FUNCTIONAL_SPACE  # its calls are all their nodes, not the first of a layer
        self.of_the_other_kind: list[str] = []

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
        found: list[str] = []
        self.of_the_other_kind = []
        for node in self.graph.nodes():
            unit = self.structure.unit_of(node)
            if not (unit is not None and unit.kind in kinds) and not (self._begins(node) and self._follows(node)):
                continue
            if self.wanted_as is not None and self.structure.called_as(node) not in (self.wanted_as, None):
                self.of_the_other_kind.append(str(node.name))
                continue
            found.append(str(node.name))
            if self.whole and len(self.chain) > 1 and (behind := self.structure.follower(node)) is not None:
                found.append(str(behind.name))
        return found

    def is_untold(self, name: str) -> bool:
        """Whether the file does not say if a node was a module or a function."""
        return self.structure.called_as(self.graph.node(name)) is None

    def _begins(self, node: Node) -> bool:
        """Whether a node can be the first of the chain."""
        structure, short = self.structure, self.short.lower()
        if self.plain or node.op not in self.chain[0]:
            return node.op in self.chain[0]
        if structure.is_preparation(node) or structure.is_inside(node):
            return False
        if self.takes_scalar is not None and node.op in ("Add", "Mul"):
            return self._has_scalar(node) is self.takes_scalar
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

    def _scaled_and_shifted(self, node: Node | None) -> Node | None:
        """The Add of x * scale + shift, as which a FrozenBatchNorm2d is exported, if a node is the Mul of one."""
        behind = None if node is None or node.op != "Mul" else self.structure.follower(node)
        if node is None or behind is None or behind.op != "Add":
            return None
        held = [any(map(self.structure.is_constant, one.inputs)) for one in (node, behind)]
        return behind if all(held) else None

    def _has_scalar(self, node: Node) -> bool:
        """Whether one of two operands is a single number."""
        constants = [tensor for tensor in node.inputs if self.graph.is_constant(tensor)]
        return len(constants) == 1 and self.graph.values(constants[0]).size == 1

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
            if link == (_NORM,) and "Freezebn" in self.short and (behind := self._scaled_and_shifted(node)) is not None:
                node = self.structure.follower(behind)
                continue
            if link == (_NORM,) and (norm or self.folds_unseen):
                norm = False
                continue
            if norm or node is None or node.op not in link:
                return False
            node = self.structure.follower(node)
        operators = {operator for link in self.chain for operator in link}
        taken = _ACTIVATIONS if _NORM in operators else _ACTIVATIONS | {_NORM}
        return not norm and (bool(operators & _ACTIVATIONS) or node is None or node.op not in taken)


def _wanted_as(space: str, short: str) -> Literal["module", "function"] | None:
    """What a name of torch means: a layer, a function, or either of them."""
    if short.lower() in _ATTENTIONS:
        return None  # the function is the inside of the layer
    if space in FUNCTION_SPACES or short == "FloatFunctional":
        return "function"
    return "module" if space == "torch.nn" else None


def _folded_norm(node: Node) -> bool:
    """Whether a node other than a batch normalization says that it came from one: the exporter has folded it."""
    return node.op != _NORM and ".batchnorm." in node.metadata.get("pkg.torch.onnx.class_hierarchy", "")
