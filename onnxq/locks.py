"""Locks of files that end with their process, however it ends: what is locked has an owner who is alive.

They are those of the operating system: flock, or msvcrt on Windows. A process that was forked shares the locks of its
parent, one that was started anew does not. On a file system without locks nobody can be told to be alive: `take` says
UNKNOWN there, and whoever asks has to leave things alone.
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})


class Grip(Enum):
    """What came of taking a lock."""

    HELD = "held"
    BUSY = "busy"
    UNKNOWN = "unknown"


def take(descriptor: int) -> Grip:
    """Lock an open file for this process, without waiting."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return Grip.BUSY
        if error.errno in _NO_LOCKS:
            return Grip.UNKNOWN
        raise
    return Grip.HELD


@dataclass(frozen=True)
class LockFile:
    """A file that this process has locked, or could not lock for want of locks (UNKNOWN)."""

    path: Path
    descriptor: int
    grip: Grip

    def release(self, *, remove: bool = True) -> None:
        """Give the lock back; the file is removed first, by the one who holds it: see `lock_file`."""
        if sys.platform == "win32":  # which does not remove open files
            os.close(self.descriptor)
            if remove:
                self.path.unlink(missing_ok=True)
            return
        try:
            if remove:
                self.path.unlink(missing_ok=True)
        finally:
            os.close(self.descriptor)


@dataclass(frozen=True)
class HeldByOther:
    """Somebody else has locked the file; `process` is the number that stands in it."""

    process: int | None


def lock_file(path: Path) -> LockFile | HeldByOther:
    """Make a file, lock it and write the number of this process into it.

    Who releases a lock removes its file while holding it. So a lock counts only if its file still has that name:
    otherwise it was removed between opening and locking, and is made anew.
    """
    while True:
        descriptor = _open(path)
        grip = take(descriptor)
        if grip is Grip.BUSY:
            with os.fdopen(descriptor, "rb") as stream:
                text = stream.read(20).strip()
            return HeldByOther(int(text) if text.isdigit() else None)
        if is_at(path, descriptor):
            _sign(descriptor)
            return LockFile(path, descriptor, grip)
        os.close(descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _open(path: Path) -> int:
    no_links = getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | no_links, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        try:
            return os.open(path, os.O_RDONLY | no_links)  # of another user, or on a disk that is mounted for reading
        except FileNotFoundError:
            raise error from None


def _sign(descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except OSError as error:
        # Opened for reading, or the disk is full: the number is for messages only, the lock is there without it.
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
