"""How many samples a comparison runs at the same time, and with how many threads each.

A run with one thread costs half the processor time of a run with two, which wait for each other: so every core has
samples of its own, as far as there are samples and memory. The sums inside of a kernel have one order either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from onnxq.graph import Graph
from onnxq.runtime.tap import default_memory_limit, known_sizes
from onnxq.runtime.workers import available_cores


class Pace(NamedTuple):
    """`workers` samples at a time, in sessions with `threads` threads for each run (None: those of onnxruntime).

    `run_bytes` is the size of all that a run of the float model computes, as far as it is known.
    """

    workers: int
    threads: int | None
    run_bytes: int = 0


ONE_BY_ONE = Pace(1, None)


def pace_for(graph: Graph, shapes: Mapping[str, Sequence[int]], samples: int) -> Pace:
    """The pace for a float model with known shapes and what was made of it, on samples whose inputs have `shapes`."""
    cores = available_cores()
    names = [str(tensor.name) for node in graph.gs.nodes for tensor in node.outputs if tensor.name]
    feed = {name: np.broadcast_to(np.uint8(0), shape) for name, shape in shapes.items()}
    # All that a run computes, though most of it is given back on the way: for each of the two models.
    held = sum(known_sizes(graph, names, feed).values())
    workers = max(1, min(cores, samples, default_memory_limit() // max(1, 2 * held)))
    return Pace(workers, max(1, cores // workers), held)
