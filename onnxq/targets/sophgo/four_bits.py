"""Which layers of 4 and of 8 bits can stand behind each other, found by compiling them.

tpu-mlir hands 4 bits from an INT4 layer to a W4INT8 layer straight behind it, which then has no kernel: the compiler
ends. Behind a MaxPool or an Add everything fits, and so does an INT8 layer. A layer that reads 4 bits has a weight of 4
bits, no groups, and does not make an output of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.targets.sophgo.modes import Operator, mode_of, operators
from onnxq.targets.sophgo.names import LAYERS, result_of
from onnxq.types import QuantPlan
from onnxq.types.note import Note


def settle_four_bits(graph: Graph, plan: QuantPlan) -> None:
    """Give 8 bits to the weight of a layer that would be W4INT8 straight behind INT4; an error where 4 were set."""
    for operator, source in _behind_four_bits(graph, plan):
        weight = str(operator.weight)
        said = [where for field, where in plan[weight].set_by if field in ("bits", "dtype")]
        if said:
            raise UnsupportedError(_impossible(operator, source, f" ({said[0]})"))
        plan.placements[weight] = replace(plan[weight], spec=plan[weight].spec.replace(dtype="int8"))
        plan.notes.append(
            Note(
                "eight_bits",
                f"weight '{weight}' of '{operator.node.name}' has 8 bits: what it reads has 8 and comes from "
                f"'{source}', which reads 4, and tpu-mlir has no kernel for a weight of 4 bits there",
            )
        )
    refuse_four_bits(graph, plan)


def refuse_four_bits(graph: Graph, plan: QuantPlan) -> None:
    """An error for layers that chips do not have in 4 bits, or not behind each other."""
    for operator in operators(graph, plan):
        node, mode = operator.node, mode_of(graph, plan, operator, "F32")
        if mode not in ("W4INT8", "INT4"):
            continue
        if int(node.attrs.get("group", 1)) > 1:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}) has groups, and such a convolution has no 4-bit form. Set bits = 8 "
                "for its weight and for what it reads"
            )
        if operator.weight is not None and plan[operator.weight].spec.bits != 4:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}) reads '{node.inputs[0].name}' with 4 bits, and its weight has "
                f"{plan[operator.weight].spec.bits}: chips have no such layer. All that read a tensor read one format. "
                "Set bits = 4 for this weight too, or bits = 8 for what is read"
            )
        result = result_of(graph, node, plan.fused)
        if mode == "INT4" and graph.is_output(result) and result.name in plan and plan[result.name].spec.bits != 4:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}) reads 4 bits and makes an output of the model, which tpu-mlir would "
                "give 4 bits too. Set bits = 8 for what it reads"
            )
    for operator, source in _behind_four_bits(graph, plan):
        raise UnsupportedError(_impossible(operator, source, ""))


def _behind_four_bits(graph: Graph, plan: QuantPlan) -> Iterator[tuple[Operator, str]]:
    """W4INT8 layers that read what an INT4 layer makes, with the name of that one."""
    known = {operator.node.name: mode_of(graph, plan, operator, "F32") for operator in operators(graph, plan)}
    for operator in list(operators(graph, plan)):
        node = operator.node
        if known[node.name] != "W4INT8":
            continue
        maker = graph.producer(node.inputs[0])
        lead = None if maker is None else plan.fused.get(maker.name, maker.name)
        if lead is not None and known.get(lead) == "INT4" and graph.node(lead).op in LAYERS:
            yield operator, str(lead)


def _impossible(operator: Operator, source: str, said: str) -> str:
    node = operator.node
    return (
        f"node '{node.name}' ({node.op}) has a weight of 4 bits{said} and reads 8 bits that come straight from "
        f"'{source}', which reads 4: tpu-mlir has no kernel for that. Set bits = 8 for this weight, or bits = 4 for "
        "what is read"
    )
