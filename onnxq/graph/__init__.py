"""The in-memory graph: the only package that touches onnx-graphsurgeon."""

from onnxq.collector import collector_paused
from onnxq.graph.graph import Graph, load
from onnxq.graph.names import Names, Origins
from onnxq.graph.nodes import Constant, Node, Use, Variable, bodies
from onnxq.graph.pattern import Any, Const, Match, Op, Pattern, parse_pattern
from onnxq.graph.units import Unit, Units
from onnxq.graph.values import DeferredValues, LazyValues

__all__ = [
    "Any",
    "Const",
    "Constant",
    "DeferredValues",
    "Graph",
    "LazyValues",
    "Match",
    "Names",
    "Node",
    "Op",
    "Origins",
    "Pattern",
    "Unit",
    "Units",
    "Use",
    "Variable",
    "bodies",
    "collector_paused",
    "load",
    "parse_pattern",
]
