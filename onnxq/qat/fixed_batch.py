"""Models that were exported for a batch of a fixed length: can they be trained with other lengths?"""

from __future__ import annotations

import torch

from onnxq.graph import Graph
from onnxq.qat.batches import TrainingData
from onnxq.qat.evaluate import evaluating
from onnxq.qat.net import QatNet

RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How much the outputs of samples may change with their number: torch adds up in another order."""


def fixed_batch(graph: Graph) -> int | None:
    """The length that the inputs say their batch has; None where it is free, or not the same for all."""
    lengths = {(graph.shape(name) or (None,))[0] for name in graph.input_names}
    (length,) = lengths if len(lengths) == 1 else (None,)
    return length if isinstance(length, int) else None


def takes_rows(net: QatNet, data: TrainingData, length: int, rows: int) -> bool:
    """Whether a batch of `rows` gives each sample the outputs that it has in a batch of `length`.

    The length may be built in, such as by a Reshape to [1, 512]: then larger batches fail, or mix samples.
    """
    batch = next(iter(data.ordered(rows))).part(0, rows)
    with evaluating(net), torch.no_grad():
        try:
            together = net.run(batch.inputs)
        except (RuntimeError, ValueError, IndexError, TypeError):  # torch's words for shapes that do not fit
            return False
        alone = net.run(batch.part(0, length).inputs)
    for name, values in together.items():
        first = alone[name]
        if values.ndim == 0 or values.shape[0] != batch.rows or values.shape[1:] != first.shape[1:]:
            return False
        size = float(first.abs().max()) if first.numel() else 0.0
        if not torch.allclose(values[:length].double(), first.double(), rtol=RELATIVE, atol=ABSOLUTE * size):
            return False
    return True
