"""Errors a user can act on: what was wrong, where, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable


class OnnxqError(Exception):
    """Base of every error onnxq raises on purpose; the CLI prints it without a traceback and exits with `exit_code`."""

    exit_code = 2


class ModelError(OnnxqError):
    """The model file cannot be read, or holds something that onnxq cannot keep intact."""


class DataError(OnnxqError):
    """The calibration data does not fit the model, or there is none."""


class ConfigError(OnnxqError):
    """A configuration key, value, name or command-line argument is wrong."""


class SpecError(OnnxqError):
    """A quantization spec, plan or parameter table is not legal."""


class UnsupportedError(OnnxqError):
    """The request is well-formed but cannot be fulfilled for this model or target."""


class MachineError(OnnxqError):
    """The machine lacks space, memory, permissions or file handles; the model and the data are not at fault."""


class CheckFailed(OnnxqError):
    """A check of onnxq's own output failed: the files must not be used."""

    exit_code = 1


class InternalError(OnnxqError):
    """A fault of onnxq itself, which the user can do nothing about but report."""

    exit_code = 3


class OnnxqWarning(UserWarning):
    """What the caller of a run should know; its report says the same, and its files have passed their checks."""


def one_line_error(error: Exception) -> str:
    """An error in one line: its text where it was raised on purpose, else with the place that a report of it needs."""
    if isinstance(error, OnnxqError):
        return str(error)
    import traceback  # here, because `import onnxq` is to stay quick
    from pathlib import Path

    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def did_you_mean(word: str, choices: Iterable[str], *, most: int = 3) -> str:
    """Return " Did you mean 'a' or 'b'?" for the nearest choices, or an empty string."""
    choices = list(choices)
    import difflib  # here, because it takes as long as everything else that `import onnxq` loads

    near = difflib.get_close_matches(word, choices, n=most, cutoff=0.55)
    if not near:
        lowered = {choice.lower(): choice for choice in choices}
        near = [lowered[w] for w in difflib.get_close_matches(word.lower(), list(lowered), n=most, cutoff=0.55)]
    if not near:
        return ""
    return " Did you mean " + " or ".join(f"'{name}'" for name in near) + "?"
