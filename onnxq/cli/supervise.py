"""A parent that outlives what native code does to the process, and says what happened.

onnx, onnxruntime and torch are native code, and some damaged models end the process inside them. The commands
therefore run in a child; the parent waits, passes signals on, and ends as the child did. A child that a fault has
ended becomes a message and exit code 2. Only on Linux: it needs to know who sent a signal, and to take the child along
when it is killed itself.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import FrameType

from onnxq.cli.crash import BREAKDOWNS, killed, native_crash
from onnxq.cli.termination import ONCE_SECONDS

_PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)

_FROM_KERNEL = 0x80  # SI_KERNEL: Ctrl-C, Ctrl-Z and the end of a terminal reach the whole group, the child included

_LOOK_AGAIN_SECONDS = 1.0
"""A thread that a library has started could take the signal of the child's end: the parent looks by itself as well."""

_OUTPUT = frozenset({"-o", "--out"})
_QUICK = frozenset({"-h", "--help", "--version", "--install-completion", "--show-completion"})

COMPLETING = "_ONNXQ_COMPLETE"
"""In the environment where a shell asks how a line may go on."""


def supervise() -> None:
    """Go on in a child; in the parent, wait for it and end as it did.

    Not where there is nothing to protect (help), where somebody else watches (torchrun, a debugger), nor where the
    process cannot be forked safely.
    """
    if not _is_possible():
        return
    trace = os.memfd_create("onnxq-trace")
    watched = {number for number in _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN}
    watched |= {signal.SIGCHLD, signal.SIGCONT}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it would not be told how its child ended
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy's, which restarts them after a fork
        child = os.fork()
    if child == 0:
        _become_child(parent, trace)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    status = _wait(child, watched)
    _end(status, trace)


def _is_possible() -> bool:
    return (
        sys.platform == "linux"
        and hasattr(os, "memfd_create")
        and "TORCHELASTIC_RUN_ID" not in os.environ
        and COMPLETING not in os.environ
        and not _QUICK.intersection(sys.argv[1:])
        and sys.gettrace() is None
        and threading.active_count() == 1
        and threading.current_thread() is threading.main_thread()
    )


# ---- the child -------------------------------------------------------------------------------------------------------


def _become_child(parent: int, trace: int) -> None:
    """End with the parent, write down where a fault happens, and take an interrupt that came twice for one."""
    end_with_parent = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(end_with_parent, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
    faulthandler.enable(FileIO(trace, "w", closefd=False), all_threads=False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _interrupt_once()


def _interrupt_once() -> None:
    """A signal that is sent to a group reaches the child twice: directly, and from its parent."""
    last = -ONCE_SECONDS

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before >= ONCE_SECONDS:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)


# ---- the parent ------------------------------------------------------------------------------------------------------


def _wait(child: int, watched: set[signal.Signals]) -> int:
    """Pass signals on until the child has ended; returns its status. A child that stops, stops its parent."""
    while True:
        received = signal.sigtimedwait(watched, _LOOK_AGAIN_SECONDS)
        number = signal.SIGCHLD if received is None else received.si_signo
        if number == signal.SIGCONT:
            os.kill(child, signal.SIGCONT)
        elif received is not None and number != signal.SIGCHLD:
            if received.si_code != _FROM_KERNEL:
                os.kill(child, number)
            continue
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell sees a stopped job
            os.kill(child, signal.SIGCONT)
        elif ended:
            return status


def _end(status: int, trace: int) -> None:
    """End the parent as the child has ended; without the interpreter's own end, which belongs to the child."""
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    if number in BREAKDOWNS:
        _clear_away()
        _say(native_crash(number, _read(trace)))
        os._exit(2)
    if number == signal.SIGKILL:
        _clear_away()
        _say(killed())
        os._exit(128 + number)
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # a signal that ends nobody by default


def _clear_away() -> None:
    """Remove what the child has left among the temporary files and in the folder that it was to write to."""
    from onnxq.errors import OnnxqError
    from onnxq.output_folder import clear_away

    try:
        clear_away(output_folder(sys.argv[1:]))
    except (OSError, OnnxqError):  # a full or lost disk, a journal that cannot be read: the next run tells
        return


def output_folder(words: Sequence[str]) -> Path | None:
    """The folder that a command line says files are to be written into, or that of the file; None where it says none.

    The words are those of a command that has ended, and may be none of ours: nothing is refused here.
    """
    said = None
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word in _OUTPUT and following:
            said = Path(following)
        elif word.startswith("--out="):
            said = Path(word.removeprefix("--out="))
        elif word.startswith("-o") and len(word) > len("-o"):
            said = Path(word.removeprefix("-o"))
    if said is None:
        return None
    folder = said if said.is_dir() else said.parent
    return folder if folder.is_dir() else None


def _read(trace: int) -> str:
    os.lseek(trace, 0, os.SEEK_SET)
    return os.read(trace, 2**20).decode(errors="replace")


def _say(message: str) -> None:
    """An error on stderr, below a progress bar that the child cannot remove any more."""
    from onnxq.cli.console import print_error

    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h\n")  # the cursor, which such bars hide
    print_error(message)
    sys.stderr.flush()
