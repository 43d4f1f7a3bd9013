"""Changes of what a model takes and gives: inputs with a fixed shape or value, tensors inside that become outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxq.errors import ConfigError
from onnxq.graph.declare import declared_type, set_dimensions
from onnxq.graph.graph import Graph
from onnxq.graph.placeholders import placeholders_filled

Dimension = int | str | None


def fix_input_shape(graph: Graph, name: str, shape: Sequence[int | str]) -> dict[str, Dimension]:
    """Give an input another shape where its own is open; what shares a named dimension with it follows.

    A placeholder such as "?" leaves a dimension as it is. A name that gets two different sizes stands for none of them,
    and is no name of any dimension afterwards. Returns what has come in the place of names: after shape inference,
    `redeclare_outputs` tells it of the outputs.
    """
    tensor = graph.tensor(name)
    known: Sequence[Dimension] | None = tensor.shape
    wanted = placeholders_filled(shape, known)
    if known is not None and len(known) != len(wanted):
        raise ConfigError(
            f"input '{name}' has {len(known)} dimensions {_listed(known)}, the shape {list(shape)} has {len(wanted)}"
        )
    for number, (old, new) in enumerate(zip(known or wanted, wanted, strict=True)):
        if isinstance(new, int) and new < 1:
            raise ConfigError(f"input '{name}': dimension {number} must be at least 1, got {new}")
        if isinstance(old, int) and new != old:
            raise ConfigError(
                f"input '{name}' has size {old} in dimension {number}, not {new}: its shape is {_listed(known)}"
            )
    sizes: dict[str, set[Dimension]] = {}
    for old, new in zip(known or (), wanted, strict=False):
        if isinstance(old, str):
            sizes.setdefault(old, set()).add(new)
    renamed: dict[str, Dimension] = {
        old: new.pop() if len(new) == 1 else None for old, new in sizes.items() if new != {old}
    }
    tensor.shape, tensor.info = wanted, None
    for scope in graph.scopes():
        for variable in _variables(scope):
            if variable is tensor or variable.shape is None:
                continue
            if any(dim in renamed for dim in variable.shape if isinstance(dim, str)):
                variable.shape = [_renamed(dim, renamed) for dim in variable.shape]
                variable.info = None
    return renamed


def redeclare_outputs(graph: Graph, renamed: Mapping[str, Dimension]) -> None:
    """Let the declarations of outputs follow fixed inputs: with sizes that are known now, or else with new names."""
    for output in graph.gs.outputs:
        info = graph.gs.output_declarations.get(output.name)
        declared = None if info is None else declared_type(info)[1]
        if info is None or declared is None:
            continue
        known = output.shape if output.shape is not None and len(output.shape) == len(declared) else declared
        shape = [
            size if isinstance(size, int) and (dim is None or dim in renamed) else _renamed(dim, renamed)
            for dim, size in zip(declared, known, strict=True)
        ]
        if shape != declared:
            told = onnx.ValueInfoProto()
            told.CopyFrom(info)
            set_dimensions(told.type.tensor_type, shape)
            graph.gs.output_declarations[output.name] = told


def _renamed(dim: Dimension, renamed: Mapping[str, Dimension]) -> Dimension:
    return renamed.get(dim, dim) if isinstance(dim, str) else dim


def input_to_constant(graph: Graph, name: str, value: Any) -> None:
    """Make an input of the model a constant; the model does not ask for it any more."""
    tensor = graph.tensor(name)
    kind, shape = graph.dtype(name), tensor.shape
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(value, dtype=kind)
        kept = _kept(value, values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"input '{name}' cannot have this value: {error}") from None
    if not kept:
        raise ConfigError(f"input '{name}' is {kind}, which cannot hold its value {value!r}")
    if shape is not None:
        fixed = [dim for dim in shape if isinstance(dim, int)]
        if values.ndim == 0 and len(fixed) == len(shape):
            values = np.full(fixed, values)
        fits = values.ndim == len(shape) and all(
            dim == size for dim, size in zip(shape, values.shape, strict=False) if isinstance(dim, int)
        )
        if not fits:
            raise ConfigError(f"input '{name}' has shape {_listed(shape)}, its value has {list(values.shape)}")
    constant = graph.add_constant(name, values)
    graph.redirect(tensor, constant)
    graph.gs.inputs = [item for item in graph.gs.inputs if item is not tensor]
    graph.origins.tensor_became(name, constant.name)


def add_output(graph: Graph, name: str) -> None:
    """Return a tensor of the main graph as well; one that is returned already stays where it is."""
    tensor = graph.tensor(name)
    if any(tensor is output for output in graph.gs.outputs):
        return
    if graph.is_constant(tensor):
        raise ConfigError(f"'{name}' is a constant, so it needs no output of the model")
    if graph.home_of(tensor) is not graph.gs:
        raise ConfigError(f"'{name}' is inside the body of an If, Loop or Scan and cannot be an output of the model")
    graph.gs.outputs.append(tensor)


def _kept(value: Any, values: np.ndarray) -> bool:
    """Whether numbers are the same in the type of an input: 0.5 is no integer, 1e9 is too large for float16."""
    given = np.asarray(value)
    if values.dtype.kind in "iub":
        return np.array_equal(values, given)
    return np.array_equal(np.isinf(values.astype(np.float64)), np.isinf(given.astype(np.float64)))


def _variables(scope: Any) -> list[Any]:
    made = [tensor for node in scope.nodes for tensor in node.outputs]
    return [tensor for tensor in (*scope.inputs, *made) if isinstance(tensor, gs.Variable)]


def _listed(shape: Sequence[Dimension] | None) -> list[Dimension]:
    return ["?" if dim is None else dim for dim in shape or ()]
