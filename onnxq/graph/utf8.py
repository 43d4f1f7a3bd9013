"""Text of a model that is not UTF-8: found before anybody takes it for a name.

ONNX demands UTF-8. Parsing does not check it, and hands such a field over as bytes, which no name in memory can be.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import onnx
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnxq.errors import ModelError

_VALUES = frozenset({"raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data"})
"""Fields of a tensor that hold its values: no text, and too large to be looked through."""


class _Fields(NamedTuple):
    """The fields of a message in which there may be text."""

    texts: tuple[str, ...]
    lists_of_texts: tuple[str, ...]
    messages: tuple[str, ...]
    lists_of_messages: tuple[str, ...]


_PLAIN_KINDS = frozenset(
    getattr(onnx.AttributeProto, kind) for kind in ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
)
_PLAIN = _Fields(("name", "ref_attr_name", "doc_string"), (), (), ())
"""Of the many fields of an attribute, those that one of these kinds can have; its strings are bytes to ONNX."""


def check_text(model: onnx.ModelProto, where: str) -> None:
    """Raise a ModelError that names the first field whose text is not UTF-8."""
    found = None if _is_surely_text(model) else _not_text(model)
    if found is not None:
        path, value = found
        raise ModelError(
            f"{where} has a name or text that is not UTF-8 text: {value!r} in the field {path.removeprefix('.')}. "
            "ONNX allows UTF-8 only; rename it, or write the file again with an encoding of UTF-8"
        )


_COPIED_PER_PART = 2**13
"""Bytes for each node and initializer up to which a second copy of a model takes less time than a look at its parts."""

_LARGEST_COPY = 2**26
"""Bytes of a model that are worth a second copy of it for a moment."""


def _is_surely_text(model: onnx.ModelProto) -> bool:
    """Whether a parser that refuses other text takes the model: quicker than a look at every field without weights.

    ONNX is defined in the second version of protobuf, whose parser takes any bytes for text; that of the third does
    not, and reads the same files.
    """
    parts = len(model.graph.node) + len(model.graph.initializer)
    if model.ByteSize() > min(_LARGEST_COPY, _COPIED_PER_PART * parts):
        return False
    try:
        _strict_model().FromString(model.SerializeToString())
    except DecodeError:
        return False
    return True


@functools.cache
def _strict_model() -> Any:
    """The class of models whose parser refuses text that is not UTF-8."""
    described = descriptor_pb2.FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(described)
    described.syntax = "proto3"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(onnx.ModelProto.DESCRIPTOR.full_name))


def _not_text(message: Any) -> tuple[str, bytes] | None:
    kind: Any = type(message)
    fields = _PLAIN if kind is onnx.AttributeProto and message.type in _PLAIN_KINDS else _fields(kind)
    for name in fields.texts:
        value = getattr(message, name)
        if type(value) is bytes:
            return f".{name}", value
    for name in fields.lists_of_texts:
        values = getattr(message, name)
        if bytes in map(type, values):
            return next((f".{name}[{number}]", value) for number, value in enumerate(values) if type(value) is bytes)
    for name in fields.lists_of_messages:
        for number, part in enumerate(getattr(message, name)):
            found = _not_text(part)
            if found is not None:
                return f".{name}[{number}]{found[0]}", found[1]
    for name in fields.messages:
        if message.HasField(name):
            found = _not_text(getattr(message, name))
            if found is not None:
                return f".{name}{found[0]}", found[1]
    return None


@functools.cache
def _fields(kind: Any) -> _Fields:
    blank = kind()
    fields = [field for field in kind.DESCRIPTOR.fields if field.name not in _VALUES]
    texts = [field.name for field in fields if field.type == field.TYPE_STRING]
    messages = [field.name for field in fields if field.type == field.TYPE_MESSAGE]
    lists = {field.name for field in fields if hasattr(getattr(blank, field.name), "extend")}
    return _Fields(
        tuple(name for name in texts if name not in lists),
        tuple(name for name in texts if name in lists),
        tuple(name for name in messages if name not in lists),
        tuple(name for name in messages if name in lists),
    )
