"""The rule for a node that is quantized because the user wants it, whatever the target's rules say."""

from __future__ import annotations

from onnxq.place.facts import FLOAT_TYPES, Facts
from onnxq.types import Backend, OpRule
from onnxq.types.layer_rules import INTEGER_LAYERS, TRANSFORMER_LAYERS

_ELEMENT_WISE = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "PRelu")
"""Operators whose constants are numbers to compute with; constants of others are sizes, scales and bounds."""


def forced_rule(facts: Facts, backend: Backend) -> OpRule | str:
    """The backend's own rule without its reservations, that of a layer, or one for all that is computed; or why not."""
    if backend.scheme.activation is None and backend.scheme.weight is None:
        return f"{backend.name} quantizes nothing with these settings"
    made = facts.output_dtype()
    if made is not None and made not in FLOAT_TYPES:
        return f"it computes {made} values"
    with_output = any(rule.output for rule in backend.rules)
    for own in backend.rules_for(facts.op):
        if own.inputs != () or own.weight is None or facts.is_constant(own.weight):
            return own
    for rule in (*INTEGER_LAYERS, *TRANSFORMER_LAYERS):
        if facts.op in rule.ops and rule.weight is not None and facts.is_constant(rule.weight):
            return OpRule(rule.ops, rule.inputs, rule.weight, rule.weight_axis, rule.bias, output=with_output)
    ports = tuple(port for port in range(facts.input_count) if _is_operand(facts, port))
    if not ports:
        return "none of its inputs is a float tensor that is computed at run time"
    return OpRule((facts.op,), inputs=ports, output=with_output)


def _is_operand(facts: Facts, port: int) -> bool:
    if not facts.has(port) or facts.dtype(port) not in (None, *FLOAT_TYPES):
        return False
    return not facts.is_constant(port) or (facts.op in _ELEMENT_WISE and bool(facts.shape(port)))
