"""How files get into an output folder: all of them or none, whoever fails or dies on the way, and from one run only.

claim    a run locks the folder (`.onnxq.lock`) from its start to its end: a second one is refused at once.
staging  its files are written and checked in a stage, a hidden folder inside. When all is well, everything that could
         stand in the way is looked at, and the switch (`onnxq.switch`) is made: all files move, or none.
settle   what a killed process has left: a stage with a journal is carried out or undone, one without is removed. Every
         command that reads or writes an output folder does that first.

A stage is locked by its owner (`onnxq.temporary`), so those of live processes are left alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from onnxq.errors import ConfigError, OnnxqError
from onnxq.files import umask
from onnxq.locks import Grip, HeldByOther, LockFile, lock_file
from onnxq.machine import machine_error
from onnxq.switch import NEW, carry_out, commit, is_pending
from onnxq.temporary import OwnedFolder, adopt, is_mine, owned_folders, remove_adopted, remove_stale

T = TypeVar("T")

LOCK = ".onnxq.lock"
STAGE = ".onnxq-stage-"

BELOW = ("improving", "checkpoints", "cache")
"""Folders of unfinished work inside an output folder, in which a kill can leave temporary files too."""

CLEARING_SECONDS = 0.1
"""How long a lock may be in the hands of somebody who only removes it, after a process that has died."""

PATIENCE_SECONDS = 30.0
"""How long to wait for a live process that is moving its files, which takes milliseconds."""


@dataclass(frozen=True)
class OutputFolder:
    """A folder that no other onnxq writes into until the block of `claim` ends."""

    path: Path


@contextmanager
def claim(folder: Path | OutputFolder, only: str | None = None) -> Iterator[OutputFolder]:
    """Be the only one who writes into a folder, which is made if need be; one that is claimed already is passed on.

    `only` is for who writes that file and those that belong to it, beside others who write other files. ConfigError
    where somebody else is at it. A folder that was made for it is gone again if nothing was put into it.
    """
    if isinstance(folder, OutputFolder):
        yield folder
        return
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"the output must be a folder, {folder} is a file")
    made: list[Path] = []
    try:
        held = _locked(folder, LOCK if only is None else f".{only}{LOCK}", made)
        if isinstance(held, HeldByOther):
            number = "" if held.process is None else f" (process {held.process})"
            raise ConfigError(
                f"another onnxq{number} is writing into {folder if only is None else folder / only}: wait until it has "
                "ended, or choose another place with -o"
            )
        try:
            clear_away(folder)
            yield OutputFolder(folder)
        finally:
            held.release()
    finally:
        with suppress(OSError):  # the first one that is not empty stays, and so do those around it
            for path in made:
                path.rmdir()


def _locked(folder: Path, name: str, made: list[Path]) -> LockFile | HeldByOther:
    """The lock of a folder; folders that have to be made for it are added to `made`, the innermost first."""
    deadline = time.monotonic() + CLEARING_SECONDS
    while True:
        made += [path for path in (folder, *folder.parents) if not path.exists() and path not in made]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = lock_file(folder / name)
        except FileNotFoundError:
            if folder.is_dir():
                raise
            continue  # a run that had made the folder, and failed, has just removed it
        if isinstance(held, LockFile) or time.monotonic() > deadline:
            return held
        time.sleep(0.005)


def clear_away(folder: Path | None = None) -> None:
    """Remove what dead processes have left among the temporary files and in a folder, and `settle` it.

    Every run does it at its start, and so may the parent of a process that has crashed.
    """
    remove_stale()
    if folder is None:
        return
    settle(folder)
    for place in (folder, *(folder / name for name in BELOW)):
        if place == folder or not place.is_symlink():
            remove_stale(place)
    for path in folder.glob(f"*{LOCK}"):
        if path.name.startswith(".") and is_mine(path, stat.S_ISREG):
            held = lock_file(path)
            if isinstance(held, LockFile):
                held.release(remove=held.grip is Grip.HELD)


@contextmanager
def staging(output: OutputFolder, inputs: Sequence[Path] = (), *, first: str = "") -> Iterator[Path]:
    """A hidden folder; its files move into the output folder when the block ends well, and vanish when it does not.

    All of them move or none. None takes the place of one of `inputs` or of a folder: that is a ConfigError. `first` is
    the name of the file that moves before the others.
    """
    stage = OwnedFolder(STAGE, output.path)
    try:
        os.chmod(stage.path, 0o777 & ~umask())  # its files will have been written in an ordinary folder
        new = stage.path / NEW
        new.mkdir()
        yield new
        names = sorted((path.name for path in new.iterdir()), key=lambda name: (name != first, name))
        targets = [output.path / name for name in names]
        refuse_inputs(inputs, targets)
        refuse_folders(targets)
        if names:
            commit(stage.path, names)
            carry_out(stage.path)
    finally:
        if is_pending(stage.path):  # neither to be finished nor to be undone: the next command tries again
            stage.leave()
        else:
            stage.remove()


def refuse_inputs(inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
    """ConfigError if a file that will be written is one that is read."""
    for target in outputs:
        for given in inputs:
            if target.exists() and given.exists() and os.path.samefile(target, given):
                raise ConfigError(
                    f"the output would overwrite the input {given}: {target.name} is one of the files that are "
                    "written. Choose another folder with -o"
                )


def refuse_folders(outputs: Sequence[Path]) -> None:
    """ConfigError if there is a folder where a file will be written."""
    for target in outputs:
        if target.is_dir() and not target.is_symlink():
            raise ConfigError(
                f"{target} is a folder, and a file of that name is to be written: move it away, or choose another "
                "output folder with -o"
            )


def settle(folder: Path) -> None:
    """Finish or undo what killed processes have begun to deliver into a folder, and remove what they have left.

    A live process that is just moving its files is waited for. ConfigError where it takes too long, or where the rest
    of a dead one is not this user's to finish.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    for stage in owned_folders(folder, STAGE):
        while (lock := adopt(stage)) is None and is_pending(stage):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"files are being moved into {folder}, and it takes long. If the process has died (it was another "
                    "user's, or the file system has no locks), run the same command as that user, or make the files "
                    "anew in another folder"
                )
            time.sleep(0.01)
        if lock is not None:
            try:
                if is_pending(stage):
                    carry_out(stage)
            except OSError as error:
                lock.release(remove=False)
                what = f"a run into {folder} was killed while it moved its files, and that cannot be finished now"
                raise machine_error(error, what) from error
            except BaseException:
                lock.release(remove=False)
                raise
            remove_adopted(stage, lock)


def read_together(folder: Path, read: Callable[[], T]) -> T:
    """What `read` reads from files of one run: again from the start, if another run has delivered meanwhile."""
    while True:
        settle(folder)
        before = _stamp(folder)
        try:
            found = read()
        except OnnxqError:
            if _stamp(folder) == before:
                raise
            continue
        if _stamp(folder) == before:
            return found


def _stamp(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What changes when any file of a folder is replaced."""
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:  # what is not there will be told by who reads it
        for entry in entries:
            if entry.is_file():
                status = entry.stat()
                found[entry.name] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found
