"""`onnxq.prepare` is the function; what was imported from a module of that name is in `onnxq.session.prepare`."""

from __future__ import annotations

import warnings
from typing import Any

from onnxq.session import prepare as _new_home


def __getattr__(name: str) -> Any:
    found = getattr(_new_home, name)
    warnings.warn("onnxq.prepare is now onnxq.session.prepare", DeprecationWarning, stacklevel=2)
    return found
