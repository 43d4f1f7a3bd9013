"""The shifts of AMD's DPU and NPU: what their compilers demand of positions, checked on any Q/DQ file.

The rules themselves are those that `refine` meets. A quantizer whose scale is no power of two has no position: the
limit `power_of_two` speaks of it, and no rule here does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.lint.finding import Finding
from onnxq.lint.quantizers import Quantizer
from onnxq.lint.rules import LINTS
from onnxq.numerics.positions import exact_position
from onnxq.targets.amd.dpu_rules import breaches
from onnxq.targets.amd.dpu_sites import find_sites
from onnxq.types import Backend


@LINTS.register("dpu_positions")
def check_positions(graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]:
    """Yield a finding for each shift that the chip does not have, with the tensor whose position would meet it."""
    names, positions = _slots(found)
    reads = {q.output_name: q for q in found if q.op == "DequantizeLinear"}
    writes = {q.data_name: q for q in found if q.op == "QuantizeLinear"}

    def input_slot(node: Node, port: int) -> str | None:
        reader = reads.get(str(node.inputs[port].name))
        return None if reader is None else names[reader.node]

    def output_slot(tensor: Any) -> str | None:
        writer = writes.get(str(tensor.name))
        return None if writer is None else names[writer.node]

    hard = "dpu_sigmoid" in backend.simulations
    sites = find_sites(graph, input_slot, output_slot, sigmoid_is_hard=hard)
    for breach in breaches(sites, positions, backend.skipped_rules.get("dpu_positions", ())):
        now = positions[breach.slot]
        yield Finding(
            breach.rule,
            breach.slot,
            breach.site.node,
            f"tensor '{breach.slot}' is at position {now} (scale 2^{-now}), which {backend.name} refuses: {breach}",
            f"Move it to position {breach.position} and quantize it again from float values, or let onnxq quantize the "
            "float model, which does that",
        )


def _slots(found: list[Quantizer]) -> tuple[dict[str, str], dict[str, int]]:
    """Node of a quantizer -> its slot, and slot -> position.

    A slot is called after the float tensor, where there is one. A Q and the DQs behind it are one slot. Quantizers that
    merely read the same scale are not: other tools write equal numbers once, and a finding has to name its own tensor.
    """
    floats = {q.output_name: q.data_name for q in found if q.op == "QuantizeLinear"}
    names: dict[str, str] = {}
    positions: dict[str, int] = {}
    for quantizer in found:
        slot = floats.get(quantizer.data_name, quantizer.data_name)
        names[quantizer.node] = slot
        position = None if quantizer.scale is None else exact_position(quantizer.scale)
        if position is not None:
            positions[slot] = position
    return names, positions
