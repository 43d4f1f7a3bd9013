"""Free dimensions whose name is none, such as "?", in the place of all names.

onnxruntime takes dimensions of one name for equal, and lets tensors of equal shapes use one buffer. Where exporters
call every free dimension "?", the float model may run all the same, as each output has a buffer of its own, and fails
as soon as a node stands behind an output. A placeholder that is there once does no harm, and stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import onnx

_PLACEHOLDER = re.compile(r"[\W\d_]*|none|null|unk(nown)?_*", re.IGNORECASE)


def is_placeholder(name: str) -> bool:
    """Whether the name of a dimension says no more than that its size is free."""
    return _PLACEHOLDER.fullmatch(name) is not None


def placeholders_filled(
    shape: Sequence[int | str | None], known: Sequence[int | str | None] | None
) -> list[int | str | None]:
    """A shape that somebody wants, with the model's own dimensions where it has placeholders."""
    own = known if known is not None and len(known) == len(shape) else [None] * len(shape)
    return [old if isinstance(new, str) and is_placeholder(new) else new for old, new in zip(own, shape, strict=True)]


def shared_placeholders(graph: onnx.GraphProto) -> dict[str, int]:
    """Placeholders that stand for more than one dimension of a file, bodies included, and for how many."""
    counts = Counter(
        dim.dim_param
        for info in _declarations(graph)
        for dim in info.type.tensor_type.shape.dim
        if dim.dim_param and is_placeholder(dim.dim_param)
    )
    return {name: count for name, count in counts.items() if count > 1}


def without_names(info: onnx.ValueInfoProto, names: Collection[str]) -> onnx.ValueInfoProto:
    """The declaration itself, or a copy whose dimensions of these names have neither a name nor a size."""
    if not any(dim.dim_param in names for dim in info.type.tensor_type.shape.dim):
        return info
    told = onnx.ValueInfoProto()
    told.CopyFrom(info)
    for dim in told.type.tensor_type.shape.dim:
        if dim.dim_param in names:
            dim.ClearField("value")
    return told


def _declarations(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    pending = [graph]
    while pending:
        scope = pending.pop()
        yield from (*scope.input, *scope.output, *scope.value_info)
        for node in scope.node:
            for attribute in node.attribute:
                pending.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)
