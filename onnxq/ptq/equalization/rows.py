"""Some rows of activations: what layers read at a few positions of the samples, for measuring errors of layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.method import Task
from onnxq.runtime.tap import Tap, memory_groups

MOST_ROWS = 128


def sample_rows(graph: Graph, axes: Mapping[str, int], task: Task, what: str) -> dict[str, np.ndarray]:
    """Tensor -> float32 rows [positions, channels], drawn from all samples alike; `axes` has the axis of the channels.

    Rows that are not finite are left out, and so are tensors without any rows, or that no run can return.
    """
    first = next(iter(task.samples), None)
    if first is None or not axes:
        return {}
    each = -(-MOST_ROWS // len(task.samples))
    kept: dict[str, list[np.ndarray]] = {name: [] for name in axes}
    passes = memory_groups(graph, list(axes), first, task.memory_limit)
    for number, names in enumerate(passes):
        # All sessions pin the tensors of all passes, so that the limit of memory changes no bit.
        tap = Tap(graph, names, pinned=axes, arranged=len(passes) > 1)
        random = np.random.default_rng(task.seed)
        for done, feed in enumerate(task.samples):
            task.progress(what, number * len(task.samples) + done, len(passes) * len(task.samples))
            for name, values in tap.run(feed).items():
                if name not in tap.flat:
                    rows = np.moveaxis(values, axes[name], -1).reshape(-1, values.shape[axes[name]])
                    chosen = rows[random.permutation(len(rows))[:each]].astype(np.float32)
                    kept[name].append(chosen[np.isfinite(chosen).all(axis=1)])
    return {name: np.concatenate(parts) for name, parts in kept.items() if any(map(len, parts))}


def unknown_lines(reads: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A line for each node that reads a tensor of which no values are known; `reads` has the tensor of each node."""
    return [f"'{node}' reads '{name}', which has no finite values" for node, name in reads.items() if name not in known]
