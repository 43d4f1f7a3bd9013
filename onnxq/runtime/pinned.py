"""Which tensors a session pins, so that onnxruntime runs the same kernels whichever tensors are looked at.

onnxruntime fuses what nobody else reads, a fused kernel rounds differently, and everything behind it differs in its
last bits. So every session pins the same set: all float tensors that nodes of the main graph make, a function of the
graph alone. The set is as large as that because it costs little (between 1 and 5 % of a run on CNNs and transformers),
and because no choice of a smaller one holds for every target and every wish of a user.

Two kinds of tensors are not in the set, and are pinned only where they are looked at: those inside of If, Loop and Scan
bodies, where a pin would cost more than the small operators around it, and those whose type shape inference cannot
tell. Which of them were pinned is part of what values belong to (`pinned_beyond`).
"""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.graph import Graph

PINNED_TYPES = frozenset({"float16", "float32", "float64"})
"""bfloat16 is not among them: onnxruntime has next to no kernels for it, and none that a pin could be."""


def pinned_tensors(graph: Graph) -> list[str]:
    """The tensors that every session for `graph` pins, in the order in which they are made."""
    made = (tensor for node in graph.gs.nodes for tensor in node.outputs if tensor.name)
    return [tensor.name for tensor in made if _is_float(graph, tensor.name) and not graph.is_constant(tensor)]


def pinned_beyond(graph: Graph, tensors: Iterable[str]) -> tuple[str, ...]:
    """Those of `tensors` that are pinned because they are looked at, sorted: values collected under other ones may have
    other bits. Nearly always there are none."""
    always = {*pinned_tensors(graph), *graph.input_names}
    return tuple(sorted({name for name in tensors if name not in always and not graph.is_constant(name)}))


def _is_float(graph: Graph, tensor: str) -> bool:
    dtype = graph.dtype(tensor)
    return dtype is not None and dtype.name in PINNED_TYPES
