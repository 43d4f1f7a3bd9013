"""The same as check.py, without integer kernels: OpenVINO computes every quantizer on its own, as the file says.

Integer kernels round in other places and, with 8-bit weights, saturate on some processors; this is what the file means.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import check
import numpy as np
import openvino


class NodeByNode:
    """A core whose compiled models keep the operators of the file."""

    def __init__(self) -> None:
        self._core = openvino.Core()

    def read_model(self, path: Path) -> Any:
        return self._core.read_model(path)

    def compile_model(self, model: Any, device: str, properties: dict[str, str]) -> Any:
        return self._core.compile_model(model, device, {**properties, "LP_TRANSFORMS_MODE": "NO"})


def main(samples: Path, models: list[Path]) -> dict[str, Any]:
    held, core = np.load(samples), NodeByNode()
    return {"models": {path.name: check.check(core, path, held) for path in models}}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])))
