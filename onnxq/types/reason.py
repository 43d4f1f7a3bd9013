"""Reason: why something stays float, is refused or dropped, as a code for programs with a text for people.

Programs ask for the `code` and never read the text, which may change. A Reason is its text, so it is printed, compared
and written to JSON like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from onnxq.types.coded_text import CodedText

Code = Literal[
    "excluded",
    "measured_slower",
    "only_observed",
    "no_rule",
    "declined_by_target",
    "not_float",
    "float_type",
    "control_flow",
    "decides",
    "mask_values",
    "not_finite",
    "already_quantized",
    "composite",
    "outliers",
    "constant_inputs",
    "empty_input",
    "shared_table",
    "residual",
    "input_not_quantized",
    "result_not_quantized",
    "not_fused",
    "leader_float",
    "unlike_join",
    "no_range",
    "inserted",
    "from_plan",
    "forced",
    "half_range",
    "half_loss",
    "half_sum",
    "half_operator",
    "half_kept",
    "half_island",
]
CODES: tuple[Code, ...] = get_args(Code)

MEANING: Mapping[Code, str] = {
    "excluded": "the configuration leaves the node float (`skip`)",
    "measured_slower": "it was timed in integers and in float, and is faster in float (`optimize_for`)",
    "only_observed": "its quantizers are left out or only observe, as the configuration says",
    "no_rule": "the target has no rule for the operator; `--strict` makes this an error",
    "declined_by_target": "the target has a rule for the operator, which does not take this node",
    "not_float": "it computes integers, booleans or strings",
    "float_type": "it computes in a float type that the target does not quantize",
    "control_flow": "If, Loop or Scan, whose bodies are treated node by node",
    "decides": "a branch, a trip count, an index or a shape is computed from it",
    "mask_values": "it adds or reads values near minus infinity, which would ruin the range",
    "not_finite": "a constant that it reads is infinite",
    "already_quantized": "it is quantized in the model that was given",
    "composite": "a composite operation, or part of one (a decomposed LayerNorm), that is computed in float as a whole",
    "outliers": "it reads or makes values with outliers, and 8 bits cost more than float does (`outlier_placement`)",
    "constant_inputs": "all its inputs are constants",
    "empty_input": "one of its inputs has no elements",
    "shared_table": "others read the table that it looks up, which would have to be stored twice",
    "residual": "an Add that the target computes inside a convolution, and there is none in front of it",
    "input_not_quantized": "its input is float, so quantizing it would only add conversions",
    "result_not_quantized": "not all that read its result, or none of them, are quantized",
    "not_fused": "an activation that no quantized operator in front of it, or quantizer behind it, takes in",
    "leader_float": "it runs inside another node, which stays float",
    "unlike_join": "a Concat of tensors whose ranges one scale cannot hold, or a node behind one",
    "no_range": "no calibration sample gave its input a range",
    "inserted": "onnxq has put it in, and it runs in float",
    "from_plan": "read from a plan file, which holds the text alone",
    "forced": "the configuration quantizes it although the target's rules leave it float (`force`)",
    "half_range": "half precision would overflow: it reads or makes values near or beyond the largest one",
    "half_loss": "half precision loses accuracy: values below its normal range, or differences of rounded numbers",
    "half_sum": "it adds up more terms than half precision has digits for",
    "half_operator": "ONNX does not define the operator, or a tensor of it, in half precision",
    "half_kept": "the configuration keeps it in float32 (`keep_float32`)",
    "half_island": "only float32 nodes stand around it, and Casts would cost more than it gains",
}
"""What a code says, for the documentation."""


class Reason(CodedText[Code]):
    """A text with its code."""

    @classmethod
    def of(cls, text: str, code: Code) -> Reason:
        """`text` with its own code, or with `code` where it has none."""
        return text if isinstance(text, Reason) else cls(code, text)


def by_code(reasons: Mapping[str, Reason]) -> dict[str, list[str]]:
    """Code -> the names that have it, in their order."""
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(reason.code, []).append(name)
    return found
