"""Quark's own MX fake-quantizer, in torch on the CPU; prints one JSON object.

mx.py FILE.npz      for every NAME/input with NAME/element and NAME/rule: run fake_quantize_mx along the last axis in
                    blocks of 32, and write NAME/result to FILE_quark.npz
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from quark.torch.kernel.hw_emulation.hw_emulation_interface import fake_quantize_mx

BLOCK = 32


def main(path: Path) -> dict[str, object]:
    given = dict(np.load(path))
    names = sorted(key.removesuffix("/input") for key in given if key.endswith("/input"))
    results = {}
    for name in names:
        x = torch.from_numpy(given[f"{name}/input"])
        rule, element = str(given[f"{name}/rule"]), str(given[f"{name}/element"])
        found = fake_quantize_mx(x, -1, BLOCK, rule, mx_element_dtype=element)
        results[f"{name}/result"] = found.numpy()
    np.savez(path.with_name(f"{path.stem}_quark.npz"), **results)
    return {"version": version("amd-quark"), "cases": len(names)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
