"""What all tables of parameters have in common: which tensors they list, and the real range of a quantizer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.types import PerBlock, PerChannel, Placement, QParams, QParamsTable, QuantPlan
from onnxq.types.granularity import resolve_axis

MODEL_SUFFIX = "_deploy_model.onnx"
"""The float model that tables belong to is called `<name>_deploy_model.onnx`."""


class Row(NamedTuple):
    """One quantizer of a plan with its parameters; `role` as in `rows`."""

    role: str
    tensor: str
    placement: Placement
    qparams: QParams

    @property
    def low(self) -> np.ndarray:
        """The lowest real value that the quantizer lets pass, float64, one for each scale."""
        return real_range(self.qparams)[0]

    @property
    def high(self) -> np.ndarray:
        return real_range(self.qparams)[1]


def rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable, *, role: str = "activation") -> Iterator[Row]:
    """The quantizers of a role in plan order: "activation" means every tensor computed at run time.

    "weight" means constants other than biases. Tied tensors are listed too, with the parameters they share.
    """
    for placement in plan:
        constant = graph.is_constant(placement.tensor)
        kind = "activation" if not constant else "bias" if placement.role == "bias" else "weight"
        if kind == role:
            yield Row(kind, placement.tensor, placement, qparams[placement.tensor])


def rows_of(graph: Graph, plan: QuantPlan, qparams: QParamsTable, *roles: str) -> Iterator[Row]:
    """The quantizers of several roles, one role after the other."""
    for role in roles:
        yield from rows(graph, plan, qparams, role=role)


def real_range(qparams: QParams) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest real value, float64: scale * (qmin - zero_point), scale * (qmax - zero_point) of integers."""
    scale = qparams.scale.astype(np.float64)
    low, high = qparams.spec.ends
    zero_point = qparams.zero_point.astype(np.float64)
    ends = scale * (low - zero_point), scale * (high - zero_point)
    return (np.minimum(*ends), np.maximum(*ends)) if qparams.spec.signed_scale else ends


def broadcast(bound: np.ndarray, shape: tuple[Any, ...], parameters: QParams) -> np.ndarray:
    """A number for each scale, as it broadcasts against a tensor of this shape; one for all stays as it is.

    Sizes are asked for per block only: for channels the rank is enough.
    """
    granularity = parameters.spec.granularity
    if bound.ndim == 0:
        return bound
    if isinstance(granularity, PerChannel):
        axis = resolve_axis(granularity.axis, len(shape))
        return bound.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    if isinstance(granularity, PerBlock):
        axis = resolve_axis(granularity.axis, len(shape))
        return np.repeat(bound, granularity.size, axis=axis).take(np.arange(shape[axis]), axis)
    return bound


# ---- writing ---------------------------------------------------------------------------------------------------------


def plain(values: np.ndarray) -> Any:
    """A number or nested lists of numbers, each with the fewest digits that read back to the same value."""
    if values.ndim == 0:
        return float(str(values[()]))
    return [plain(part) for part in values]


def without_spaces(name: str, kind: str) -> str:
    """A name as it may stand in a table whose columns are separated by spaces."""
    if not name or any(character.isspace() for character in name):
        raise UnsupportedError(
            f"{kind} {name!r} cannot stand in the table: its columns are separated by spaces, and the name is empty or "
            "holds one; rename it in the model"
        )
    return name


def derived_key(key: str, taken: bool, owner: str) -> str:
    """A key that a format makes out of another name, such as `<node>_weights`; one that is taken is refused."""
    if taken:
        raise UnsupportedError(
            f"the table needs an entry '{key}' for '{owner}', but something else in the model is called '{key}'; "
            "rename one of them"
        )
    return key


# ---- reading back ----------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[str]:
    """The lines of a table as they were written: names may hold other characters that Python breaks lines at."""
    text = path.read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n") if text else []


def missing_and_extra(file: str, found: Collection[str], wanted: Collection[str]) -> Iterator[str]:
    """A line for every entry that is not there, and for every one that should not be."""
    for entry in sorted(set(wanted) - set(found)):
        yield f"{file}: '{entry}' is missing"
    for entry in sorted(set(found) - set(wanted)):
        yield f"{file}: '{entry}' is not quantized, and stands in the table"


def differs(read: object, wanted: object, tolerance: float) -> bool:
    """Whether numbers read from a file differ from those that should stand there by more than `tolerance` (relative).

    Both may be numbers or arrays; another number of entries is a difference, and so is what is no number at all.
    """
    try:
        one = np.asarray(read, np.float64).reshape(-1)
    except (TypeError, ValueError):
        return True
    other = np.asarray(wanted, np.float64).reshape(-1)
    if one.shape != other.shape:
        return True
    return bool(np.any(~(np.abs(one - other) <= tolerance * np.maximum(np.abs(other), np.finfo(np.float32).tiny))))
