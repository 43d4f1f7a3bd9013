"""Rows that a model selects by its data: what follows is compared for the same rows.

A detector that ends in TopK gives its 300 best boxes in the order of their scores. Two scores that are nearly equal
change places by any rounding, and every row behind them moves: compared as they come, such outputs have no decibels
left where nothing is wrong. With NonMaxSuppression or NonZero even their number differs. So the quantized model runs
with the indices that the float model has selected, and its values for these rows are compared; how many of the indices
it selects by itself are the same ones is a figure of its own.

Outputs that are made of indices alone (a class, the place of a peak) are those of the model itself. Where a size in the
model follows from its data in any other way, nothing is given: rows of two models would not belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.errors import MachineError, OnnxqError
from onnxq.graph import Graph, Node, bodies
from onnxq.graph.ancestors import ancestors
from onnxq.graph.operator_kinds import DECIDED, LAYERS
from onnxq.runtime.feeds import Feed
from onnxq.runtime.sections import unoptimized_session
from onnxq.runtime.session import run_session
from onnxq.temporary import temporary_folder
from onnxq.verify.kernels import fused_session
from onnxq.verify.report import SelectionCheck

if TYPE_CHECKING:
    import onnxruntime as ort

INDICES: Mapping[str, int] = {"NonMaxSuppression": 0, "NonZero": 0, "TopK": 1}
"""Operators that select -> the output with the indices."""

_SIZED_BY_VALUES = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
_TAKEN_BY_VALUES = frozenset(
    ("Gather", "GatherElements", "GatherND", "OneHot", "Scatter", "ScatterElements", "ScatterND")
)
"""What is decided inside of these is which values to take, not how many."""

FEW = 0.25
"""Of the same entries: less is worth a warning. Neighbours of nearly equal scores take turns in any quantized model."""

Selected = Mapping[str, np.ndarray]
"""Node -> the indices that it has selected."""

Chosen = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Node -> the indices that it has selected in the float model, and those of the quantized model."""

MakeSession = Callable[[Graph, Sequence[str]], "ort.InferenceSession"]
"""A session of a graph, which also returns some of its tensors."""


def selecting_nodes(graph: Graph) -> tuple[str, ...]:
    """Nodes of the main graph that select by what weighted layers compute, and by whose indices others go on.

    None where other sizes follow from the data too.
    """
    with graph.unchanging():
        found = [
            node
            for node in graph.nodes()
            if node.op in INDICES
            and not node.domain
            and graph.scope_of(node) is graph.gs
            and len(node.outputs) > INDICES[node.op]
            and any(graph.consumers(tensor) for tensor in node.outputs)
            and _is_computed(graph, node.inputs, ())
        ]
        names = tuple(str(node.name) for node in found)
        return () if not names or _has_other_sizes(graph, names) else names


def _is_computed(graph: Graph, tensors: Sequence[Any], given: Sequence[str]) -> bool:
    """Whether a weighted layer stands in front of tensors, so that rounding may change them; `given` nodes do not."""
    pending, seen = list(tensors), set()
    while pending:
        maker = graph.producer(pending.pop())
        if maker is None or maker.name in seen or maker.name in given or maker.op in ("Shape", "Size"):
            continue
        if maker.op in LAYERS or bodies(maker):
            return True
        seen.add(maker.name)
        pending += maker.inputs
    return False


def _has_other_sizes(graph: Graph, given: Sequence[str]) -> bool:
    """Whether rounding may change how large something is, beside what is given."""
    for node in graph.nodes():
        if node.domain or node.name in given:
            continue
        ports = node.inputs if node.op in _SIZED_BY_VALUES else _deciding(node)
        if _is_computed(graph, ports, given):
            return True
    # How many a TopK selects is a size; what NonMaxSuppression and NonZero select is given with it.
    return any(_is_computed(graph, _deciding(graph.node(name)), ()) for name in given)


def _deciding(node: Node) -> list[Any]:
    if node.op in _TAKEN_BY_VALUES:
        return []
    return [node.inputs[port] for port in DECIDED.get(node.op, ()) if port < len(node.inputs)]


