"""AMD: the DPUs of Vitis AI and the NPUs of Ryzen AI, what positions their shifts allow, and how they compute."""

from __future__ import annotations

from onnxq.types.dialect import DIALECTS, Dialect

DIALECTS.add(
    "vitis",
    Dialect(
        "Vitis AI",
        module="onnxq.targets.amd.dialect",
        variables=("quantize_strategy", "strategy"),
        summary="Vitis AI's quantize strategy: pof2s, fs, tqt, or a file.",
        argument="NAME_OR_FILE",
        example="pof2s",
    ),
)
