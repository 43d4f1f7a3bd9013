"""onnxq's version, and those of the libraries that its numbers depend on."""

from __future__ import annotations

import sys

__version__ = "0.2.0"
"""The version of this package."""

LIBRARIES = ("numpy", "onnx", "onnxruntime", "torch")


def versions() -> dict[str, str]:
    """Name -> version of what this process has computed with: torch only where somebody has loaded it."""
    loaded = {name: sys.modules[name] for name in LIBRARIES if name in sys.modules}
    python = ".".join(map(str, sys.version_info[:3]))
    return {"onnxq": __version__, "python": python, **{name: str(one.__version__) for name, one in loaded.items()}}
