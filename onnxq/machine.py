"""Faults of the machine told apart from faults of the model: no space, no memory, no permission, no more open files.

Libraries report them as if the model were wrong, or in words of their own. So what they need is tried: a folder is
asked to take a file of that size, files are opened.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from onnxq.errors import MachineError
from onnxq.temporary import PREFIX

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})
_MEMORY = frozenset({errno.ENOMEM})
_OTHER = frozenset({errno.EIO, errno.ESTALE})
_CANNOT_RESERVE = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})


def is_fault_of_machine(error: BaseException) -> bool:
    """Whether an error says something about the machine, and nothing about what is on it."""
    if isinstance(error, MemoryError):
        return True
    faults = _FULL | _FORBIDDEN | _TOO_MANY | _MEMORY | _OTHER
    return isinstance(error, OSError) and error.errno in faults


def refusal(folder: Path, size: int) -> OSError | None:
    """Why `folder` cannot take a new file of `size` bytes, found by trying; None where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            _reserve(stream.fileno(), folder, max(size, 1))
    except OSError as error:
        return OSError(error.errno, error.strerror or str(error), str(folder))
    return None


def _reserve(descriptor: int, folder: Path, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise
    os.write(descriptor, bytes(min(size, 65536)))
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unreadable(paths: Iterable[Path]) -> OSError | None:
    """Why one of the files cannot be opened, through no fault of the file; None where all can."""
    for path in (Path(os.devnull), *paths):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            if is_fault_of_machine(error):
                return error
    return None


def machine_error(error: OSError, what: str, needed: int | None = None) -> MachineError:
    """The error for a user: what could not be done, where, how much is needed and free, and what to do about it."""
    where = "" if error.filename is None else f" in {error.filename}"
    reason = error.strerror or str(error)
    return MachineError(f"{what}: {reason}{where}{_room(error, needed)}. {remedy(error)}")


def remedy(error: OSError) -> str:
    """What to do about a fault of the machine."""
    if error.errno in _TOO_MANY:
        return "Close other programs' files, or allow more of them (ulimit -n)"
    if error.errno in _MEMORY:
        return "Close other programs, or take a machine with more memory"
    temporary = error.filename is not None and _is_temporary(Path(os.fsdecode(error.filename)))
    other = "set TMPDIR to a folder with more room" if temporary else "choose another folder"
    if error.errno in _FULL:
        limit = " (or the limit of file sizes, ulimit -f)" if error.errno == errno.EFBIG else ""
        return f"Make room{limit}, or {other}: the model is not at fault"
    other = "set TMPDIR to a folder that can be written to" if temporary else "choose another folder"
    return f"Allow it, or {other}: the model is not at fault"


def system_message(error: OSError) -> str:
    """An error of the operating system for a user; a fault of the machine with what to do about it."""
    reason = error.strerror or str(error)
    text = reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"
    if error.errno in _FULL | _TOO_MANY | _MEMORY:
        return f"{text}{_room(error, None)}. {remedy(error)}"
    return text


def _room(error: OSError, needed: int | None) -> str:
    """How much is needed and how much is free, as far as known."""
    if error.errno not in _FULL:
        return ""
    parts = [] if needed is None else [f"{needed:,} bytes are needed"]
    folder = None if error.filename is None else _existing(Path(os.fsdecode(error.filename)))
    if folder is not None:
        parts.append(f"{shutil.disk_usage(folder).free:,} bytes are free")
    return f" ({', '.join(parts)})" if parts else ""


def _existing(path: Path) -> Path | None:
    """The innermost folder around a path that is there."""
    return next((folder for folder in (path, *path.absolute().parents) if folder.is_dir()), None)


def _is_temporary(path: Path) -> bool:
    return any(part.startswith(PREFIX) for part in path.parts)
