"""The zoo: named builders of small hostile models, each with samples and the result that it must give.

`ZOO` maps a name to a function without arguments; calling it gives the `Case`, the same one every time.
"""

from __future__ import annotations

import importlib

from tests.zoo_graphs.case import ZOO, Case, runnable

FAMILIES = (
    "convolution",
    "opsets",
    "dense",
    "attention",
    "precision",
    "control_flow",
    "functions",
    "names",
    "values",
    "activations",
    "moving",
    "structure",
    "recurrent",
    "integers",
    "normalization",
    "quantized",
)

for _family in FAMILIES:
    importlib.import_module(f"tests.zoo_graphs.{_family}")

__all__ = ["ZOO", "Case", "runnable"]
