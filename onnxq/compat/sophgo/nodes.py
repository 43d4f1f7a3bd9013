"""The model that a configuration is about, and the nodes that types, modules and quantizers of it stand for."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.compat.modules import layer_nodes, nodes_of_fx_name, quantizer_target
from onnxq.compat.sophgo.target import Target
from onnxq.compat.torch_names import nodes_of_type, type_note
from onnxq.compat.translation import shown
from onnxq.errors import ConfigError
from onnxq.graph import Graph

_QUANTIZERS = ("_fake_quantizer", "_fake_quant")
"""How the names of quantizers end."""


@dataclass(frozen=True)
class Model:
    """The float graph, the chip, and the precision that everything has which has none of its own."""

    graph: Graph
    target: Target
    precision: str


@dataclass(frozen=True)
class Found:
    """Nodes; `exact` where a module of the model was named, and a note for the user about how they were found.

    `part` is "weight" or "output" where the name was that of a quantizer.
    """

    nodes: list[str]
    exact: bool
    note: str = ""
    part: str = ""


def of_type(graph: Graph, thing: object, where: str) -> Found:
    """The first nodes of everything of a type, such as ConvBnReLU2d_sophgo."""
    return Found(nodes_of_type(graph, thing, where), exact=False, note=type_note(graph, thing, where))


def of_module(graph: Graph, thing: object, where: str) -> Found:
    """The nodes of a module by its path, by the name of its node in a traced graph, or by that of its quantizer."""
    if not isinstance(thing, str):
        raise ConfigError(f"{where}: a module is given by its path, such as 'layer1.conv1', not by {shown(thing)}")
    if thing.endswith(_QUANTIZERS):
        nodes, part = quantizer_target(graph, thing, where)
        return Found(nodes, exact=True, part=part)
    try:
        return Found(layer_nodes(graph, thing, where), exact=True)
    except ConfigError as unknown_path:
        try:
            return Found(nodes_of_fx_name(graph, thing, where), exact=True)
        except ConfigError:
            raise unknown_path from None
