"""`extra_quantizer_dict`: what is quantized besides the target's choice, what is not, and what is only observed."""

from __future__ import annotations

from typing import Any

from onnxq.compat.modules import Exported, quantizer_target
from onnxq.compat.mqbench.quantizer import NAME_KEYS, TYPE_KEYS, translate_lists
from onnxq.compat.mqbench.targets import find_target
from onnxq.compat.translation import Translator, check_keys, counted, items_of, shown
from onnxq.errors import ConfigError
from onnxq.targets.sophgo.dialect.nodes import result_nodes, weight_nodes
from onnxq.targets.sophgo.dialect.target import Target
from onnxq.types.translation import Outcome, no_effect

KEY = "extra_quantizer_dict"
OBSERVED = "module_only_enable_observer"


def translate_quantizer(given: Any, model: Exported, target: Target, out: Translator) -> None:
    """The lists that MQBench has too, and the quantizers that leave values as they are."""
    check_keys(given, (OBSERVED, *NAME_KEYS, *TYPE_KEYS), KEY)
    reading_float = not target.weight_only
    translate_lists(out, given, model, find_target(target.backend), KEY, reading_float=reading_float)
    where = f"{KEY}.{OBSERVED}"
    names = items_of(given.get(OBSERVED, []), where)
    if OBSERVED in given and not names:
        out.row(where, given[OBSERVED], no_effect("the list is empty"))
    for name in names:
        out.row(where, name, _observe(name, model, target, out, where))


def _observe(name: Any, model: Exported, target: Target, out: Translator, where: str) -> str | Outcome:
    if not isinstance(name, str):
        raise ConfigError(f"{where} holds names of quantizers, such as 'conv1.weight_fake_quant'; got {shown(name)}")
    nodes, part = quantizer_target(model, name, where)
    if part == "bias":
        raise ConfigError(
            f"{where}: '{name}' does not exist: a bias has no quantizer of its own, its scale is that of the input "
            f"times that of the weight. Name '{name.rpartition('.')[0]}.weight_fake_quant' for a layer in float"
        )
    if part == "weight":
        nodes = weight_nodes(
            model.graph, nodes, f"{where}: '{name}'", "Name the quantizer of a convolution or linear layer"
        )
    elif target.weight_only:
        return no_effect("quantmode weight_only has no quantizers on activations")
    elif part == "input":
        for tensor in nodes:
            out.set(("tensor", tensor, "observe_only"), True, where)
        return f"observe_only = true of input {counted(nodes)}"
    else:
        nodes = result_nodes(model.graph, nodes)
    for node in nodes:
        out.set(("node", node, part, "observe_only"), True, where)
    return f"{part}.observe_only = true of {counted(nodes)}"
