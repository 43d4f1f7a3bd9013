"""What a user gets to read when the process breaks down: one message, and a file with everything a developer needs."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from onnxq.errors import InternalError

INTERNAL_ERROR = InternalError.exit_code
"""Exit code for a fault of onnxq itself."""

BREAKDOWNS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted",
    signal.SIGFPE: "arithmetic fault",
    signal.SIGILL: "illegal instruction",
    **({signal.SIGBUS: "bus error"} if hasattr(signal, "SIGBUS") else {}),
}
"""Signals by which a process ends through a fault of native code."""

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)


def internal_error(error: BaseException) -> str:
    """The message for a fault of onnxq, expected or not; its traceback goes into a file."""
    path = _keep("".join(traceback.format_exception(error)))
    if isinstance(error, InternalError):
        return f"{error}. Please report it with the model, the command and {path}"
    first = str(error).strip().partition("\n")[0]
    return (
        f"internal error in onnxq: {type(error).__name__}{f': {first}' if first else ''}. This is a bug. "
        f"Please report it with the model, the command and {path}"
    )


def memory_error(error: MemoryError) -> str:
    detail = str(error).strip().partition("\n")[0]
    return (
        f"there is not enough memory{f': {detail}' if detail else ''}. Give fewer or smaller samples, use "
        "--workers 1, or take a machine with more memory; check that no dimension of the model is enormous"
    )


def recursion_error() -> str:
    return (
        "something in the input is nested too deeply to be followed. Check the model, the configuration and the files "
        "given for lists, objects or bodies inside one another, and write them with fewer levels"
    )


def native_crash(number: int, trace: str) -> str:
    """The message for a process that native code has ended; `trace` is what faulthandler wrote on the way."""
    name = BREAKDOWNS.get(signal.Signals(number), "unknown signal")
    frames = [(match["file"], match["function"]) for match in _FRAME.finditer(trace)]
    own = next((_module(file, function) for file, function in frames if _is_own(file)), None)
    library = next((found for file, _ in frames[:1] if (found := _library(file)) is not None), None)
    while_doing = f" while {library or 'a library'} was working for {own}" if own else ""
    kept = f" with the model, the command and {_keep(trace)}" if trace else " with the model and the command"
    return (
        f"the process was ended by signal {number} ({name}){while_doing}. The model or the data has something that "
        f"{library or 'a library below onnxq'} does not survive. Check the model with "
        f"onnx.checker and onnxruntime, and export it again. Please report it{kept}"
    )


def killed() -> str:
    return (
        "the process was killed (signal 9); most often memory ran out. Give fewer or smaller samples, use --workers 1 "
        "or --memory-limit, or take a machine with more memory"
    )


def _keep(text: str) -> str:
    """Write a traceback to a file of its own in the folder for temporary files; returns how to refer to it."""
    try:
        descriptor, path = tempfile.mkstemp(prefix="onnxq-crash-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{sys.argv}\n{text}")
        return path
    except OSError:  # a full or missing folder for temporary files: the text itself is all there is
        return f"this:\n{text}"


def _is_own(file: str) -> bool:
    return Path(file).is_relative_to(Path(__file__).parents[1]) and not Path(file).is_relative_to(Path(__file__).parent)


def _module(file: str, function: str) -> str:
    inside = Path(file).relative_to(Path(__file__).parents[2]).with_suffix("")
    return f"{'.'.join(inside.parts)}.{function}"


def _library(file: str) -> str | None:
    """The package that a file of the site's libraries belongs to."""
    parts = Path(file).parts
    places = [number for number, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    return parts[places[-1] + 1].removesuffix(".py") if places and places[-1] + 1 < len(parts) else None
