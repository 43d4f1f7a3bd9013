"""Quark's own block floating point, run in onnxruntime with its operator library; prints one JSON object.

bfp.py FILE.npz     for every NAME/input with NAME/axis and NAME/size: run BFPQuantizeDequantize on the input as Quark's
                    BFP16 has it, and write NAME/result to FILE_quark.npz
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from quark.onnx.operators.custom_ops import get_library_path
from quark.onnx.quantization.config.custom_config import DEFAULT_BFP_PARAMS


def quark_result(x: np.ndarray, axis: int, size: int, options: onnxruntime.SessionOptions) -> np.ndarray:
    settings = {**DEFAULT_BFP_PARAMS, "axis": axis, "block_size": size}
    graph = helper.make_graph(
        [helper.make_node("BFPQuantizeDequantize", ["x"], ["y"], domain="com.amd.quark", **settings)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.amd.quark", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def main(path: Path) -> dict[str, object]:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path("cpu"))
    given = dict(np.load(path))
    names = sorted(key.removesuffix("/input") for key in given if key.endswith("/input"))
    results = {
        f"{name}/result": quark_result(
            given[f"{name}/input"], int(given[f"{name}/axis"]), int(given[f"{name}/size"]), options
        )
        for name in names
    }
    np.savez(path.with_name(f"{path.stem}_quark.npz"), **results)
    return {"version": version("amd-quark"), "cases": len(names), "settings": DEFAULT_BFP_PARAMS}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
