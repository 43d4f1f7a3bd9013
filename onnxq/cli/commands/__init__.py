"""The commands, one file each: `NAME.py` holds the command `onnxq NAME` as the function NAME, or NAME_command."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module

USUAL_ORDER = (
    *("quantize", "qat", "diagnose", "sensitivity", "search", "inspect", "place", "calibrate", "merge", "emit"),
    *("compare", "explain", "simulate", "lint", "strip", "translate", "schema", "list", "demo"),
)
"""As --help shows them; others follow by the alphabet."""


def commands() -> Iterator[tuple[str, Callable[..., None]]]:
    """Name and function of every command."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in (*USUAL_ORDER, *(name for name in names if name not in USUAL_ORDER)):
        module = import_module(f"{__name__}.{name}")
        yield name, getattr(module, name, None) or getattr(module, f"{name}_command")
