"""tpu-mlir reads the Sophgo files: its scales are ours, and the chips' simulators compute what our model computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.types import QParamsTable, QuantPlan
from tests.golden_graphs import GOLDEN, GoldenGraph
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

VERSION = "1.30.2"
EQUAL = 999.0
"""What the check answers where two results do not differ at all."""


class Case(NamedTuple):
    """A target, the arguments of model_deploy, and what is to be reached against our model and the float model."""

    backend: str
    chip: str
    quantize: str
    against_ours: float
    against_float: float


def folder_for(golden: GoldenGraph, backend: str, folder: Path) -> None:
    """Files of onnxq, with an input and the outputs of the float model and of the simulated one."""
    onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=folder, config={"minimum_sqnr_db": 0.0})
    feed = golden.samples[0]
    np.savez(folder / "input.npz", **feed)  # type: ignore[arg-type]
    onnx.save(golden.model, folder / "float.onnx")
    graph = Graph.load(folder / "model_deploy_model.onnx")
    graph.infer_shapes()
    plan = QuantPlan.from_json(json.loads((folder / "plan.json").read_text()))
    qparams = QParamsTable.from_json(json.loads((folder / "qparams.json").read_text()))
    simulate(graph, plan, qparams, get_backend(backend))[0].save(folder / "simulated.onnx")
    for model, results in (("simulated.onnx", "ours.npz"), ("float.onnx", "float.npz")):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(folder / model), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        np.savez(folder / results, **dict(zip(names, session.run(names, feed), strict=True)))


def answer_of(case: Case, golden: GoldenGraph, folder: Path, *further: str) -> dict[str, Any]:
    reader_python("tpu_mlir")
    folder_for(golden, case.backend, folder)
    references = ("--reference", f"ours={folder / 'ours.npz'}", "--reference", f"float={folder / 'float.npz'}")
    where = ("--chip", case.chip, "--quantize", case.quantize, "--input", folder / "input.npz")
    return run_check("tpu_mlir", folder, *where, *references, *further)


def check_answer(case: Case, model: str, answer: dict[str, Any]) -> None:
    """The compiled model does what tpu-mlir's integers say, and both what our model and the float model say."""
    for name, wanted in (("ours", case.against_ours), ("float", case.against_float)):
        found = answer["against"][name]
        assert found
        for output, figures in found.items():
            assert figures["sqnr_db"] > wanted, f"{output} against {name}: {figures}"
            what = f"{output}: {case.chip} simulator against {name}, dB"
            figure = "equal" if figures["sqnr_db"] == EQUAL else figures["sqnr_db"]
            record("tpu_mlir", VERSION, case.backend, model, what, figure)
    for output, figures in answer["simulator"].items():
        assert figures["cosine"] > 0.9999, f"{output}: compiled model against tpu-mlir's own inference: {figures}"


