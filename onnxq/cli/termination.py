"""SIGTERM ends a command as Ctrl-C does: temporary files are removed, and what a later run can go on from is kept."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

ONCE_SECONDS = 1.0
"""`timeout` sends the signal twice, to the process and to its group: the second one must not disturb the cleaning."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM. Nothing but the command line tells it from Ctrl-C."""


def end_cleanly_when_terminated() -> None:
    """Have SIGTERM raise Terminated in the main thread.

    Not where somebody else has said what the signal does, and not under torchrun: a process that waits for another one
    inside torch would not get to see it, and torchrun ends what is left of its processes in this way.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    owner, last = os.getpid(), -ONCE_SECONDS

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if os.getpid() != owner:  # a fork, such as a worker of a data loader, has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        before, last = last, time.monotonic()
        if last - before >= ONCE_SECONDS:
            raise Terminated

    signal.signal(signal.SIGTERM, end)


def end_undisturbed() -> None:
    """Take no more of these signals: the process is ending because of one, and its last steps remove what is temporary.

    Python gives signals their default meaning back while it ends, so that a second one would cut that short.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
