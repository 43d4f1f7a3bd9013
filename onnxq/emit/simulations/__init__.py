"""How operators differ on a chip from ONNX: rewrites of the float graph that `simulate` runs before it quantizes."""

from __future__ import annotations

from typing import Protocol

from onnxq.graph import Graph
from onnxq.registry import Registry
from onnxq.types import QParamsTable, QuantPlan


class Simulation(Protocol):
    """Changes operators of `graph` in place, keeping the names of all tensors; returns a line for each change."""

    def __call__(self, graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]: ...


SIMULATIONS: Registry[Simulation] = Registry("simulation", "onnxq.targets")
"""What a chip computes otherwise than ONNX, by the names that backends have in their lists."""
