"""Files that appear whole or not at all."""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def replace_file(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file under a temporary name beside `path`, then move it into place; on failure nothing is left."""
    path = path.resolve()  # a link stays a link, and what it points to is replaced
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def json_number(value: float) -> float | str:
    """JSON has no infinity and no NaN: they become strings that float() reads."""
    return value if math.isfinite(value) else str(value)


def write_json(path: Path, data: Any) -> None:
    """Write `data` as indented JSON; NaN and infinity are refused: `json_number` makes text of them."""
    encoder = json.JSONEncoder(indent=2, allow_nan=False, ensure_ascii=False)

    def write(stream: BinaryIO) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
        text.writelines(encoder.iterencode(data))  # piece by piece: the text of a large table is never all in memory
        text.write("\n")
        text.detach()

    replace_file(path, write)
