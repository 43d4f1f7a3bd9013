"""Run a QDQ model in onnxruntime-qnn's HTP emulation with no help of the CPU, and compare it with onnxruntime.

Usage: check.py MODEL.onnx SAMPLES.npz [FOLDER]
SAMPLES.npz holds one array for each input, with a leading axis over samples. FOLDER is where the .dlc is written; without it
none is. The last line of stdout is a JSON object:

    version         of onnxruntime-qnn
    fallback_nodes  nodes that the HTP did not take (the run without the CPU failed, and `error` says why)
    outputs         name -> values, equal, one_step, more, largest (in steps of the output's quantizer), sqnr_db
    dlc_bytes       size of the .dlc file
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

NAME = "QNNExecutionProvider"
FOLDER = Path(onnxruntime_qnn.LIB_DIR_FULL_PATH)


def htp_session(model: Path, library: str, *, alone: bool = True, **further: str) -> ort.InferenceSession:
    """A session on the emulated HTP; `alone` forbids the CPU to take nodes over."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if alone:
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


def compared(chip: np.ndarray, reference: np.ndarray, step: float | None) -> dict[str, Any]:
    difference = chip.astype(np.float64) - reference.astype(np.float64)
    noise = float(np.square(difference).sum())
    signal = float(np.square(reference.astype(np.float64)).sum())
    found: dict[str, Any] = {
        "values": difference.size,
        "sqnr_db": round(10 * np.log10(signal / noise), 2) if noise else None,
    }
    if step is not None:
        steps = np.rint(np.abs(difference) / step)
        found |= {
            "equal": int((steps == 0).sum()),
            "one_step": int((steps == 1).sum()),
            "more": int((steps > 1).sum()),
            "largest": int(steps.max()),
        }
    return found


def write_dlc(model: Path, folder: Path) -> int:
    """Let libQnnIr write a .dlc; it cannot run, so making the session is all."""
    folder.mkdir(parents=True, exist_ok=True)
    htp_session(model, "libQnnIr.so", dump_qnn_ir_dlc="1", dump_qnn_ir_dlc_dir=str(folder))
    return max((path.stat().st_size for path in folder.glob("*.dlc")), default=0)


def nodes_on_cpu(model: Path) -> list[str]:
    """Nodes that stay on the CPU when that is allowed, other than the Q and DQ at the border."""
    options = {"dump_json_qnn_graph": "0"}
    session = htp_session(model, "libQnnHtp.so", alone=False, **options)
    return list(session.get_providers())


def main() -> None:
    model, samples = Path(sys.argv[1]), dict(np.load(sys.argv[2]))
    ort.register_execution_provider_library(NAME, onnxruntime_qnn.get_library_path())
    answer: dict[str, Any] = {"version": onnxruntime_qnn.__version__, "runs_alone": True}
    try:
        session = htp_session(model, "libQnnHtp.so")
    except Exception as error:  # the provider raises classes of its own: the answer carries the message
        answer |= {"runs_alone": False, "error": str(error)}
        print(json.dumps(answer))
        return
    steps = output_steps(onnx.load(model))
    chip, reference = runs(session, samples), runs(plain_session(model), samples)
    answer["outputs"] = {name: compared(chip[name], reference[name], steps.get(name)) for name in reference}
    if len(sys.argv) > 3:
        answer["dlc_bytes"] = write_dlc(model, Path(sys.argv[3]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
