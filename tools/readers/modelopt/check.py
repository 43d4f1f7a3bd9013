"""Read TensorRT calibration caches with NVIDIA's ModelOpt. Usage: check.py FILE.cache ...

Prints {"version": ..., "scales": {file: {tensor: scale}}} on the last line. Scales are float32 values as ModelOpt found
them; it adds "_scale" to the names of tensors, which is taken off again.
"""

from __future__ import annotations

import json
import sys

import modelopt
from modelopt.onnx.quantization.calib_utils import import_scales_from_calib_cache

SUFFIX = "_scale"


def main(paths: list[str]) -> None:
    scales = {
        path: {name.removesuffix(SUFFIX): value for name, value in import_scales_from_calib_cache(path).items()}
        for path in paths
    }
    print(json.dumps({"version": modelopt.__version__, "scales": scales}))


if __name__ == "__main__":
    main(sys.argv[1:])
