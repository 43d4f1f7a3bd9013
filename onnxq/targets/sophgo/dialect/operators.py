"""`int4_op`, `int8_op`, `f16_op`: modules that run in a precision of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxq.compat.mqbench.quantizer import computing_nodes
from onnxq.compat.translation import Translator, counted, items_of
from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.json_file import JsonMapping
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect.fit import has_groups
from onnxq.targets.sophgo.dialect.nodes import Model, of_module, result_nodes
from onnxq.targets.sophgo.dialect.precision import is_integer
from onnxq.targets.sophgo.dialect.target import Target
from onnxq.targets.sophgo.names import LAYERS
from onnxq.types.translation import no_effect

OPERATOR_LISTS = ("int4_op", "int8_op", "f16_op")
"""In this order: a module in two of them gets what the later one says."""

_LEARNT: Mapping[str, JsonMapping] = {
    "weight": {"per_channel": False, "fake_quantizer": "lsq_plus", "observer": "minmax"},
    "activation": {"fake_quantizer": "lsq_plus", "observer": "ema_minmax"},
}
"""What Sophgo-mq gives to the layers of int4_op and int8_op besides their bits."""


def translate_operators(given: JsonMapping, model: Model, out: Translator, key: str) -> dict[str, str]:
    """Settings of the listed modules; what comes back are options of the backend."""
    found = {name: _found(given[name], model, f"{key}.{name}") for name in OPERATOR_LISTS if name in given}
    winner = {node: name for name, items in found.items() for nodes in items.values() for node in nodes}
    four_bits = {node for node, name in winner.items() if name == "int4_op"}
    options: dict[str, str] = {}
    for name, items in found.items():
        where = f"{key}.{name}"
        if not items:
            out.row(where, given[name], no_effect("the list is empty"))
        for item, listed in items.items():
            nodes = [node for node in listed if winner[node] == name]
            if not nodes:
                out.row(where, item, no_effect(f"{winner[listed[0]]} has it too, and wins"))
                continue
            if name == "f16_op":
                became = _as_float(computing_nodes(model.exported, nodes), model.target, out, where)
                options["float"] = "F16"
            else:
                layers = _layers(nodes, model, f"{where}: '{item}'")
                if name == "int4_op":
                    _check_four_bits(layers, four_bits, model, f"{where}: '{item}'")
                became = _as_integers(layers, 4 if name == "int4_op" else 8, out, where)
            out.row(where, item, became)
    return options


def _found(given: Any, model: Model, where: str) -> dict[str, list[str]]:
    """Module -> its nodes."""
    items = items_of([] if given is None else given, where)
    return {item: of_module(model.exported, item, where).nodes for item in items}


def _as_float(nodes: list[str], target: Target, out: Translator, where: str) -> str:
    if "F16" not in target.option("float"):
        raise ConfigError(
            f"{where}: {target.chip} has no F16, what it does not quantize runs in "
            f"{', '.join(target.option('float'))}. Use exclude_module_name"
        )
    if target.mixed:
        raise ConfigError(
            f"{where}: bf16_mix_prec has BF16 for everything that is not quantized, so F16 is not possible beside it. "
            "Leave one of them out"
        )
    out.append("skip", nodes, where)
    return f"skip: {counted(nodes)}; option float=F16 of the backend, for all operators that are not quantized"


def _layers(nodes: list[str], model: Model, where: str) -> list[str]:
    if not is_integer(model.precision):
        raise ConfigError(
            f"{where} would be integers in a model of {model.precision} (w_fakequantize, a_fakequantize). tpu-mlir "
            "converts at every border between the two, and no table says how. Use fake-quantizers for integers there, "
            "or leave the list out"
        )
    if model.target.weight_only:
        raise ConfigError(
            f"{where}: quantmode 'weight_only' leaves activations float. Use module_name with mode 'weight'"
        )
    layers = [name for name in nodes if model.graph.node(name).op in LAYERS]
    if not layers:
        raise ConfigError(
            f"{where} has no weights, so it has no precision of its own. Name a convolution or linear layer"
        )
    return layers


def _as_integers(layers: list[str], bits: int, out: Translator, where: str) -> str:
    for name in layers:
        for part, fields in _LEARNT.items():
            for field, value in {"bits": bits, **fields}.items():
                out.set(("node", name, part, field), value, where)
    return (
        f"weights of {bits} bits, one scale for each, observed by minmax; {bits} bits in what is read, observed by "
        f"ema_minmax; fake_quantizer = lsq_plus for both: {counted(layers)}"
    )


def _check_four_bits(layers: list[str], four_bits: set[str], model: Model, where: str) -> None:
    try:
        get_backend(model.target.written(precision="INT4"))
    except ConfigError:
        raise ConfigError(
            f"{where}: {model.target.chip} has no layers that read 4 bits, BM1688 has them. Leave the list out"
        ) from None
    for name in layers:
        if has_groups(model.graph, name):
            raise ConfigError(f"{where}: a convolution with groups has no 4-bit form. Leave it out of the list")
        last = model.graph.node(result_nodes(model.graph, [name])[0])
        if any(model.graph.is_output(tensor) for tensor in last.outputs):
            raise ConfigError(
                f"{where} makes an output of the model, which tpu-mlir would give 4 bits too. Leave it out of the list"
            )
        other = _other_reader(model.graph, name, four_bits)
        if other is not None:
            raise ConfigError(
                f"{where} reads the same tensor as '{other.name}', which has 8 bits: a tensor has one format. List both"
            )


def _other_reader(graph: Graph, name: str, four_bits: set[str]) -> Node | None:
    """A layer with 8 bits that reads what a 4-bit layer reads."""
    uses = graph.consumers(graph.node(name).inputs[0])
    return next((use.node for use in uses if use.node.op in LAYERS and use.node.name not in four_bits), None)
