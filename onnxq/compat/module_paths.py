"""From which module of a PyTorch network a node was exported; three places in a file tell it.

metadata       the newer exporter (torch.export) writes the modules of a node into it: ['', 'layer1', 'layer1.0', 'add']
node names     the TorchScript exporter writes '/layer1/layer1.0/conv1/Conv': one part for every module that was being
               called. A part repeats its parent's where the child's own name is a number, and gets a number of its own
               ('relu_1') from the second call of the module on
initializers   'layer1.0.conv1.weight' is a parameter of layer1.0.conv1, under every exporter that keeps such names

Nodes that tell it themselves have the last word. Names of initializers speak for modules that no node tells of: a
convolution into which batch normalization was folded calls itself a batch normalization, and one stored array may serve
several modules with equal parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from onnxq.compat.script_scopes import Scope, Scopes, path_and_outer, scope_of
from onnxq.graph import Graph, Node

Origins = dict[str, tuple["Origin", ...]]
"""Node name -> where the node came from."""

_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_PARAMETER = re.compile(r"(?P<path>[^/:]+)\.(weight|bias|running_mean|running_var|in_proj_weight|in_proj_bias)(_\w+)?")

_ATTENTION = re.compile(r"(?P<path>.+)\.in_proj_(weight|bias)")


@dataclass(frozen=True)
class Origin:
    """The module that a node came from, "" for the network itself, and the number of that module's call, from 0 on."""

    path: str
    call: int = 0

    def within(self, path: str) -> bool:
        """Whether this is module `path` or one inside of it."""
        return self.path == path or self.path.startswith(f"{path}.")


def module_paths(graph: Graph) -> Origins:
    """Where the nodes came from, the most trusted first; nodes that nothing is known of are left out."""
    nodes = graph.nodes()
    parameters = {node.name: list(dict.fromkeys(_parameter_paths(graph, node))) for node in nodes}
    read: dict[Scope, list[str]] = {}
    for node in nodes:
        scope = scope_of(node.name)
        if scope is not None:
            read.setdefault(scope, []).extend(parameters[node.name])
    scopes, functions = Scopes(read), _Functions()
    found: Origins = {}
    for node in nodes:
        scope, told = scope_of(node.name), functions.origin(node)
        if told is None and scope is not None:
            told = Origin(scopes.path(scope), scopes.call(scope))
        if told is not None:
            found[node.name] = (told,)
    named = {origin.path for (origin,) in found.values()}
    for name, paths in parameters.items():
        extra = tuple(Origin(path) for path in paths if path not in named)
        if extra:
            found[name] = found.get(name, ()) + extra
    return {node.name: found[node.name] for node in nodes if node.name in found}


def known_paths(origins: Origins) -> list[str]:
    """Every module path of a graph, outer ones included, in the order in which they appear."""
    every = (origin.path for several in origins.values() for origin in several if origin.path)
    return list(dict.fromkeys(outer for path in every for outer in path_and_outer(path)))


def attention_paths(graph: Graph) -> set[str]:
    """The paths of torch.nn.MultiheadAttention layers, which are the ones with joint projections."""
    return {match["path"] for constant in graph.constants() if (match := _ATTENTION.fullmatch(constant.name))}


class _Functions:
    """Reads the metadata of torch.export, and numbers the calls of modules: each gives its functions new names."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], list[str]] = {}  # module and function -> names in the order of calls

    def origin(self, node: Node) -> Origin | None:
        scopes, classes = _listed(node, _SCOPES), _listed(node, _CLASSES)
        if not scopes:
            return None
        path = scopes[-2] if len(scopes) > 1 else ""  # the last entry is the function, not a module
        names = self._names.setdefault((path, classes[-1] if classes else ""), [])
        if scopes[-1] not in names:
            names.append(scopes[-1])
        return Origin(path, names.index(scopes[-1]))


def layer_class(node: Node) -> str | None:
    """The class of a node's innermost module, 'torch.nn.modules.activation.ReLU'; only torch.export tells it."""
    classes = _listed(node, _CLASSES)
    return classes[-2] if len(classes) > 1 else None


def _listed(node: Node, key: str) -> list[str]:
    """A list of names that the exporter wrote into a node's metadata; [] where there is none, or not in this form."""
    if key not in node.metadata:
        return []
    try:
        listed = ast.literal_eval(node.metadata[key])
    except (SyntaxError, ValueError):
        return []
    return listed if isinstance(listed, list) and all(isinstance(name, str) for name in listed) else []


def _parameter_paths(graph: Graph, node: Node) -> Iterator[str]:
    for tensor in node.inputs:
        if tensor.name and graph.producer(tensor) is None and graph.is_constant(tensor):
            match = _PARAMETER.fullmatch(tensor.name)
            if match is not None:
                yield match["path"]
