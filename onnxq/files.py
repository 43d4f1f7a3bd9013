"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO

from onnxq.temporary import temporary_file


def replace_file(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file under a temporary name beside `path`, then move it into place; on failure nothing is left."""
    path = path.resolve()  # a link stays a link, and what it points to is replaced
    descriptor, temporary = temporary_file(path)
    try:
        # Locked until it has its name, where the system moves open files: nobody takes it for one of a dead process.
        with os.fdopen(os.dup(descriptor) if os.name == "posix" else descriptor, "wb") as stream:
            write(stream)
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if os.name == "posix":
            os.close(descriptor)


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def json_number(value: float) -> float | str:
    """JSON has no infinity and no NaN: they become strings that float() reads."""
    return value if math.isfinite(value) else str(value)


def write_json(path: Path, data: Any) -> None:
    """Write `data` as indented JSON; NaN and infinity are refused: `json_number` makes text of them.

    A function, in the first two levels, stands for what it returns, which is made when it is written.
    """

    def write(stream: BinaryIO) -> None:
        for piece in _json_pieces(data, "\n", _PIECES_DEEP):
            stream.write(piece.encode("utf-8"))
        stream.write(b"\n")

    replace_file(path, write)


_PIECES_DEEP = 2
"""The values at this depth are written one by one: the text of a large table is never all in memory."""


def _json_pieces(value: Any, pad: str, deep: int) -> Iterator[str]:
    """The text of a value in pieces; `pad` ends a line and indents the next one."""
    if callable(value):
        value = value()
    if not (deep and isinstance(value, dict | list | tuple) and value):
        yield _json_text(value, pad)
        return
    inner = f"{pad}  "
    is_table = isinstance(value, dict)
    before = f"{'{' if is_table else '['}{inner}"
    for item in value:
        yield f"{before}{_json_key(item)}: " if is_table else before
        yield from _json_pieces(value[item] if is_table else item, inner, deep - 1)
        before = f",{inner}"
    yield f"{pad}{'}' if is_table else ']'}"


def _json_text(value: Any, pad: str) -> str:
    """What `json.dumps(value, indent=2)` says, which takes several times as long: its indenting is not in C."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int or (kind is float and math.isfinite(value)):
        return repr(value)
    if value is None or kind is bool:
        return _JSON_WORDS[value]
    if isinstance(value, dict) and value:
        inner = f"{pad}  "
        items = [f"{_json_key(key)}: {_json_text(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{pad}}}"
    if isinstance(value, list | tuple) and value:
        inner = f"{pad}  "
        return f"[{inner}{f',{inner}'.join([_json_text(item, inner) for item in value])}{pad}]"
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


_JSON_WORDS = {None: "null", True: "true", False: "false"}


def _json_key(key: Any) -> str:
    return encode_basestring(key) if isinstance(key, str) else json.dumps({key: 0}, allow_nan=False)[1:-4]
