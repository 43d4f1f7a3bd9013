"""Quark's own refinement and simulation, run on QDQ files; prints one JSON object.

check.py FOLDER         for every X_before.onnx: refine it as Quark does, until Quark changes nothing any more, and
                        compare the positions with those of X_after.onnx; refine X_after.onnx, which must not change;
                        run X_after.onnx in onnxruntime
check.py --constants    the factors, slopes and bounds of Quark's DPU simulation
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel
from quark.onnx.postprocess.refinement.refine import QuantPosManager, adjust_quantize_info
from quark.onnx.postprocess.simulation.simulate_dpu import simulate_transforms
from quark.onnx.quantization import quant_utils

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
MOST_ROUNDS = 20


def positions(model: onnx.ModelProto) -> dict[str, int]:
    """Node name of each quantizer -> its position."""
    values = {item.name: item for item in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if node.op_type in QUANTIZERS:
            scale = float(numpy_helper.to_array(values[node.input[1]]).reshape(()))
            found[node.name] = int(np.rint(-np.log2(scale)))
    return found


def refined(model: onnx.ModelProto) -> tuple[dict[str, int], int]:
    """The positions that Quark settles at, and how many of its rounds changed something; MOST_ROUNDS: it never settles.

    Rules that undo each other's changes leave the same positions at the end of every round, so changes are counted.
    """
    changes = 0
    set_pos = QuantPosManager.set_pos

    def counted(manager: Any, node: onnx.NodeProto, position: int) -> None:
        nonlocal changes
        changes += 1
        set_pos(manager, node, position)

    QuantPosManager.set_pos = counted
    try:
        for rounds in range(MOST_ROUNDS):
            changes = 0
            adjust_quantize_info(ONNXModel(model), max_loop_num=1)
            if not changes:
                return positions(model), rounds
    finally:
        QuantPosManager.set_pos = set_pos
    return positions(model), MOST_ROUNDS


def runs(path: Path) -> bool:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {item.name: np.ones([size or 1 for size in item.shape], np.float32) for item in session.get_inputs()}
    return all(bool(np.isfinite(result).all()) for result in session.run(None, feeds))


def compare(folder: Path) -> dict[str, Any]:
    # What Quark's quantizer sets for XINT8: these operators run inside the one before them.
    quant_utils.remove_qdq_op_type[:] = ["Relu", "Clip", "LeakyRelu", "PRelu"]
    answer: dict[str, Any] = {"cases": 0, "quantizers": 0, "moved_by_quark": 0, "different": [], "not_settled": []}
    answer |= {"changed_again": [], "does_not_run": [], "rounds": 0}
    for path in sorted(folder.glob("*_before.onnx")):
        case = path.name.removesuffix("_before.onnx")
        ours_path = folder / f"{case}_after.onnx"
        start, ours = onnx.load(path), onnx.load(ours_path)
        at_first, wanted = positions(start), positions(ours)
        theirs, rounds = refined(start)
        answer["cases"] += 1
        answer["quantizers"] += len(theirs)
        answer["moved_by_quark"] += sum(theirs[name] != at_first[name] for name in theirs)
        answer["rounds"] = max(answer["rounds"], rounds)
        if rounds == MOST_ROUNDS:
            answer["not_settled"].append(case)
        elif theirs != wanted:
            names = [name for name in theirs if theirs[name] != wanted.get(name)]
            answer["different"].append([case, [[name, theirs[name], wanted.get(name)] for name in names]])
        if refined(ours)[1]:
            answer["changed_again"].append(case)
        if not runs(ours_path):
            answer["does_not_run"].append(case)
    return answer


def transformed(node: onnx.NodeProto, size: int, constants: dict[str, float]) -> onnx.ModelProto:
    """A model of one node after Quark's transformations for the DPU, all of them except those of Softmax and norms."""
    shape = [1, 1, size, size]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
        value_info=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    softmax, norm = {"convert_softmax_to_dpu_version": False}, {"convert_instance_norm_to_dpu_version": False}
    return simulate_transforms(model, lambda _: True, [], [], **softmax, **norm)[0]


def factor(op: str, size: int, **attributes: Any) -> float:
    model = transformed(helper.make_node(op, ["x"], ["y"], name="one", **attributes), size, {})
    held = [node for node in model.graph.node if node.op_type == "Constant"]
    return float(numpy_helper.to_array(held[0].attribute[0].t)) if held else 1.0


def constants() -> dict[str, Any]:
    pools = {
        size: factor("AveragePool", size, kernel_shape=[size, size]) for size in [*range(1, 33), 56, 112, 255, 256]
    }
    means = {size: factor("ReduceMean", size, axes=[2, 3]) for size in (2, 3, 7, 12, 14, 28)}
    slopes = {}
    for alpha in (0.01, 0.1, 0.2, 0.3):
        model = transformed(helper.make_node("LeakyRelu", ["x"], ["y"], name="one", alpha=alpha), 4, {})
        slopes[alpha] = model.graph.node[0].attribute[0].f
    bounds = []
    for low, high in ((0.0, 6.0), (-1.4, 0.7), (-300.0, 300.0), (-0.5, 2.5)):
        node = helper.make_node("Clip", ["x", "low", "high"], ["y"], name="one")
        held = {i.name: i for i in transformed(node, 4, {"low": low, "high": high}).graph.initializer}
        bounds.append([low, high, *(float(numpy_helper.to_array(held[name])) for name in ("low", "high"))])
    sigmoid = factor("HardSigmoid", 4, alpha=1 / 6, beta=0.5)
    return {"pools": pools, "means": means, "slopes": slopes, "bounds": bounds, "hard_sigmoid": sigmoid}


if __name__ == "__main__":
    result = constants() if sys.argv[1] == "--constants" else compare(Path(sys.argv[1]))
    print(json.dumps({"version": version("amd-quark"), **result}))
