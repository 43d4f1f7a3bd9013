"""LeakyRelu on the DPU: its slope is a number of 1/256, so that 0.1 becomes 26/256."""

from __future__ import annotations

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import line, on_chip
from onnxq.graph import Graph
from onnxq.types import QParamsTable, QuantPlan


def chip_slope(alpha: float) -> float:
    """The multiple of 1/256 nearest to `alpha`; a half goes to the even one."""
    return round(alpha * 256) / 256


@SIMULATIONS.register("dpu_leaky_relu")
def simulate_leaky_relu(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """The slope of each LeakyRelu is rounded to 1/256."""
    notes = []
    for node in on_chip(graph, plan, "LeakyRelu"):
        alpha = float(node.attrs.get("alpha", 0.01))
        slope = chip_slope(alpha)
        if slope != alpha:
            node.attrs["alpha"] = slope
            notes.append(line(node, f"slope {alpha:.6g} becomes {slope * 256:.0f}/256"))
    return notes
