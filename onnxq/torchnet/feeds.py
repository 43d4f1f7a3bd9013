"""Which input of a run is not what the model declares: asked only after a run has failed, so that it costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from onnxq.graph import Graph
from onnxq.torchnet.values import Value, numpy_dtype_of


def wrong_input(graph: Graph, inputs: Sequence[Value]) -> str | None:
    """A sentence on the first input that cannot be right; None if all can be.

    The length of the first axis is not checked: models that were exported for one sample often take more.
    """
    for name, value in zip(graph.input_names, inputs, strict=True):
        if isinstance(value, list) and all(isinstance(part, Tensor | np.ndarray) for part in value):
            continue  # a sequence
        if isinstance(value, list | tuple | int | float):
            return f"input '{name}' is a {type(value).__name__}; give a torch tensor, or a numpy array to `run`"
        if not isinstance(value, Tensor | np.ndarray):
            continue  # what torch says of it is as good
        wanted, found = graph.dtype(name), numpy_dtype_of(value)
        if isinstance(value, np.ndarray) and found.kind in "fiub":
            return f"input '{name}' is a numpy array; give a torch tensor, or call `run`, which takes both"
        if wanted is not None and wanted.kind not in "OSU" and found != wanted:
            return f"input '{name}' is {found}; the model wants {wanted}"
        shape = graph.shape(name)
        if shape is not None and not _fits(tuple(value.shape), shape):
            sizes = ", ".join("?" if size is None else str(size) for size in shape)
            return f"input '{name}' has the shape {tuple(value.shape)}; the model wants ({sizes})"
    return None


def _fits(shape: tuple[int, ...], declared: Sequence[int | str | None]) -> bool:
    if len(shape) != len(declared):
        return False
    pairs = list(zip(shape, declared, strict=True))[1:]
    return all(size == wanted for size, wanted in pairs if isinstance(wanted, int))
