"""fp16, bf16 and bfp16 in a model: formats that QuantizeLinear does not have, as Casts or float operators.

ONNX has no type for bfp16: constants become the float values of the format, activations pass through operators that
compute it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from onnxq.emit.block_arithmetic import BlockArithmetic
from onnxq.emit.uses import uses_of
from onnxq.graph import Graph, Use
from onnxq.numerics import float_max
from onnxq.types import Placement

CASTS: dict[str, np.dtype[Any]] = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
"""Formats that are types of ONNX."""


def write_casts(graph: Graph, placement: Placement) -> None:
    """A Cast to the narrow type and back; a Clip first, because Cast gives infinity where the format saturates."""
    source = graph.tensor(placement.tensor)
    kind = graph.dtype(source) or np.dtype(np.float32)
    narrow = CASTS[placement.spec.dtype]
    name, home = source.name, graph.home_of(source)
    top = float_max(placement.spec.dtype)
    readers = _readers(graph, placement)
    bounds = [graph.add_constant(f"{name}_{side}", np.asarray(v, kind)) for side, v in (("low", -top), ("high", top))]
    clipped = graph.add_variable(f"{name}_clipped", kind, source.shape)
    small = graph.add_variable(f"{name}_narrow", narrow, source.shape)
    wide = graph.add_variable(f"{name}_widened", kind, source.shape)
    graph.add_node("Clip", [source, *bounds], [clipped], name=f"{name}_Clip", scope=home)
    graph.add_node("Cast", [clipped], [small], attrs={"to": narrow}, name=f"{name}_narrow", scope=home)
    graph.add_node("Cast", [small], [wide], attrs={"to": kind}, name=f"{name}_widen", scope=home)
    _let_read(graph, placement, source, wide, readers)


def write_blocks(graph: Graph, placement: Placement) -> None:
    """Float operators that compute what values become that share an exponent with their neighbours."""
    blocks = placement.spec.shared_exponent
    assert blocks is not None
    source, readers = graph.tensor(placement.tensor), _readers(graph, placement)
    made = BlockArithmetic(graph, source, blocks).write()
    _let_read(graph, placement, source, made, readers)


def _readers(graph: Graph, placement: Placement) -> list[Use]:
    """Who reads the tensor quantized, asked for before there are readers of onnxq's own."""
    uses = uses_of(graph, placement)
    return graph.consumers(placement.tensor) if uses is None else uses


def _let_read(graph: Graph, placement: Placement, source: Any, made: Any, readers: list[Use]) -> None:
    graph.redirect(source, made, uses=readers)
    if placement.edges is None:
        graph.take_over_outputs(source, made)
