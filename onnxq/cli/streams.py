"""The standard streams of the process: closed ones, full disks, readers that have gone, and every character."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from typing import TextIO


def open_closed_streams() -> None:
    """Let output that was closed (`>&-`) go nowhere, as into /dev/null.

    The numbers are taken as well: the next file that is opened would have them, and libraries write there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")


def _stream(number: int, mode: str) -> TextIO:
    return open(number, mode, encoding="utf-8", closefd=False)  # type: ignore[return-value]


def accept_every_character() -> None:
    """Print escapes for names that the terminal's encoding lacks instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def finish_output(code: str | int | None) -> str | int | None:
    """Write what is still waiting, and return the exit code: 2 where the output could not be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try once more at its end, and complain
        if error.errno == errno.EPIPE:  # a reader that has seen enough
            return code
        from onnxq.cli.console import print_error

        print_error(f"standard output: {error.strerror}")
        return 2
    return code
