"""extra_quantizer_dict: which nodes are quantized besides those of the target, and which are not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from onnxq.compat.modules import Exported, nodes_of_fx_name, nodes_of_module
from onnxq.compat.mqbench.layers import layer_boundary
from onnxq.compat.mqbench.targets import Target
from onnxq.compat.structure import Structure
from onnxq.compat.torch_names import nodes_of_type, type_note
from onnxq.compat.translation import Translator, check_keys, counted, items_of, shown, yes_or_no
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.json_file import JsonMapping
from onnxq.types.translation import Outcome, joined, no_effect

TYPE_KEYS = ("additional_function_type", "additional_module_type", "exclude_function_type")
NAME_KEYS = ("additional_node_name", "exclude_module_name", "exclude_node_name")
QUANTIZER_KEYS = (
    "additional_function_type",
    "additional_module_type",
    "additional_node_name",
    "exclude_module_name",
    "exclude_function_type",
    "exclude_node_name",
    "academic_mode",
)

_REMOVED = ("Identity", "Dropout")
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")

Found = dict[str, list[tuple[Any, list[str]]]]
"""Key -> its items, each with the nodes that it means."""


def translate_quantizer(
    translator: Translator, given: Any, model: Exported, target: Target, where: str = "extra_quantizer_dict"
) -> Target:
    """Put additional_* into `force` and exclude_* into `skip`; the target may get an option (academic_mode)."""
    check_keys(given, QUANTIZER_KEYS, where)
    translate_lists(translator, given, model, target, where)
    if "academic_mode" not in given:
        return target
    return _academic_mode(translator, given["academic_mode"], target, f"{where}.academic_mode")


def translate_lists(
    translator: Translator,
    given: JsonMapping,
    model: Exported,
    target: Target,
    where: str,
    *,
    reading_float: bool = False,
) -> None:
    """The lists of additional and excluded nodes; those read float values too, where the tool means that.

    A name in additional_node_name wins over every exclusion; an exclusion wins over additional types. The weight of a
    module in exclude_module_name stays float either way.
    """
    found: Found = {
        key: [(item, _nodes(model, key, item, f"{where}.{key}")) for item in items_of(given[key], f"{where}.{key}")]
        for key in (*TYPE_KEYS, *NAME_KEYS)
        if key in given
    }
    named = _all_nodes(found, ("additional_node_name",))
    excluded = _all_nodes(found, ("exclude_module_name", "exclude_function_type", "exclude_node_name"))
    for key, items in found.items():
        full = f"{where}.{key}"
        if not items:
            translator.row(full, given[key], no_effect("the list is empty"))
        for item, nodes in items:
            if not nodes:
                became = no_effect(f"no node of the model computes something for {shown(item)}")
            elif key.startswith("additional"):
                became = _force(translator, model, target, nodes, () if key in NAME_KEYS else excluded - named, full)
            else:
                became = _skip(translator, nodes, named, full, weights=key == "exclude_module_name")
                if reading_float:
                    became = became.adding(_read_float(translator, model.graph, nodes, named, full), "; ")
            note = type_note(model, item, full) if key in TYPE_KEYS else ""
            translator.row(full, item, became.adding(note, "; ") if note else became)


def _force(
    translator: Translator, model: Exported, target: Target, nodes: Sequence[str], excluded: Collection[str], key: str
) -> Outcome:
    wanted = [name for name in nodes if name not in excluded]
    if not wanted:
        return no_effect(f"{counted(nodes)} excluded, and that wins")
    boundary = layer_boundary(model, wanted, target)
    translator.append("force", boundary.nodes, key)
    for tensor in boundary.inside:
        translator.set(("tensor", tensor, "skip"), True, key)
    operators = sorted({model.graph.node(name).op for name in boundary.nodes})
    both = "Add" in operators and target.backend.residual == "skip"
    every_sum = both and key.rpartition(".")[2] in TYPE_KEYS and _every_sum(model, nodes, key)
    if every_sum:
        translator.set(("residual",), "both", key)
    known = [op for op in operators if target.backend.rules_for(op) and not (both and op == "Add")]
    anyway = f"; {target.family} has a rule for {', '.join(known)} anyway" if known else ""
    of_sums = f"; {'residual = both: ' if every_sum else ''}quantizers on both inputs of an Add" if both else ""
    left = f"; {counted([name for name in nodes if name in excluded])} excluded" if len(wanted) < len(nodes) else ""
    float_inside = ", and nothing inside of the layer" if boundary.inside else ""
    return Outcome(f"force: {counted(boundary.nodes)}{float_inside}{of_sums}{anyway}{left}")


def _every_sum(model: Exported, nodes: Sequence[str], where: str) -> bool:
    """Whether these nodes are all sums of the model; `force` is about some of them (those of add_scalar) alone."""
    return set(_nodes(model, "additional_function_type", "operator.add", where)) <= set(nodes)


def _skip(translator: Translator, nodes: Sequence[str], named: set[str], key: str, *, weights: bool) -> Outcome:
    wanted = [name for name in nodes if name not in named]
    kept = [name for name in nodes if name in named]
    translator.append("skip", wanted, key)
    said = [Outcome(f"skip: {counted(wanted)}")] if wanted else []
    if kept and weights:
        for name in kept:
            translator.set(("node", name, "weight", "skip"), True, key)
        said.append(Outcome(f"float weight: {counted(kept)}, whose activations additional_node_name asks for"))
    elif kept:
        said.append(no_effect("additional_node_name asks for it, and wins", f" on {counted(kept)}"))
    return joined(said)


def _read_float(translator: Translator, graph: Graph, nodes: Sequence[str], named: set[str], key: str) -> str:
    """Take the quantizers in front of excluded nodes away, for these readers; what is between them is float anyway."""
    wanted = {name for name in nodes if name not in named}
    made = {tensor.name for name in wanted for tensor in graph.node(name).outputs}
    readers = [
        name
        for name in wanted
        if any(t.name and t.name not in made and not graph.is_constant(t) for t in graph.node(name).inputs)
    ]
    for name in sorted(readers):
        translator.set(("node", name, "activation", "skip"), True, key)
    return f"no quantizer in front of {counted(sorted(readers))}" if readers else ""


def _nodes(model: Exported, key: str, item: Any, where: str) -> list[str]:
    if key in TYPE_KEYS:
        nodes = computing_nodes(model, nodes_of_type(model, item, where))
        return _leading(model.graph, float_nodes(model, nodes)) if key.startswith("additional") else nodes
    if not isinstance(item, str):
        raise ConfigError(f"{where} holds names, such as 'layer1_1_conv1'; got {shown(item)}")
    if key == "exclude_module_name":
        return computing_nodes(model, nodes_of_module(model, item, where))
    nodes = computing_nodes(model, nodes_of_fx_name(model, item, where))
    return _leading(model.graph, weighted_nodes(model.graph, nodes)) if key.startswith("additional") else nodes


def _leading(graph: Graph, names: Sequence[str]) -> list[str]:
    """Without the Relu behind another of these nodes, as in FloatFunctional.add_relu: it runs inside that one."""
    made = {tensor.name for name in names for tensor in graph.node(name).outputs}
    behind = [
        name for name in names if graph.node(name).op in ("Relu", "Clip") and graph.node(name).inputs[0].name in made
    ]
    return [name for name in names if name not in behind]


def computing_nodes(structure: Structure, names: Sequence[str]) -> list[str]:
    """Those nodes that compute something from data.

    Left out is what passes fold or remove: constants, sizes, Identity, Dropout, and what no output depends on. Nothing
    about them can be set.
    """
    nodes = [structure.graph.node(name) for name in names if name not in structure.dead]
    return [str(node.name) for node in nodes if node.op not in _REMOVED and not structure.is_preparation(node)]


def float_nodes(structure: Structure, names: Sequence[str]) -> list[str]:
    """Those nodes whose results are floats, or of unknown type: a type may also stand for sums of integers."""
    return [name for name in names if structure.makes_floats(structure.graph.node(name))]


def weighted_nodes(graph: Graph, names: Sequence[str]) -> list[str]:
    """Those nodes that hold a weight, where there is one: the MatMul of a Linear, not the Add of its bias."""
    return [name for name in names if graph.node(name).op in _WEIGHTED] or list(names)


def _all_nodes(found: Found, keys: Iterable[str]) -> set[str]:
    return {name for key in keys for _, nodes in found.get(key, []) for name in nodes}


def _academic_mode(translator: Translator, value: Any, target: Target, where: str) -> Target:
    yes_or_no(value, where)
    if "academic" not in {option.name for option in target.backend.options}:
        translator.row(where, value, no_effect(f"OPENVINO alone has it, not {target.family}"))
        return target
    translator.row(where, value, f"backend option academic={'yes' if value else 'no'}")
    return target.with_option("academic", "yes" if value else "no")