def lowered_scales(folder: Path, answer: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Tensor -> (scale in tpu-mlir, our scale), for every tensor that tpu-mlir holds in integers or float8."""
    tensors = json.loads((folder / "qparams.json").read_text())["tensors"]
    model = onnx.load(folder / "model_deploy_model.onnx")
    made = {node.output[0]: f"{node.output[0]}_{node.op_type}" for node in model.graph.node}
    found = {}
    for tensor, name in made.items():
        storage, scale, _ = answer["types"].get(name, ("f32", 1.0, 0))
        if tensor in tensors and storage in ("i8", "u8", "f8E4M3FN", "f8E5M2"):
            found[tensor] = (scale, tensors[tensor]["scale"])
    return found


# Against our simulated model: on BM chips every code is equal, up to the rounding of float32 in the last scale.
CASES = (
    Case("sophgo_bm1684x", "bm1684x", "INT8", 100, 35),
    Case("sophgo_bm1688", "bm1688", "INT8", 100, 35),
    Case("sophgo_bm1690", "bm1690", "INT8", 100, 35),
    Case("sophgo_cv18x", "cv181x", "INT8", 30, 30),
    Case("sophgo_bm1690:precision=F8E4M3", "bm1690", "F8E4M3", 80, 25),
    Case("sophgo_bm1690:precision=F8E5M2", "bm1690", "F8E5M2", 100, 15),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.chip}-{case.quantize}")
def test_a_convolutional_network_has_our_scales_and_our_results_on_the_chip(case: Case, tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    answer = answer_of(case, golden, tmp_path)
    assert answer["without_row"] == []
    scales = lowered_scales(tmp_path, answer)
    assert len(scales) > 8
    for tensor, (theirs, ours) in scales.items():
        assert theirs == pytest.approx(ours, rel=1e-6), tensor
    check_answer(case, "residual", answer)
    record("tpu_mlir", VERSION, case.backend, "residual", "activation scales equal to ours", len(scales))


@pytest.mark.parametrize("name", ["depthwise", "concat"])
def test_functions_from_tables_averages_and_joined_branches_are_exact(name: str, tmp_path: Path) -> None:
    case = Case("sophgo_bm1688", "bm1688", "INT8", 100, 20)
    check_answer(case, name, answer_of(case, GOLDEN[name](), tmp_path))


def test_the_integers_of_the_weights_are_ours(tmp_path: Path) -> None:
    case = Case("sophgo_bm1688", "bm1688", "INT8", 35, 35)
    answer = answer_of(case, GOLDEN["residual"](), tmp_path)
    tensors = json.loads((tmp_path / "qparams.json").read_text())["tensors"]
    model = onnx.load(tmp_path / "model_deploy_model.onnx")
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    readers = {name: node for node in model.graph.node for name in node.input}
    compared = 0
    for node in model.graph.node:
        if node.op_type != "Conv":
            continue
        follower = readers.get(node.output[0])
        last = follower if follower is not None and follower.op_type == "Relu" else node
        _, total, squares = answer["weights"][f"{last.output[0]}_{last.op_type}_filter_i8"]
        scale = np.array(tensors[node.input[1]]["scale"], np.float32).reshape(-1, 1, 1, 1)
        integers = np.clip(np.round(held[node.input[1]].astype(np.float64) / scale), -128, 127)
        assert (total, squares) == (integers.sum(), (integers**2).sum())
        compared += 1
    assert compared == 6
    record("tpu_mlir", VERSION, case.backend, "residual", "weights whose integers are ours", compared)


@pytest.mark.parametrize(
    "case",
    [Case("sophgo_bm1684x", "bm1684x", "INT8", 25, 25), Case("sophgo_cv18x", "cv181x", "INT8", 25, 25)],
    ids=lambda case: case.chip,
)
def test_a_transformer_block_has_our_results_on_the_chip(case: Case, tmp_path: Path) -> None:
    answer = answer_of(case, GOLDEN["transformer"](), tmp_path)
    for tensor, (theirs, ours) in lowered_scales(tmp_path, answer).items():
        assert theirs == pytest.approx(ours, rel=1e-6), tensor
    check_answer(case, "transformer", answer)


def chain() -> GoldenGraph:
    """Layers that hand 4 bits to each other: signed, behind a Relu, through a MaxPool; a depthwise one with 8 bits."""
    rng = np.random.default_rng(1)
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], **same),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], **same),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], **same),
        helper.make_node("Conv", ["c3", "w4"], ["c4"], **same),
        helper.make_node("MaxPool", ["c4"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pool", "w5"], ["c5"]),
        helper.make_node("Relu", ["c5"], ["r5"]),
        helper.make_node("Conv", ["r5", "w6"], ["c6"], group=8),
        helper.make_node("GlobalAveragePool", ["c6"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w7"], ["y"]),
    ]
    shapes = ((8, 3, 3, 3), (8, 8, 3, 3), (8, 8, 3, 3), (8, 8, 3, 3), (8, 8, 1, 1), (8, 1, 1, 1), (8, 10))
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), f"w{number}")
        for number, shape in enumerate(shapes, 1)
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return GoldenGraph(model, [{"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)])


@pytest.mark.parametrize(("name", "make"), [("residual", GOLDEN["residual"]), ("chain", chain)])
def test_layers_of_four_and_eight_bits_mix(name: str, make: Callable[[], GoldenGraph], tmp_path: Path) -> None:
    case = Case("sophgo_bm1688:precision=INT4", "bm1688", "INT4", 100, 12)
    answer = answer_of(case, make(), tmp_path)
    tensors = json.loads((tmp_path / "qparams.json").read_text())["tensors"]
    narrow = {tensor: entry for tensor, entry in tensors.items() if entry["spec"]["dtype"] in ("int4", "uint4")}
    casts = {known: entry for known, entry in answer["types"].items() if "_to_b4_" in known}
    assert casts
    for known, (storage, scale, _) in casts.items():
        tensor = known.split("_to_b4_")[0].rsplit("_", 1)[0]
        assert storage == {"int4": "i4", "uint4": "u4"}[narrow[tensor]["spec"]["dtype"]], known
        assert scale == pytest.approx(narrow[tensor]["scale"], rel=1e-6), known
    check_answer(case, name, answer)
