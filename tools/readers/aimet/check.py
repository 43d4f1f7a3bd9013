"""Load encodings files into aimet-onnx's simulation of the float model and print what it has taken from them.

Usage: check.py FLOAT.onnx ENCODINGS.json...
The last line of stdout is a JSON object:

    version   of aimet-onnx
    files     file name -> tensor -> {dtype, scale: [...], offset: [...]} of every quantizer that is on afterwards, with
              offsets in unsigned numbers; float16 has a dtype alone
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import onnx
from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim


def taken_in(model: Path, encodings: Path) -> dict[str, Any]:
    """The state of every enabled quantizer of a new simulation after it has loaded the file."""
    simulation = QuantizationSimModel(onnx.load(model))
    load_encodings_to_sim(simulation, str(encodings), strict=False)
    tensors = {}
    for name, quantizer in simulation.qc_quantize_op_dict.items():
        held = quantizer.get_encodings() if quantizer.enabled else None
        if held:
            tensors[name] = {
                "dtype": f"{'' if quantizer.use_symmetric_encodings else 'u'}int{quantizer.bitwidth}",
                "scale": [float(entry.delta) for entry in held],
                "offset": [int(entry.offset) for entry in held],
            }
        elif quantizer.enabled:
            tensors[name] = {"dtype": f"float{quantizer.bitwidth}"}
    return tensors


def main() -> None:
    model, *files = map(Path, sys.argv[1:])
    answer = {
        "version": importlib.metadata.version("aimet-onnx"),
        "files": {path.name: taken_in(model, path) for path in files},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
