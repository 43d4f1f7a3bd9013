"""Models of many nodes, loaded and run section by section: onnxruntime takes quadratic time to load one.

Without optimizations 10,000 nodes take 1 s and 30,000 take 7; in sections of 500 they take 0.2 s and 0.6. A section is
a model of its own. It reads what those before it have made, without a copy. Every node is loaded and run all the same,
by the same kernels.

A model is divided only where that changes no number: without optimizations between any two nodes, with them at tensors
that no optimization does away with because the model returns them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from onnxq.graph import Graph
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import ModelInMemory, Optimize, float_model, make_session

if TYPE_CHECKING:
    import onnxruntime as ort

MANY_NODES = 2000
"""Models of fewer load in one piece in hardly more time."""

SECTION_NODES = 500

_PASSED_ON = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL}
    | {TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64}
    | {TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64}
)
"""Element types that numpy has as well."""

_MOST_TWICE = 2**24
"""Bytes of stored values that may be held once more because several sections read them."""


@dataclass
class Section:
    """Consecutive nodes.

    stored   values of the model that they read
    reads    inputs of the model and results of earlier sections that they read
    passes   results that later sections read
    returns  results that the model returns
    last     of `reads`, those that nobody reads afterwards
    """

    nodes: list[onnx.NodeProto]
    stored: dict[str, None] = field(default_factory=dict)
    reads: dict[str, None] = field(default_factory=dict)
    passes: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)


class SectionedSession:
    """Stands in for an `InferenceSession` that is asked to run, and for nothing else."""

    def __init__(self, sections: Sequence[tuple[Section, ort.InferenceSession]], outputs: Sequence[str]) -> None:
        self._sections = sections
        self._outputs = list(outputs)
        made = {name for section, _ in sections for name in section.passes}
        self._inputs = sorted({name for section, _ in sections for name in section.reads} - made)

    def run(self, names: Sequence[str] | None, feed: Feed, run_options: Any = None) -> list[Any]:
        """The outputs `names`, or all of them; may be called by several threads."""
        import onnxruntime as ort

        missing = [name for name in self._inputs if name not in feed]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({sorted(feed)}).")
        wanted = self._outputs if names is None else names
        asked = set(wanted)
        values = {name: ort.OrtValue.ortvalue_from_numpy(np.asarray(feed[name], order="C")) for name in self._inputs}
        found: dict[str, np.ndarray] = {}
        for section, session in self._sections:
            makes = [*section.passes, *(name for name in section.returns if name in asked)]
            if makes:
                makes = list(dict.fromkeys(makes))
                given = {name: values[name] for name in section.reads}
                made = dict(zip(makes, session.run_with_ort_values(makes, given, run_options), strict=True))
                values.update((name, made[name]) for name in section.passes)
                found.update((name, made[name].numpy()) for name in section.returns if name in asked)
            for name in section.last:
                del values[name]
        return [found[name] for name in wanted]


def sectioned_session(
    model: bytes | onnx.ModelProto | ModelInMemory,
    *,
    threads: int | None = None,
    optimize: Optimize = "all",
    config: Mapping[str, str] | None = None,
    what: str = "the model",
) -> SectionedSession | None:
    """A session of sections, for a model in memory; None where one session has to hold the whole model.

    With optimizations it is divided at its outputs alone. Layouts of "all" span any number of nodes, and stay whole.
    """
    if optimize == "all":
        return None
    data = model.data if isinstance(model, ModelInMemory) else model
    weights = model.weights if isinstance(model, ModelInMemory) else {}
    proto = onnx.ModelProto.FromString(data) if isinstance(data, bytes) else data
    outputs = [output.name for output in proto.graph.output]
    divided = divide(proto, None if optimize == "none" else frozenset(outputs), weights)
    if divided is None:
        return None
    # Threads of idle sections would wait for work in loops and take the time of those that have some.
    entries = {"session.intra_op.allow_spinning": "0", **(config or {})}
    sections = [
        (section, make_session(part, threads=threads, optimize=optimize, config=entries, what=what))
        for section, part in zip(divided, _models(proto, divided, weights), strict=True)
    ]
    return SectionedSession(sections, outputs)


def unoptimized_session(
    graph: Graph, further: Sequence[str] = (), *, threads: int | None = None
) -> ort.InferenceSession | SectionedSession:
    """A session without optimizations for a graph, which also returns the main-graph tensors `further`."""
    with float_model(graph, further) as model:
        return unoptimized_session_of(model, threads=threads)


def unoptimized_session_of(
    model: ModelInMemory | Path, *, threads: int | None = None
) -> ort.InferenceSession | SectionedSession:
    """The same for what `float_model` has made of a graph."""
    sections = None if isinstance(model, Path) else sectioned_session(model, threads=threads, optimize="none")
    return sections or make_session(model, threads=threads, optimize="none")


def divide(
    model: onnx.ModelProto, at: Collection[str] | None = None, weights: Mapping[str, np.ndarray] | None = None
) -> list[Section] | None:
    """The sections of a model, between which only tensors of `at` are passed on (None: any of a known plain type).

    `weights` are stored values that the model has apart. None for a model that is small, or cannot be divided.
    """
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    inputs = {info.name: info for info in graph.input}
    if len(graph.node) <= MANY_NODES or model.functions or graph.sparse_initializer or stored.keys() & inputs.keys():
        return None
    apart = weights or {}
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in graph.initializer if tensor.name not in apart):
        return None
    returned = {output.name for output in graph.output}
    types = _types(graph)
    if any(info.type.tensor_type.elem_type not in _PASSED_ON for info in inputs.values()):
        return None
    may_pass = {name for name, kind in types.items() if kind in _PASSED_ON and (at is None or name in at)}

    known = {"", *stored, *inputs}
    read_at: dict[str, int] = {}
    read_by = []
    for number, node in enumerate(graph.node):
        names = list(node.input)
        if bodies := _bodies(node):
            names += [name for name in _read_in_bodies(bodies) if name in known]
        if not known.issuperset(names) or not known.isdisjoint(filter(None, node.output)):
            return None  # not in order, or a name twice: such a model is for onnxruntime to judge
        known.update(node.output)
        read_at.update(dict.fromkeys(names, number))
        read_by.append(names)
    if not returned <= known - {*stored, *inputs}:
        return None

    divided = _cut(graph.node, read_at, may_pass)
    if len(divided) == 1:
        return None
    _connect(divided, read_by, stored, returned)
    held = Counter(name for section in divided for name in section.stored)
    again = {name: count - 1 for name, count in held.items() if count > 1}
    sizes = {name: apart[name].nbytes if name in apart else stored[name].ByteSize() for name in again}
    if sum(count * sizes[name] for name, count in again.items()) > _MOST_TWICE:
        return None
    return divided


def _cut(nodes: Sequence[onnx.NodeProto], read_at: Mapping[str, int], may_pass: Collection[str]) -> list[Section]:
    """The nodes in sections: each ends where enough nodes are in it, and only what may be is passed on."""
    divided, section, open_until = [], Section([]), -1
    for number, node in enumerate(nodes):
        if len(section.nodes) >= SECTION_NODES and number > open_until:
            divided.append(section)
            section = Section([])
        section.nodes.append(node)
        open_until = max((open_until, *(read_at.get(name, -1) for name in node.output if name not in may_pass)))
    return [*divided, section]


def _connect(
    divided: Sequence[Section],
    read_by: Sequence[Sequence[str]],
    stored: Mapping[str, onnx.TensorProto],
    returned: Set[str],
) -> None:
    """Find what each section reads, passes on and returns."""
    reads = iter(read_by)
    last: dict[str, Section] = {}
    for section in divided:
        made = {name for node in section.nodes for name in node.output if name}
        for _ in section.nodes:
            for name in next(reads):
                if name in stored:
                    section.stored[name] = None
                elif name and name not in made:
                    section.reads[name] = None
        section.returns = sorted(made & returned)
        last.update(dict.fromkeys(section.reads, section))
    for name, section in last.items():
        section.last.append(name)
    for section in divided:
        section.passes = [name for node in section.nodes for name in node.output if name in last]


def _models(
    model: onnx.ModelProto, divided: Sequence[Section], weights: Mapping[str, np.ndarray]
) -> Iterator[ModelInMemory]:
    """Each section as a model. What is passed on has a type and no shape: those in a file need not be right."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = {info.name: info for info in model.graph.input}
    types = _types(model.graph)
    for section in divided:
        part = onnx.ModelProto(ir_version=model.ir_version)
        part.opset_import.extend(model.opset_import)
        graph = part.graph
        graph.name = model.graph.name or "section"
        graph.node.extend(section.nodes)
        graph.initializer.extend(stored[name] for name in section.stored)
        for name in section.reads:
            if name in inputs:
                graph.input.append(inputs[name])
            else:
                graph.input.add(name=name).type.tensor_type.elem_type = types[name]
        for name in dict.fromkeys((*section.passes, *section.returns)):
            graph.output.add(name=name)
        yield ModelInMemory(
            part.SerializeToString(), {name: weights[name] for name in section.stored if name in weights}
        )


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    """Tensor -> its element type, as far as it is declared."""
    told = ((info.name, info.type.tensor_type.elem_type) for info in (*graph.output, *graph.value_info))
    return {name: kind for name, kind in told if kind}


def _read_in_bodies(pending: list[onnx.GraphProto]) -> Iterator[str]:
    """Every name that is read inside these bodies, those of the bodies themselves among them."""
    while pending:
        body = pending.pop()
        yield from (output.name for output in body.output)
        for inner in body.node:
            yield from inner.input
            pending += _bodies(inner)


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [
        body
        for a in node.attribute
        if a.type not in _PLAIN
        for body in (*([a.g] if a.HasField("g") else []), *a.graphs)
    ]


_PLAIN = frozenset(
    {AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS}
    | {AttributeProto.STRING, AttributeProto.STRINGS}
)
"""Types of attributes that hold no graph."""
