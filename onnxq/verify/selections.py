"""Rows that a model selects by its data: what follows is compared for the same rows.

A detector that ends in TopK gives its 300 best boxes in the order of their scores. Two scores that are nearly equal
change places by any rounding, and every row behind them moves: compared as they come, such outputs have no decibels
left where nothing is wrong. With NonMaxSuppression or NonZero even their number differs. So the quantized model runs
with the indices that the float model has selected, and its values for these rows are compared; how many of the indices
it selects by itself are the same ones is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.errors import MachineError, OnnxqError
from onnxq.graph import Graph, Node
from onnxq.place.decisions import LAYERS
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, run_session
from onnxq.temporary import temporary_folder
from onnxq.verify.kernels import fused_session
from onnxq.verify.report import SelectionCheck

if TYPE_CHECKING:
    import onnxruntime as ort

INDICES: Mapping[str, int] = {"NonMaxSuppression": 0, "NonZero": 0, "TopK": 1}
"""Operators that select -> the output with the indices."""

FEW = 0.25
"""Of the same entries: less is worth a warning. Neighbours of nearly equal scores take turns in any quantized model."""

Selected = Mapping[str, np.ndarray]
"""Node -> the indices that it has selected."""


def selecting_nodes(graph: Graph) -> tuple[str, ...]:
    """Nodes of the main graph that select by what weighted layers compute, and by whose indices others go on."""
    with graph.unchanging():
        return tuple(
            str(node.name)
            for node in graph.nodes()
            if node.op in INDICES
            and not node.domain
            and graph.scope_of(node) is graph.gs
            and len(node.outputs) > INDICES[node.op]
            and any(graph.consumers(tensor) for tensor in node.outputs)
            and _is_computed(graph, node)
        )


def _is_computed(graph: Graph, node: Node) -> bool:
    """Whether a weighted layer stands in front of a node, so that rounding may change what it selects."""
    pending, seen = [node], {node.name}
    while pending:
        for tensor in pending.pop().inputs:
            maker = graph.producer(tensor)
            if maker is None or maker.name in seen:
                continue
            if maker.op in LAYERS:
                return True
            seen.add(maker.name)
            pending.append(maker)
    return False


def indices_of(graph: Graph, node: str) -> str:
    """The tensor with the indices that a node selects."""
    found = graph.node(node)
    return str(found.outputs[INDICES[found.op]].name)


def with_given_indices(graph: Graph, nodes: Sequence[str]) -> tuple[Graph, dict[str, str]]:
    """A copy that takes the indices of these nodes as inputs, and node -> input; nodes that it has not are left out.

    The nodes stay, for outputs that are their own. The values of a TopK are then those at the given indices.
    """
    graph, inputs = graph.copy(), {}
    for name in nodes:
        if not graph.has_node(name) or graph.node(name).op not in INDICES:
            continue
        node = graph.node(name)
        own = node.outputs[INDICES[node.op]]
        rank = 2 if node.op != "TopK" else len(graph.shape(node.inputs[0]) or graph.shape(own) or ()) or None
        given = graph.add_variable(f"{own.name}_given", np.dtype(np.int64), None if rank is None else [None] * rank)
        graph.gs.inputs.append(given)
        graph.refresh()
        graph.redirect(own, given, uses=graph.consumers(own))
        if node.op == "TopK" and node.outputs[0].name and graph.consumers(node.outputs[0]):
            graph.raise_opset(_GATHER_ELEMENTS)
            uses = graph.consumers(node.outputs[0])
            axis = int(node.attrs.get("axis", -1))
            taken = graph.add_node("GatherElements", [node.inputs[0], given], attrs={"axis": axis})
            taken.outputs[0].dtype = node.outputs[0].dtype
            graph.redirect(node.outputs[0], taken.outputs[0], uses=uses)
        inputs[name] = str(given.name)
    return graph, inputs


_GATHER_ELEMENTS = 11
"""The opset that brought it."""


@dataclass(frozen=True)
class GivenSession:
    """A session of a model that is given the indices of its selecting nodes; `inputs` has node -> input."""

    session: ort.InferenceSession
    inputs: Mapping[str, str]

    def run(self, names: Sequence[str], feed: Feed, selected: Selected, where: str) -> list[Any]:
        given = {tensor: selected[node] for node, tensor in self.inputs.items()}
        return run_session(self.session, names, {**feed, **given}, where)

    @classmethod
    def of(cls, graph: Graph, nodes: Sequence[str], make: Callable[[Graph], ort.InferenceSession]) -> GivenSession:
        """A session by `make`, of the graph itself where nothing selects."""
        if not nodes:
            return cls(make(graph), {})
        changed, inputs = with_given_indices(graph, nodes)
        return cls(make(changed), inputs)


class Selections:
    """A quantized model that selects by itself, and that is given what the float model selects.

    One that does not run with given indices is compared as it is, and says so.
    """

    def __init__(self, original: Graph, quantized: Graph, *, fused: bool) -> None:
        """`fused` asks for the kernels that onnxruntime chooses too."""
        self._nodes = tuple(
            name
            for name in selecting_nodes(original)
            if quantized.has_node(name) and quantized.node(name).op == original.node(name).op
        )
        self._by_name = {name: original.node(name) for name in self._nodes}
        self.indices = [indices_of(original, name) for name in self._nodes]
        self._own_indices = [indices_of(quantized, name) for name in self._nodes]
        self._equal = dict.fromkeys(self._nodes, 0)
        self._count = dict.fromkeys(self._nodes, 0)
        self._unusable: str | None = None
        self._fused: GivenSession | None = None
        if self._nodes:
            self._own = float_session(quantized, self._own_indices, optimize="none")
            with self._or_as_it_is():
                self._given = GivenSession.of(quantized, self._nodes, _unoptimized)
                self._fused = GivenSession.of(quantized, self._nodes, _fused) if fused else None

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def run(
        self, names: Sequence[str], feed: Feed, selected: Sequence[np.ndarray], where: str, *, fused: bool
    ) -> tuple[list[Any], list[Any], list[Any] | None]:
        """Outputs of the model as it is, of that with the given indices, and of its fused kernels with these."""
        found = run_session(self._own, [*names, *self._own_indices], feed, where)
        by_node = dict(zip(self._nodes, selected, strict=True))
        for (node, expected), indices in zip(by_node.items(), found[len(names) :], strict=True):
            before, after = (_entries(self._by_name[node], one) for one in (expected, indices))
            self._equal[node] += len(before & after)
            self._count[node] += max(len(before), len(after))
        own = given = found[: len(names)]
        kernels: list[Any] | None = None
        if self._unusable is None:
            with self._or_as_it_is():
                given = self._given.run(names, feed, by_node, where)
                kernels = self._fused.run(names, feed, by_node, where) if fused and self._fused is not None else None
        return own, given, kernels

    @contextmanager
    def _or_as_it_is(self) -> Iterator[None]:
        try:
            yield
        except MachineError:
            raise
        except OnnxqError as error:
            self._unusable = str(error)

    def warnings(self) -> Iterator[str]:
        if self._unusable is not None:
            yield (
                f"what {', '.join(self._nodes)} select was compared as it comes: rows that change places count as "
                f"noise. With the indices of the float model the file does not run: {self._unusable}"
            )
        for check in self.checks():
            if check.agreement < FEW:
                yield (
                    f"{check.op} '{check.node}' selects only {check.agreement:.0%} of what it selects in the float "
                    "model: outputs are compared for what that one selects, and this model shows other rows"
                )

    def checks(self) -> Iterator[SelectionCheck]:
        for node in self._nodes:
            if count := self._count[node]:
                yield SelectionCheck(node, self._by_name[node].op, self._equal[node] / count, count)


def selections_of(original: Graph, quantized: Graph, *, fused: bool) -> Selections | None:
    """None where nothing selects."""
    return Selections(original, quantized, fused=fused) or None


def _unoptimized(graph: Graph) -> ort.InferenceSession:
    return float_session(graph, optimize="none")


def _fused(graph: Graph) -> ort.InferenceSession:
    with temporary_folder() as folder:
        path = Path(folder) / "given.onnx"
        graph.save(path)
        return fused_session(path)[0]


def _entries(node: Node, indices: np.ndarray) -> set[tuple[int, ...]]:
    """What was selected, whatever its order."""
    if node.op == "TopK":  # places along its axis, for each place on the others
        places = np.moveaxis(np.indices(indices.shape), 0, -1)
        places[..., int(node.attrs.get("axis", -1))] = indices
        rows = places.reshape(-1, indices.ndim)
    else:
        rows = indices.T if node.op == "NonZero" else indices
    return {tuple(row) for row in rows.tolist()}
