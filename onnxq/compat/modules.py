"""Names that users of MQBench and Sophgo-mq know, found in an exported file: modules, fx nodes, fake-quantizers.

module path       layer1.0.conv1                       the nodes exported from that module and the modules inside of it
fx node           layer1_0_conv1, layer1_0_relu_1      the module of that name, at its first call, at its second call
                  add, add_1                           the first and the second call of a function
fake-quantizer    layer1.0.conv1.weight_fake_quant     what the module quantizes its weight with
                  add_1_post_act_fake_quantizer        what stands behind an fx node
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from onnxq.compat.fx_calls import FunctionCalls, function_names
from onnxq.compat.module_paths import Origin, known_paths
from onnxq.compat.script_scopes import path_and_outer
from onnxq.compat.structure import Structure
from onnxq.errors import ConfigError, did_you_mean
from onnxq.graph import Graph, Node

_WITH_WEIGHT = frozenset({"Conv", "ConvTranspose", "Gemm", "LSTM", "GRU", "RNN"})
_FUSED_BEHIND = ("BatchNormalization", "Relu")
_PARAMETER_QUANTIZER = re.compile(r"(?P<path>.+)\.(?P<kind>weight|bias)_fake_quant(izer)?")
_RESULT_QUANTIZER = re.compile(r"(?P<name>.+)_post_act_fake_quantizer")
_NUMBERED = re.compile(r"(?P<base>.+?)_(?P<number>[1-9]\d*)")
_SHOWN = 8


class Exported(Structure):
    """An exported graph and what is known of its names; whoever looks for many names makes one and gives it on."""

    @cached_property
    def paths(self) -> list[str]:
        """Every module path."""
        return known_paths(self.origins)

    @cached_property
    def fx_names(self) -> dict[str, str]:
        """The name of a module as fx writes it -> its path."""
        return {path.replace(".", "_"): path for path in self.paths}

    @cached_property
    def inside(self) -> dict[str, dict[str, Origin]]:
        """Module path -> the nodes exported from it and from the modules inside of it, each with its own module."""
        found: dict[str, dict[str, Origin]] = {}
        for name, several in self.origins.items():
            for origin in several:
                for path in path_and_outer(origin.path):
                    found.setdefault(path, {}).setdefault(name, origin)
        return found

    @cached_property
    def functions(self) -> FunctionCalls:
        """The calls of functions, which fx numbers."""
        return FunctionCalls(self)

    @cached_property
    def order(self) -> dict[str, int]:
        """Node -> its place among those whose module is known."""
        return {name: place for place, name in enumerate(self.origins)}


def exported(graph: Graph | Exported) -> Exported:
    """What is known of the names in a graph, if that is not what is given already."""
    return graph if isinstance(graph, Exported) else Exported(graph)


def nodes_of_module(graph: Graph | Exported, path: str, where: str) -> list[str]:
    """Names of the nodes exported from a module and from the modules inside of it, in the order of the graph.

    The exact name of a node finds that node where no module has it, for files that do not know modules.
    Nodes that only prepare constants or compute with shapes are left out where there are others. `where` is the key
    of the configuration that holds the path, for the error.
    """
    if not path:
        raise ConfigError(f"{where}: the path of a module is empty; write it as 'layer1.0.conv1'")
    model = exported(graph)
    found = list(model.inside.get(path, ()))
    if not found and model.graph.has_node(path):
        return [path]
    if not found and (match := _NUMBERED.fullmatch(path)) is not None:
        # what looks like the second call of 'relu' may be a module that is called 'relu_1'
        calls = _calls_of(model, match["base"])
        found = calls[int(match["number"])] if int(match["number"]) < len(calls) else []
    if not found:
        raise ConfigError(_no_module(model, path, where))
    return _without_preparation(model, found)


def layer_nodes(graph: Graph | Exported, path: str, where: str) -> list[str]:
    """The nodes of a module that hold a weight (Conv, Gemm, MatMul with a constant ...); all if none of them does."""
    model = exported(graph)
    found = nodes_of_module(model, path, where)
    return [name for name in found if _holds_weight(model, model.graph.node(name))] or found


def nodes_of_fx_name(graph: Graph | Exported, name: str, where: str) -> list[str]:
    """The nodes that an fx node became; the exact name of a node of the file finds that node."""
    model = exported(graph)
    if model.graph.has_node(name):
        return [name]
    paths = model.fx_names
    base, number = name, 0
    if name not in paths and (match := _NUMBERED.fullmatch(name)) is not None:
        base, number = match["base"], int(match["number"])
    calls = _calls_of(model, paths[base]) if base in paths else []
    if number >= len(calls):  # a module and a function of one name are counted together, in the order of the calls
        calls += [call for call in model.functions.of(base) if call not in calls]
        calls.sort(key=lambda call: model.order.get(call[0], len(model.order)))
    if number < len(calls):
        return _without_preparation(model, calls[number])
    if calls:
        last = base if len(calls) == 1 else f"{base} ... {base}_{len(calls) - 1}"
        raise ConfigError(f"{where}: no fx node '{name}': the model has {len(calls)} of that name, {last}")
    raise ConfigError(_no_fx_node(model, name, where))


def quantizer_target(graph: Graph | Exported, name: str, where: str) -> tuple[list[str], str]:
    """What a fake-quantizer of that name quantizes: names of nodes, and "weight", "bias" or "output".

    A quantizer behind an input of the network gives the input's name and "input". Behind a layer it stands after the
    batch normalization and Relu that are fused with the layer.
    """
    model = exported(graph)
    inputs = model.graph.input_names
    if (match := _PARAMETER_QUANTIZER.fullmatch(name)) is not None:
        return layer_nodes(model, match["path"], where), match["kind"]
    if (match := _RESULT_QUANTIZER.fullmatch(name)) is not None:
        if match["name"] in inputs:
            return [match["name"]], "input"
        return _results(model, nodes_of_fx_name(model, match["name"], where)), "output"
    names = [f"{path}.weight_fake_quant" for path in model.paths]
    names += [f"{path.replace('.', '_')}_post_act_fake_quantizer" for path in (*model.paths, *inputs)]
    raise ConfigError(
        f"{where}: '{name}' is no name of a fake-quantizer.{did_you_mean(name, names, most=1)} There are "
        "'<module path>.weight_fake_quant', '<module path>.bias_fake_quant' and '<fx node>_post_act_fake_quantizer'"
    )


def result_names(model: Exported) -> dict[str, str]:
    """Tensor -> the fx node whose result it is, as `quantizer_target` finds it: inputs, layers, functions, modules."""
    graph = model.graph
    outer = {path for known in model.paths for path in path_and_outer(known)[:-1]}
    layers = [path for path in model.paths if path not in outer]
    found = {name: name for name in graph.input_names}

    def give(base: str, calls: list[list[str]]) -> None:
        for number, call in enumerate(calls):
            for node in _results(model, _without_preparation(model, call)):
                for tensor in graph.node(node).outputs:
                    found.setdefault(str(tensor.name), f"{base}_{number}" if number else base)

    for path in layers:
        give(path.replace(".", "_"), _calls_of(model, path))
    for base in sorted(function_names(graph), key=_is_rare):
        if base not in model.fx_names:  # counted together with a module of that name, which has it
            # Nodes that nothing is known of are no calls of torch's functions.
            give(base, [call for call in model.functions.of(base) if call[0] in model.origins])
    for path in model.paths:
        if path in outer:
            give(path.replace(".", "_"), _calls_of(model, path))
    return found


def _is_rare(function: str) -> bool:
    """Whether of several functions with one operator this is hardly the one: max_pool1d, relu_."""
    return function.endswith(("1d", "3d", "_"))


def _calls_of(model: Exported, path: str) -> list[list[str]]:
    """The nodes of a module, call by call; modules inside of it are called as often as it is."""
    calls: dict[int, list[str]] = {}
    for name, origin in model.inside.get(path, {}).items():
        calls.setdefault(origin.call if origin.path == path else 0, []).append(name)
    return [calls[number] for number in sorted(calls)]


def _without_preparation(structure: Structure, names: Iterable[str]) -> list[str]:
    names = list(names)
    return [name for name in names if not structure.is_preparation(structure.graph.node(name))] or names


def _holds_weight(structure: Structure, node: Node) -> bool:
    if node.op == "MatMul":
        return structure.has_constant_matrix(node)
    if node.op == "Gather":
        return structure.is_constant(node.inputs[0])
    return node.op in _WITH_WEIGHT


def _results(structure: Structure, names: list[str]) -> list[str]:
    """The nodes whose results leave a group of nodes, each followed through what is fused with a layer."""
    graph, inside = structure.graph, set(names)
    leaving = [name for name in names if _leaves(graph, graph.node(name), inside)]
    return list(dict.fromkeys(_fused_end(structure, graph.node(name)).name for name in leaving))


def _leaves(graph: Graph, node: Node, inside: set[str]) -> bool:
    made = [tensor for tensor in node.outputs if tensor.name]
    readers = [use.node.name for tensor in made for use in graph.consumers(tensor)]
    return not readers or any(map(graph.is_output, made)) or any(name not in inside for name in readers)


def _fused_end(structure: Structure, node: Node) -> Node:
    """The last node of a layer with the batch normalization and Relu behind it; other nodes stand for themselves."""
    if not (_holds_weight(structure, node) or structure.adds_bias(node)) or node.op == "Gather":
        return node
    for operator in _FUSED_BEHIND:
        behind = structure.follower(node)
        if behind is not None and behind.op == operator:
            node = behind
    return node


def _no_module(model: Exported, path: str, where: str) -> str:
    paths = model.paths
    if not paths:
        return f"{where}: the file tells of no modules, so '{path}' finds nothing. {_use_nodes(model.graph, path)}"
    outer = [known for known in paths if "." not in known]
    return (
        f"{where}: no node was exported from a module '{path}'.{did_you_mean(path, paths)} Outermost modules: "
        f"{_some(outer)}. Modules that compute nothing, such as Dropout, and batch normalization that was folded leave "
        "no nodes in a file"
    )


def _no_fx_node(model: Exported, name: str, where: str) -> str:
    graph = model.graph
    if not model.paths:
        return f"{where}: the file tells of no modules, so no fx node '{name}' is found. {_use_nodes(graph, name)}"
    near = did_you_mean(name, [other for other in (*model.fx_names, *function_names(graph)) if other != name])
    return (
        f"{where}: no fx node '{name}'.{near} Modules are written with '_' (layer1_0_conv1, layer1_0_relu_1 for a "
        "second call), functions by name and number (add, add_1); the name of a node in the file is taken too"
    )


def _use_nodes(graph: Graph, name: str) -> str:
    nodes = [node.name for node in graph.nodes() if node.op != "Constant"]
    return f"Name nodes instead: {_some(nodes)}.{did_you_mean(name, nodes)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + more
