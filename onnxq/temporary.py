"""Temporary folders and files whose owner can be seen to be alive, so that those of dead processes can be removed.

Every folder holds a locked file (`onnxq.locks`) for as long as its owner lives, every temporary file is locked itself.
A kill leaves them behind unlocked, and `remove_stale` finds them by their names. Only what belongs to this user is
removed, and nothing through links. On file systems without locks everything is left alone.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxq.locks import Grip, HeldByOther, LockFile, is_at, lock_file, take

PREFIX = "onnxq-tmp-"
"""In front of the names of temporary folders; results that the caller has to delete are called `onnxq-...` too."""

OWNER = ".owner"
"""The file that the owner of a folder has locked."""

_RANDOM = "[a-z0-9_]{8}"
_MARK = ".onnxq-tmp-"
_FILE = re.compile(rf"\..+{re.escape(_MARK)}{_RANDOM}")


class OwnedFolder:
    """A new folder that this process owns; it is removed with `remove`, or together with this object."""

    def __init__(self, prefix: str = PREFIX, inside: Path | None = None) -> None:
        place = tempfile.gettempdir() if inside is None else inside
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            self._forgotten = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
            lock = self._own()
            if lock is not None:
                break
        self._lock: LockFile | None = lock

    def remove(self) -> None:
        """Remove the folder with all that is in it; twice changes nothing."""
        self._release()
        self._forgotten()

    def leave(self) -> None:
        """Give up owning it: it stays for whoever comes next."""
        self._forgotten.detach()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            lock, self._lock = self._lock, None
            lock.release(remove=False)

    def _own(self) -> LockFile | None:
        """The lock; None where somebody took the new folder for one of a dead process, and clears it away."""
        try:
            lock = lock_file(self.path / OWNER)
        except FileNotFoundError:
            lock = HeldByOther(None)
        except BaseException:
            self._forgotten()
            raise
        return None if isinstance(lock, HeldByOther) else lock


@contextmanager
def temporary_folder(prefix: str = PREFIX, inside: Path | None = None) -> Iterator[Path]:
    """A folder below `inside` (else where the system has its temporary files) that is gone when the block ends."""
    folder = OwnedFolder(prefix, inside)
    try:
        yield folder.path
    finally:
        folder.remove()


def adopt(folder: Path) -> LockFile | None:
    """Own a folder whose owner is gone; None where he is alive, or nobody can know, or it is another user's."""
    if not is_mine(folder):
        return None
    try:
        lock = lock_file(folder / OWNER)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return None
    if isinstance(lock, HeldByOther):
        return None
    if lock.grip is Grip.HELD:
        return lock
    lock.release(remove=False)
    return None


def remove_adopted(folder: Path, lock: LockFile) -> None:
    """Remove a folder that was adopted; what cannot be removed stays for the next one."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release(remove=False)


def remove_stale(inside: Path | None = None, prefix: str = PREFIX) -> None:
    """Remove the folders and files that dead processes have left in `inside` (else among the temporary files)."""
    place = Path(tempfile.gettempdir()) if inside is None else inside
    for folder in owned_folders(place, prefix):
        lock = adopt(folder)
        if lock is not None:
            remove_adopted(folder, lock)
    for path in _listed(place, _FILE):
        _remove_unlocked(path)


def owned_folders(inside: Path, prefix: str = PREFIX) -> list[Path]:
    """The folders that have been made with `prefix`, whether their owners are alive or not."""
    return _listed(inside, re.compile(re.escape(prefix) + _RANDOM))


def temporary_file(path: Path) -> tuple[int, Path]:
    """A new file beside `path`, locked for as long as its descriptor is open."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}{_MARK}", dir=path.parent)
        # Somebody who clears away may have come between: then it is his, and gone.
        if take(descriptor) is not Grip.BUSY and is_at(Path(name), descriptor):
            return descriptor, Path(name)
        os.close(descriptor)


def _listed(inside: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        with os.scandir(inside) as entries:
            return sorted(Path(entry.path) for entry in entries if pattern.fullmatch(entry.name))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def is_mine(path: Path, is_kind: Callable[[int], bool] = stat.S_ISDIR) -> bool:
    """Whether a path is a folder (or another kind), no link, and of this user."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return is_kind(found.st_mode) and (os.name != "posix" or found.st_uid == os.geteuid())


def _remove_unlocked(path: Path) -> None:
    if not is_mine(path, stat.S_ISREG):
        return
    try:
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # gone meanwhile, or not to be opened: not worth a word
        return
    try:
        if take(descriptor) is Grip.HELD and is_at(path, descriptor):
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
