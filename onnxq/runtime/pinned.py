"""Which tensors a session pins, so that onnxruntime runs the same kernels whichever tensors are looked at.

onnxruntime fuses what nobody else reads, a fused kernel rounds differently, and everything behind it differs in its
last bits. So every session pins the same set: all float tensors that nodes of the main graph make, a function of the
graph alone. The set is as large as that because it costs little (a few percent of a run on CNNs and transformers) and
because no smaller one would hold for every target and every setting of a user.

One fusion rounds nothing: that of a convolution with the Relu or Clip behind it. What that node makes has the same
bits from either kernel, and nothing else reads what the convolution makes. So this is let go where it is not looked at
and another convolution follows (`pinned_beside`), and the runs of a MobileNet take a quarter less. Only infinite values
in the data tell the two kernels apart, by the NaN that they make in channels which fill up a block.

Two kinds of tensors are not in the set, and are pinned only where they are looked at: those inside of If, Loop and Scan
bodies, where a pin would cost more than the small operators around it, and those whose type shape inference cannot
tell. Which of them were pinned is part of what statistics belong to (`pinned_beyond`): those that were collected
beside other ones are collected again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from onnxq.graph import Graph

PINNED_TYPES = frozenset({"float16", "float32", "float64"})
"""bfloat16 is not among them: onnxruntime has next to no kernels for it, and none that a pin could be."""


_KINDS = frozenset(np.dtype(name).type for name in PINNED_TYPES)


def pinned_tensors(graph: Graph) -> list[str]:
    """The tensors that every session for `graph` pins, in the order in which they are made.

    They do not depend on whether somebody has inferred shapes before: where types are missing, that is done on a copy.
    """
    made = _made(graph)
    if any(tensor.dtype is None for tensor in made):
        graph = graph.copy()
        graph.infer_shapes()
        made = _made(graph)
    return [str(tensor.name) for tensor in made if _is_float(tensor) and not graph.is_constant(tensor)]


def pinned_beside(graph: Graph, looked_at: Iterable[str]) -> list[str]:
    """What a session pins in which some tensors are looked at: these, and all others but what nobody would miss."""
    let_go = set(_let_go(graph))
    return list(dict.fromkeys([*(name for name in pinned_tensors(graph) if name not in let_go), *looked_at]))


def _let_go(graph: Graph) -> Iterator[str]:
    """Tensors that are nothing but what a convolution hands to its activation, in front of convolutions alone.

    In which layout onnxruntime computes follows from what stands in front, down to the next convolution, which decides
    for itself: an average of blocked values has another order of sums than one of values that were turned back.
    """
    for node in graph.gs.nodes:
        if node.op != "Conv" or node.domain or graph.is_output(node.outputs[0]):
            continue
        uses = graph.consumers(node.outputs[0])
        if len(uses) != 1 or uses[0].port != 0 or uses[0].node.op not in _EXACT_ACTIVATIONS or uses[0].node.domain:
            continue
        readers = graph.consumers(uses[0].node.outputs[0])
        if readers and all(use.node.op == "Conv" and not use.node.domain and use.port == 0 for use in readers):
            yield str(node.outputs[0].name)


_EXACT_ACTIVATIONS = frozenset({"Relu", "Clip"})
"""They choose among numbers and compute none: what they make has the same bits in every kernel."""


def pinned_beyond(graph: Graph, tensors: Iterable[str]) -> tuple[str, ...]:
    """Those of `tensors` that are pinned because they are looked at, sorted: values collected under other ones may have
    other bits. Nearly always there are none."""
    always = {*pinned_tensors(graph), *graph.input_names}
    return tuple(sorted({name for name in tensors if name not in always and not graph.is_constant(name)}))


def _made(graph: Graph) -> list[Any]:
    return [tensor for node in graph.gs.nodes for tensor in node.outputs if tensor.name]


def _is_float(tensor: Any) -> bool:
    return tensor.dtype is not None and np.dtype(tensor.dtype).type in _KINDS
