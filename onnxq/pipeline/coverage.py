"""How much of a model runs quantized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.glance import counted, short_repr
from onnxq.json_file import JsonObject
from onnxq.types import QuantPlan
from onnxq.types.reason import Reason, by_code


@dataclass(frozen=True)
class Coverage:
    """How many nodes run quantized, and every other node with its reason.

    nodes        of the graph behind the passes: `quantized` by a rule, `fused` into one of those, or float
    fraction     of the nodes that are quantized or fused, from 0 to 1
    tensors      role -> quantizers
    float_nodes  node -> why it stays float
    """

    nodes: int
    quantized: int
    fused: int
    fraction: float
    tensors: Mapping[str, int]
    float_nodes: Mapping[str, Reason]

    @classmethod
    def of(cls, plan: QuantPlan) -> Coverage:
        total = len(plan.quantized) + len(plan.fused) + len(plan.left_float)
        inside = len(plan.quantized) + len(plan.fused)
        return cls(
            total,
            len(plan.quantized),
            len(plan.fused),
            round(inside / total, 4) if total else 0.0,
            dict(Counter(placement.role for placement in plan)),
            dict(plan.left_float),
        )

    def __repr__(self) -> str:
        nodes = f"{self.quantized:,} quantized, {self.fused:,} fused, {len(self.float_nodes):,} float"
        return short_repr("Coverage", "", f"{self.fraction:.1%} of {counted(self.nodes, 'node')}", nodes)

    def to_json(self) -> JsonObject:
        return {
            "nodes": self.nodes,
            "quantized": self.quantized,
            "fused": self.fused,
            "float": len(self.float_nodes),
            "fraction": self.fraction,
            "tensors": dict(self.tensors),
            "float_nodes": dict(self.float_nodes),
            "float_codes": by_code(self.float_nodes),
        }
