"""Some rows of activations: what layers read at a few positions of the samples, for measuring errors of layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxq.graph import Graph
from onnxq.improvement import Task
from onnxq.runtime.tap import Tap, memory_groups

MOST_ROWS = 128


def sample_rows(graph: Graph, axes: Mapping[str, int], task: Task, what: str) -> dict[str, np.ndarray]:
    """Tensor -> float32 rows [positions, channels], drawn from all samples alike; `axes` has the axis of the channels.

    Tensors that no run can return, or that have no values in any, are left out.
    """
    first = next(iter(task.samples), None)
    if first is None or not axes:
        return {}
    each = -(-MOST_ROWS // len(task.samples))
    kept: dict[str, list[np.ndarray]] = {name: [] for name in axes}
    passes = memory_groups(graph, list(axes), first, task.memory_limit)
    for number, names in enumerate(passes):
        tap = Tap(graph, names)
        random = np.random.default_rng(task.seed)
        for done, feed in enumerate(task.samples):
            task.progress(what, number * len(task.samples) + done, len(passes) * len(task.samples))
            for name, values in tap.run(feed).items():
                if name not in tap.flat:
                    rows = np.moveaxis(values, axes[name], -1).reshape(-1, values.shape[axes[name]])
                    chosen = random.permutation(len(rows))[:each]
                    kept[name].append(rows[chosen].astype(np.float32))
    return {name: np.concatenate(parts) for name, parts in kept.items() if any(map(len, parts))}
