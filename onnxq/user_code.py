"""Functions that a user names on the command line: module:function, or path/to/file.py:function."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError, OnnxqError, did_you_mean
from onnxq.plugins import run_file


def find_function(text: str, what: str, kind: type[OnnxqError] = ConfigError) -> Callable[..., Any]:
    """The function that `text` names; `what` says in errors what it is for, `kind` is their class."""
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        raise kind(f"{what} '{text}' is no function: write module:function or path/to/file.py:function")
    with current_folder_importable():
        if place.endswith(".py"):
            module = run_file(Path(place), what)
        else:
            try:
                module = importlib.import_module(place)
            except ImportError as error:
                raise kind(
                    f"{what} '{text}': cannot import '{place}' ({error}). It is neither a file here nor a Python "
                    "module that can be found from the current folder"
                ) from error
    function = getattr(module, name, None)
    if not callable(function):
        near = did_you_mean(name, [key for key in vars(module) if callable(getattr(module, key))])
        raise kind(f"{what} '{text}': '{place}' has no function '{name}'.{near}")
    return function  # type: ignore[no-any-return]


@contextmanager
def current_folder_importable() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextmanager
def users_errors(what: str, kind: type[OnnxqError] = ConfigError) -> Iterator[None]:
    """Errors inside the user's code as one sentence that names the line; the cause stays attached for Python."""
    try:
        yield
    except OnnxqError:
        raise
    except (Exception, SystemExit) as error:  # code that ends the process would end it without a word
        last = traceback.extract_tb(error.__traceback__)[-1]
        # A call that did not even begin, such as for want of an argument, has no line in the user's code.
        inside = Path(last.filename).is_relative_to(Path(__file__).parent)
        where = "" if inside else f" ({last.filename}, line {last.lineno})"
        raise kind(f"{what} failed: {type(error).__name__}: {error}{where}") from error
