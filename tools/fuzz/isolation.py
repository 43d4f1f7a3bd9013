"""One function in a process of its own, which may do anything: raise, crash, hang, fill memory and disk.

A process gets limits on processor time, memory and size of files. Its time is counted in seconds of the processor, so
that nothing depends on what else the machine does; a process that stands still is found by not using any.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import resource
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.fuzz.cases import TEMPORARY
from tools.fuzz.outcomes import Ended

STANDSTILL_SECONDS = 120.0
"""Without using the processor; many times what a busy machine makes a process wait."""

GIBIBYTE = 2**30


@dataclass(frozen=True)
class Limits:
    cpu_seconds: int = 20
    memory_bytes: int = 5 * GIBIBYTE
    file_bytes: int = GIBIBYTE
    standstill_seconds: float = STANDSTILL_SECONDS


def run_isolated(action: Callable[[], int], folder: Path, said: Path, limits: Limits) -> Ended:
    """Run `action` in a fork, in `folder`, with its words written into files of the folder `said`.

    It returns an exit code or raises; `Ended` says what became of it, but for what only the caller knows.
    """
    said.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become(action, folder, said, limits)
    status, used, out_of_time = _wait(child, limits)
    code = os.waitstatus_to_exitcode(status)
    return Ended(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=text_of(said / "stdout"),
        stderr=text_of(said / "stderr"),
        out_of_time=out_of_time,
        cpu_seconds=used,
    )


def _become(action: Callable[[], int], folder: Path, said: Path, limits: Limits) -> None:
    """The life of the forked process; it never returns."""
    code = 3
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _redirect(said)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 3))
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ["TMPDIR"] = str(folder / TEMPORARY)
        tempfile.tempdir = None
        faulthandler.enable()
        faulthandler.register(signal.SIGXCPU, all_threads=True, chain=False)  # says where it hangs; the driver ends it
        code = exit_code(action)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # the fork must not go on with the life of its parent, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(action: Callable[[], int]) -> int:
    """What the interpreter makes of the end of a program, its last rites included."""
    try:
        code = action()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    return code


def _redirect(said: Path) -> None:
    """File descriptors, not only Python's streams: libraries write there too."""
    for number, (path, flags) in enumerate(
        (
            ("/dev/null", os.O_RDONLY),
            (str(said / "stdout"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (str(said / "stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        )
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115, for the life of the process
    sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115


def _wait(child: int, limits: Limits) -> tuple[int, float, bool]:
    """Status, seconds of processor time, and whether it had to be ended. Its whole session is ended with it."""
    handle = os.pidfd_open(child)
    out_of_time = False
    moved, used = time.monotonic(), 0.0
    try:
        while not select.select([handle], [], [], 0.1)[0]:
            now = _cpu_seconds(child)
            if now > used + 0.02:
                moved, used = time.monotonic(), now
            if used > limits.cpu_seconds + 0.1 or time.monotonic() - moved > limits.standstill_seconds:
                out_of_time = True
                os.kill(child, signal.SIGXCPU)  # faulthandler writes where it is
                select.select([handle], [], [], 0.5)
                _end_session(child)
        # Not yet reaped, so that the number of the session still belongs to it.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        _end_session(child)
        _, status, usage = os.wait4(child, 0)
    finally:
        os.close(handle)
    spent = usage.ru_utime + usage.ru_stime
    return status, spent, out_of_time or spent >= limits.cpu_seconds


def _end_session(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
