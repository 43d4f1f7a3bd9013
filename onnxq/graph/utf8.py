"""Text of a model that is not UTF-8: found before anybody takes it for a name.

ONNX demands UTF-8. Parsing does not check it, and hands such a field over as bytes, which no name in memory can be.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from onnxq.errors import ModelError

_VALUES = frozenset(
    {"raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data"}
)
"""Fields of a tensor that hold its values: no text, and too large to be looked through."""


class _Fields(NamedTuple):
    """The fields of a message in which there may be text."""

    texts: tuple[str, ...]
    lists_of_texts: tuple[str, ...]
    messages: tuple[str, ...]
    lists_of_messages: tuple[str, ...]


def check_text(model: onnx.ModelProto, where: str) -> None:
    """Raise a ModelError that names the first field whose text is not UTF-8."""
    found = _not_text(model)
    if found is not None:
        path, value = found
        raise ModelError(
            f"{where} has a name or text that is not UTF-8 text: {value!r} in the field {path.removeprefix('.')}. "
            "ONNX allows UTF-8 only; rename it, or write the file again with an encoding of UTF-8"
        )


def _not_text(message: Any) -> tuple[str, bytes] | None:
    fields = _fields(type(message))
    for name in fields.texts:
        value = getattr(message, name)
        if type(value) is bytes:
            return f".{name}", value
    for name in fields.lists_of_texts:
        for number, value in enumerate(getattr(message, name)):
            if type(value) is bytes:
                return f".{name}[{number}]", value
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
def _fields(kind: type[Message]) -> _Fields:
    blank: Any = kind()
    names = [field.name for field in kind.DESCRIPTOR.fields if field.name not in _VALUES]
    of_type = {field.name: field.type for field in kind.DESCRIPTOR.fields}
    texts = [name for name in names if of_type[name] == FieldDescriptor.TYPE_STRING]
    messages = [name for name in names if of_type[name] == FieldDescriptor.TYPE_MESSAGE]
    lists = {name for name in names if hasattr(getattr(blank, name), "extend")}
    return _Fields(
        tuple(name for name in texts if name not in lists),
        tuple(name for name in texts if name in lists),
        tuple(name for name in messages if name not in lists),
        tuple(name for name in messages if name in lists),
    )
