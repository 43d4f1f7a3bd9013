"""Files that appear whole or not at all."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable
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
    """Write `data` as indented JSON; NaN and infinity are refused: `json_number` makes text of them."""
    encoder = json.JSONEncoder(indent=2, allow_nan=False, ensure_ascii=False)

    def write(stream: BinaryIO) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
        text.writelines(encoder.iterencode(data))  # piece by piece: the text of a large table is never all in memory
        text.write("\n")
        text.detach()

    replace_file(path, write)
