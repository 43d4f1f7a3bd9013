"""The model that a configuration is about, and the nodes that types, modules and quantizers of it stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from onnxq.compat.modules import Exported, layer_nodes, nodes_of_fx_name, quantizer_target
from onnxq.compat.torch_names import nodes_of_type, type_note
from onnxq.compat.translation import counted, shown
from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.targets.sophgo.dialect.target import Target
from onnxq.targets.sophgo.names import LAYERS

_QUANTIZERS = ("_fake_quantizer", "_fake_quant")
"""How the names of quantizers end."""


@dataclass(frozen=True)
class Model:
    """The float model, the chip, and the precision that everything has which has none of its own."""

    exported: Exported
    target: Target
    precision: str

    @property
    def graph(self) -> Graph:
        return self.exported.graph


@dataclass(frozen=True)
class Found:
    """Nodes; `exact` where a module of the model was named, and a note for the user about how they were found.

    `part` is "weight", "bias" or "output" where the name was that of a quantizer, and "input" where `nodes` are inputs
    of the model.
    """

    nodes: list[str]
    exact: bool
    note: str = ""
    part: str = ""


def of_type(model: Exported, thing: object, where: str) -> Found:
    """The first nodes of everything of a type, such as ConvBnReLU2d_sophgo."""
    if not isinstance(thing, str) and not callable(thing):
        raise ConfigError(f"{where}: a type is given by its class or by its name, such as 'torch.nn.Conv2d'")
    return Found(nodes_of_type(model, thing, where), exact=False, note=type_note(model, thing, where))


def of_module(model: Exported, thing: object, where: str) -> Found:
    """The nodes of a module by its path, by the name of its node in a traced graph, or by that of its quantizer."""
    if not isinstance(thing, str):
        raise ConfigError(f"{where}: a module is given by its path, such as 'layer1.conv1', not by {shown(thing)}")
    if thing in model.graph.input_names:
        return Found([thing], exact=True, part="input")
    if thing.endswith(_QUANTIZERS):
        nodes, part = quantizer_target(model, thing, where)
        return Found(nodes, exact=True, part=part)
    try:
        return Found(layer_nodes(model, thing, where), exact=True)
    except ConfigError as unknown_path:
        try:
            return Found(nodes_of_fx_name(model, thing, where), exact=True)
        except ConfigError:
            raise unknown_path from None


def weight_nodes(graph: Graph, names: Iterable[str], where: str, remedy: str) -> list[str]:
    """Those nodes that hold a weight which chips quantize; an error where none does."""
    nodes = list(names)
    layers = [name for name in nodes if graph.node(name).op in LAYERS]
    if not layers:
        raise ConfigError(f"{where}: these nodes have no weight that is quantized: {counted(nodes)}. {remedy}")
    return layers


def result_nodes(graph: Graph, names: Iterable[str]) -> list[str]:
    """The nodes among `names` whose results leave them, each replaced by the last node that is fused into it.

    A convolution, the batch normalization behind it and the Relu behind that run as one, and the quantizer stands
    behind the last of them.
    """
    inside = dict.fromkeys(names)
    found = [name for name in inside if _leaves(graph, graph.node(name), inside)]
    return list(dict.fromkeys(_last_of_chain(graph, graph.node(name)).name for name in found))


def _leaves(graph: Graph, node: Node, inside: Collection[str]) -> bool:
    readers = [use.node.name for tensor in node.outputs for use in graph.consumers(tensor)]
    return any(graph.is_output(tensor) for tensor in node.outputs) or any(name not in inside for name in readers)


def _last_of_chain(graph: Graph, node: Node) -> Node:
    while (follower := _fused(graph, node)) is not None:
        node = follower
    return node


def _fused(graph: Graph, node: Node) -> Node | None:
    """The one node behind this one that becomes a part of it."""
    if len(node.outputs) != 1 or graph.is_output(node.outputs[0]):
        return None
    uses = graph.consumers(node.outputs[0])
    if len(uses) != 1:
        return None
    follower: Node = uses[0].node
    if follower.op in ("Relu", "Clip"):
        return follower
    if follower.op == "BatchNormalization" and node.op in LAYERS and uses[0].port == 0:
        return follower
    if follower.op == "Add" and node.op == "MatMul" and any(graph.is_constant(tensor) for tensor in follower.inputs):
        return follower  # the bias of a linear layer
    return None
