"""Run a QDQ model in onnxruntime-qnn's emulation of the HTP and compare it with onnxruntime and the float model.

Usage: check.py MODEL.onnx FLOAT.onnx SAMPLES.npz [FOLDER]
SAMPLES.npz holds one array for each input, with a leading axis over samples. FOLDER is where libQnnIr writes a .dlc;
without it none is written. The last line of stdout is a JSON object:

    version      of onnxruntime-qnn
    runs_alone   whether the HTP took every node (session.disable_cpu_ep_fallback); if not, `error` says why
    outputs      name -> values, and how many of them are equal, one_step or more steps of the output's quantizer away
                 from onnxruntime running the same file node by node; largest, the largest distance in steps;
                 chip_db and file_db, the SQNR of the HTP and of the file in onnxruntime against the float model
    dlc_bytes    size of the .dlc file
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_qnn
from onnx import numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, NotImplemented

NAME = "QNNExecutionProvider"
FOLDER = Path(onnxruntime_qnn.LIB_DIR_FULL_PATH)


def htp_session(model: Path, library: str, **further: str) -> ort.InferenceSession:
    """A session of Qualcomm's provider with one of its libraries; the CPU may take no node over."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    device = next(d for d in ort.get_ep_devices() if d.ep_name == NAME and d.device.type.name == "CPU")
    options.add_provider_for_devices([device], {"backend_path": str(FOLDER / library), **further})
    return ort.InferenceSession(str(model), options)


def plain_session(model: Path) -> ort.InferenceSession:
    """onnxruntime node by node, as the file says."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def output_steps(model: onnx.ModelProto) -> dict[str, float]:
    """The scale of the DequantizeLinear that makes each output; outputs without one are left out."""
    values = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    found = {}
    for output in model.graph.output:
        node = makers.get(output.name)
        if node is not None and node.op_type == "DequantizeLinear":
            found[output.name] = float(values[node.input[1]].reshape(-1)[0])
    return found


def runs(session: ort.InferenceSession, samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    count = len(next(iter(samples.values())))
    results = [session.run(names, {key: value[index] for key, value in samples.items()}) for index in range(count)]
    return {name: np.stack([result[place] for result in results]) for place, name in enumerate(names)}


def sqnr_db(reference: np.ndarray, other: np.ndarray) -> float | None:
    """None when there is no difference at all."""
    noise = float(np.square(reference.astype(np.float64) - other).sum())
    return round(10 * np.log10(float(np.square(reference.astype(np.float64)).sum()) / noise), 2) if noise else None


def distances(chip: np.ndarray, file: np.ndarray, step: float | None) -> dict[str, int]:
    if step is None:
        return {}
    steps = np.rint(np.abs(chip.astype(np.float64) - file) / step)
    return {
        "equal": int((steps == 0).sum()),
        "one_step": int((steps == 1).sum()),
        "more": int((steps > 1).sum()),
        "largest": int(steps.max()),
    }


def write_dlc(model: Path, folder: Path) -> int:
    """Let libQnnIr write a .dlc; it cannot run, so making the session is all."""
    folder.mkdir(parents=True, exist_ok=True)
    htp_session(model, "libQnnIr.so", dump_qnn_ir_dlc="1", dump_qnn_ir_dlc_dir=str(folder))
    return max((path.stat().st_size for path in folder.glob("*.dlc")), default=0)


def main() -> None:
    model, reference, samples = Path(sys.argv[1]), Path(sys.argv[2]), dict(np.load(sys.argv[3]))
    ort.register_execution_provider_library(NAME, onnxruntime_qnn.get_library_path())
    answer: dict[str, Any] = {"version": onnxruntime_qnn.__version__, "runs_alone": True}
    try:
        session = htp_session(model, "libQnnHtp.so")
    except (EPFail, Fail, NotImplemented) as error:
        print(json.dumps({**answer, "runs_alone": False, "error": str(error)}))
        return
    steps = output_steps(onnx.load(model))
    chip, file, real = (
        runs(session, samples),
        runs(plain_session(model), samples),
        runs(plain_session(reference), samples),
    )
    answer["outputs"] = {
        name: {
            "values": real[name].size,
            **distances(chip[name], file[name], steps.get(name)),
            "chip_db": sqnr_db(real[name], chip[name]),
            "file_db": sqnr_db(real[name], file[name]),
        }
        for name in real
    }
    if len(sys.argv) > 4:
        answer["dlc_bytes"] = write_dlc(model, Path(sys.argv[4]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