def indices_of(graph: Graph, node: str) -> str:
    """The tensor with the indices that a node selects."""
    found = graph.node(node)
    return str(found.outputs[INDICES[found.op]].name)


def with_given_indices(graph: Graph, nodes: Sequence[str]) -> tuple[Graph, dict[str, str]]:
    """A copy that takes the indices of these nodes as inputs, and node -> input; nodes that it has not are left out.

    The nodes stay, and select for themselves. The values of a TopK are then those at the given indices.
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


def _of_indices_alone(graph: Graph, inputs: Sequence[str]) -> frozenset[str]:
    """Outputs of a model with given indices in which nothing else that it computes is left."""
    given = set(inputs)
    found = set()
    for name in graph.output_names:
        pending, seen, read = [graph.tensor(name)], set(), set()
        while pending:
            tensor = pending.pop()
            maker = graph.producer(tensor)
            if maker is None:
                read |= set() if graph.is_constant(tensor) else {str(tensor.name)}
            elif maker.name not in seen and maker.op not in ("Shape", "Size"):
                seen.add(maker.name)
                pending += maker.inputs
        if read and read <= given:
            found.add(name)
    return frozenset(found)


@dataclass(frozen=True)
class GivenSession:
    """A session of a model that is given the indices of its selecting nodes.

    inputs   node -> input that takes its indices
    own      a session of the model as it is, for the outputs `by_itself`; None where there are none
    """

    session: ort.InferenceSession
    inputs: Mapping[str, str]
    own: ort.InferenceSession | None = None
    by_itself: frozenset[str] = frozenset()

    def run(self, names: Sequence[str], feed: Feed, selected: Selected, where: str) -> list[Any]:
        given = {tensor: selected[node] for node, tensor in self.inputs.items()}
        found = run_session(self.session, names, {**feed, **given}, where)
        if self.own is None:
            return found
        as_it_is = dict(zip(self.by_itself, run_session(self.own, list(self.by_itself), feed, where), strict=True))
        return [as_it_is.get(name, value) for name, value in zip(names, found, strict=True)]

    @classmethod
    def of(cls, graph: Graph, nodes: Sequence[str], make: MakeSession, further: Sequence[str] = ()) -> GivenSession:
        """A session by `make`, of the graph itself where nothing selects; it also returns the tensors `further`."""
        if not nodes:
            return cls(make(graph, further), {})
        changed, inputs = with_given_indices(graph, nodes)
        alone = _of_indices_alone(changed, list(inputs.values()))
        return cls(make(changed, further), inputs, make(graph, ()) if alone else None, alone)


class Selections:
    """A quantized model that is given what the float model selects, and what it would have selected."""

    def __init__(self, original: Graph, quantized: Graph, *, fused: bool, threads: int | None = None) -> None:
        """`fused` asks for the kernels that onnxruntime chooses too; `threads` are those of a run."""
        selecting = selecting_nodes(original)
        there = all(
            quantized.has_node(name) and quantized.node(name).op == original.node(name).op for name in selecting
        )
        self._nodes = selecting if there else ()
        self.indices = [indices_of(original, name) for name in self._nodes]
        # Behind another selection, indices count in an order of its own.
        self._comparable = {
            name: original.node(name) for name in self._nodes if not self._is_behind_another(original, name)
        }
        self._own_indices = [indices_of(quantized, name) for name in self._comparable]
        self._equal = dict.fromkeys(self._comparable, 0)
        self._count = dict.fromkeys(self._comparable, 0)
        self._fused: GivenSession | None = None
        self.kernels_refused: str | None = None
        if self._nodes:
            self._given = GivenSession.of(quantized, self._nodes, partial(_unoptimized, threads), self._own_indices)
            if fused:
                try:
                    self._fused = GivenSession.of(quantized, self._nodes, partial(_fused, threads))
                except MachineError:
                    raise
                except OnnxqError as error:
                    self.kernels_refused = str(error)

    def _is_behind_another(self, original: Graph, name: str) -> bool:
        read = [str(tensor.name) for tensor in original.node(name).inputs if tensor.name]
        return not ancestors(original, *read).isdisjoint(self._nodes)

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def run(
        self, names: Sequence[str], feed: Feed, selected: Sequence[np.ndarray], where: str
    ) -> tuple[list[Any], Chosen]:
        """Outputs for the given indices, and what the model would have selected itself.

        Outputs of indices alone are the model's own.
        """
        by_node = dict(zip(self._nodes, selected, strict=True))
        found = self._given.run([*names, *self._own_indices], feed, by_node, where)
        pairs = zip(self._comparable, found[len(names) :], strict=True)
        return found[: len(names)], {name: (by_node[name], own) for name, own in pairs}

    def count(self, chosen: Chosen) -> None:
        """Take in what was selected on one more sample."""
        for name, (given, own) in chosen.items():
            node = self._comparable[name]
            if _sorts(node, given):
                continue
            before, after = _entries(node, given), _entries(node, own)
            self._equal[name] += _common(before, after)
            self._count[name] += max(len(before), len(after))

    def run_fused(
        self, names: Sequence[str], feed: Feed, selected: Sequence[np.ndarray], where: str
    ) -> list[Any] | None:
        """The same with the kernels that onnxruntime chooses; None where it refuses the model with given indices."""
        if self._fused is None:
            return None
        return self._fused.run(names, feed, dict(zip(self._nodes, selected, strict=True)), where)

    def warnings(self) -> Iterator[str]:
        if self.kernels_refused is not None:
            yield (
                "what this processor's kernels make of the file was not compared: onnxruntime's optimizer refuses it "
                f"with given indices: {self.kernels_refused}"
            )
        for check in self.checks():
            if check.agreement < FEW:
                yield (
                    f"{check.op} '{check.node}' selects only {check.agreement:.0%} of what it selects in the float "
                    "model: outputs are compared for what that one selects, and this model shows other rows"
                )

    def checks(self) -> Iterator[SelectionCheck]:
        for name, node in self._comparable.items():
            if count := self._count[name]:
                yield SelectionCheck(name, node.op, self._equal[name] / count, count)


def selections_of(original: Graph, quantized: Graph, *, fused: bool, threads: int | None = None) -> Selections | None:
    """None where nothing selects."""
    return Selections(original, quantized, fused=fused, threads=threads) or None


def _sorts(node: Node, indices: np.ndarray) -> bool:
    """Whether a TopK has taken the first of everything along its axis, which is all of it: it sorts."""
    if node.op != "TopK" or not indices.size:
        return False
    placed = np.moveaxis(indices, int(node.attrs.get("axis", -1)), -1)
    return bool((np.sort(placed, axis=-1) == np.arange(placed.shape[-1])).all())


def _unoptimized(threads: int | None, graph: Graph, further: Sequence[str]) -> ort.InferenceSession:
    return unoptimized_session(graph, further, threads=threads)


def _fused(threads: int | None, graph: Graph, further: Sequence[str]) -> ort.InferenceSession:
    with temporary_folder() as folder:
        path = Path(folder) / "given.onnx"
        graph.save(path)
        return fused_session(path, threads=threads)[0]


def _entries(node: Node, indices: np.ndarray) -> np.ndarray:
    """What was selected, a row for each entry."""
    if node.op == "TopK":  # places along its axis, for each place on the others
        places = np.moveaxis(np.indices(indices.shape), 0, -1)
        places[..., int(node.attrs.get("axis", -1))] = indices
        return places.reshape(-1, indices.ndim)
    return indices.T if node.op == "NonZero" else indices


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """How many rows two arrays have in common, whatever their order; no row is in one of them twice."""
    if not one.size or not other.size:
        return 0
    sizes = np.maximum(one.max(axis=0), other.max(axis=0)) + 1
    first, second = (np.ravel_multi_index(tuple(rows.T), tuple(sizes)) for rows in (one, other))
    return len(np.intersect1d(first, second, assume_unique=True))
