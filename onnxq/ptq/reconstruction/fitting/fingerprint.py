"""What the outcome of a block depends on, as one hash: a file of an earlier run is used only where all of it is equal.

Hashes are a chain: the recipe and the samples, then segment by segment its nodes, constants and quantizers, and what
was found in it. So a block that came out differently is a different past for all that follow. Activations are not
hashed: they follow from the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from onnxq.graph import Constant, Graph, Node
from onnxq.graph.nodes import Scope
from onnxq.ptq.reconstruction.blocks import Segment
from onnxq.ptq.reconstruction.fitting.outcome import Outcome
from onnxq.runtime.feeds import Feed
from onnxq.types import QParamsTable, QuantPlan

FORMAT = 3
"""Goes up when blocks are fitted in another way, so that what an older onnxq has found is not taken for it."""


class Chain:
    """A hash that grows; `name` identifies everything up to now."""

    def __init__(self, settings: Any) -> None:
        self._digest = hashlib.sha256(json.dumps([FORMAT, settings], sort_keys=True).encode())

    @property
    def name(self) -> str:
        return self._digest.hexdigest()[:16]

    def feed(self, feed: Feed) -> None:
        for name in sorted(feed):
            self._array(name, np.asarray(feed[name]))

    def segment(self, segment: Segment, graphs: Iterable[Graph], plan: QuantPlan, qparams: QParamsTable) -> None:
        """Nodes, the constants in each of the graphs, and the quantizers with their parameters."""
        graphs = list(graphs)
        self._text([segment.nodes, segment.reads, segment.makes])
        for node in (graphs[0].node(name) for name in segment.nodes):
            self._node(node)
            for tensor in (*node.inputs, *node.outputs):
                if tensor.name and graphs[0].is_constant(tensor):
                    for graph in graphs:
                        self._array(tensor.name, graph.values(tensor.name))
                if tensor.name in plan:
                    self._text([plan[tensor.name].to_json(), qparams[tensor.name].to_json()])

    def _node(self, node: Node) -> None:
        """What a node computes, those of its bodies included; its inputs tell the rest."""
        self._text([node.op, node.domain or "", [tensor.name for tensor in (*node.inputs, *node.outputs)]])
        for name in sorted(node.attrs):
            self._attribute(name, node.attrs[name])

    def _attribute(self, name: str, value: Any) -> None:
        if isinstance(value, Scope):
            for constant in value.initializers.values():
                self._array(constant.name, constant.values)
            for node in value.nodes:
                self._node(node)
        elif isinstance(value, Constant):
            self._array(name, np.asarray(value.values))
        else:
            self._text([name, repr(value)])

    def outcome(self, outcome: Outcome) -> None:
        self._text([outcome.kept])
        for part in (outcome.scales, outcome.weights, outcome.biases):
            for name in sorted(part):
                self._array(name, part[name])

    def _text(self, value: Any) -> None:
        self._digest.update(json.dumps(value).encode())

    def _array(self, name: str, values: np.ndarray) -> None:
        self._digest.update(f"{name} {values.dtype} {values.shape}".encode())
        plain = values.astype(str) if values.dtype.kind == "O" else np.ascontiguousarray(values)
        self._digest.update(plain.tobytes())
