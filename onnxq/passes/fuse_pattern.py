"""A user's own fusion: nodes that fit a pattern are treated as one operation."""

from __future__ import annotations

from onnxq.graph import Graph, Pattern, parse_pattern
from onnxq.passes.base import Pass, PassResult
from onnxq.passes.units import add_unit


def fuse_pattern(kind: str, pattern: str | Pattern) -> Pass:
    """A pass that groups every match of `pattern` as a unit called `kind`, so that no quantizer is put inside.

    The nodes stay as they are; a node that belongs to a unit already is left there, with a line in the report.
    `pattern` is a chain of operators, or a tree of `Op`, `Any` and `Const` from `onnxq.graph`:

        run_passes(graph, [fuse_pattern("ConvMish", "Conv -> Softplus -> Tanh -> Mul")])

        x = Any("x")
        scaled_tanh = Op("Mul", Op("Tanh", Op("Mul", x, Const(0.6667))), Const(1.7159))
        run_passes(graph, [fuse_pattern("ScaledTanh", scaled_tanh)])
    """

    wanted = parse_pattern(pattern) if isinstance(pattern, str) else pattern

    def fuse(graph: Graph) -> PassResult:
        result = PassResult()
        for match in graph.find(wanted):
            add_unit(graph, result, kind, match.nodes)
        return result

    fuse.__name__ = f"fuse_pattern({kind})"
    return fuse
