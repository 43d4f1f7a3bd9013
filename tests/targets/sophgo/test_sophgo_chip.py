"""Configurations of Sophgo-mq in the simulators of the chips: layers of their own bits, excluded ones, few scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.config import read_config
from onnxq.emit.simulate import simulate
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.pipeline.artifacts import Result
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect import translate
from tests.networks.exported import exported, samples
from tests.readers.environment import reader_python, run_check
from tests.targets.sophgo.sophgo_plans import RESNET, config, modes, table

FLOAT8 = {"w_fakequantize": "E4M3FakeQuantize", "a_fakequantize": "E4M3FakeQuantize"}
SCHEME = {"bit": 8, "symmetry": True, "per_channel": False, "pot_scale": False}
W4 = {"mode": "weight", "bit": "4"}


def relu6() -> onnx.ModelProto:
    """Convolutions with a Clip from 0 to 6 behind them, the second one depthwise."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c1", "zero", "six"], ["r1"], "stem.relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "depthwise", pads=[1, 1, 1, 1], group=8),
        helper.make_node("Clip", ["c2", "zero", "six"], ["r2"], "depthwise.relu"),
        helper.make_node("Conv", ["r2", "w3"], ["y"], "head"),
    ]
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 1, 3, 3), "w3": (4, 8, 1, 1)}
    held = [numpy_helper.from_array(rng.normal(0, 1, s).astype(np.float32), name) for name, s in shapes.items()]
    held += [numpy_helper.from_array(np.float32(value), name) for name, value in (("zero", 0.0), ("six", 6.0))]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])
    graph = helper.make_graph(nodes, "relu6", [given], [made], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    return [{"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def files_of_relu6(given: dict[str, Any], folder: Path, **settings: Any) -> Result:
    translation = translate(given, Graph.from_model(relu6()))
    own = read_config(translation, minimum_sqnr_db=0.0, **settings)
    return onnxq.quantize(relu6(), backend=translation.backend, data=feeds(), config=own, out=folder)


def test_a_clip_in_float8_is_a_relu_that_ends_at_the_largest_code(tmp_path: Path) -> None:
    result = files_of_relu6(config("SG2260", **FLOAT8), tmp_path)
    deployed = onnx.load(tmp_path / "model_deploy_model.onnx")
    assert [node.op_type for node in deployed.graph.node] == ["Conv", "Relu", "Conv", "Relu", "Conv"]
    assert {"r1_Relu", "r2_Relu"} <= set(modes(result))
    rows = [line.split()[0] for line in table(result, "cali_table").splitlines() if not line.startswith("#")]
    assert {"r1_Relu", "r2_Relu", "r1_Relu_weight_fp8"} <= set(rows)


def test_a_clip_in_float8_without_scales_stays(tmp_path: Path) -> None:
    quantizers = {"w_fakequantize": "E5M2FakeQuantize", "a_fakequantize": "E5M2FakeQuantize"}
    files_of_relu6(config("SG2260", **quantizers), tmp_path)
    deployed = onnx.load(tmp_path / "model_deploy_model.onnx")
    assert [node.op_type for node in deployed.graph.node] == ["Conv", "Clip", "Conv", "Clip", "Conv"]


def test_a_clip_in_integers_stays(tmp_path: Path) -> None:
    files_of_relu6(config("SG2260"), tmp_path)
    deployed = onnx.load(tmp_path / "model_deploy_model.onnx")
    assert [node.op_type for node in deployed.graph.node] == ["Conv", "Clip", "Conv", "Clip", "Conv"]


def test_a_float8_range_that_is_wider_than_the_clip_is_refused(tmp_path: Path) -> None:
    wide = {"tensor": {"r1": {"observer": "fixed:0.0,12.0"}}}
    with pytest.raises(UnsupportedError, match=r"'stem.relu' \(Clip\) ends at 6, but .* ends at 12"):
        onnxq.quantize(
            relu6(), backend="sophgo_sg2260:precision=F8E4M3", data=feeds(), config=read_config(wide), out=tmp_path
        )


def test_scales_for_each_channel_of_a_matrix_are_refused(tmp_path: Path) -> None:
    given = samples(RESNET)
    data = [{name: values[[index]] for name, values in given.items()} for index in range(2)]
    channels = read_config({"node": {"/fc/Gemm": {"weight": {"per_channel": True}}}})
    with pytest.raises(UnsupportedError, match="takes the first of them for the whole matrix"):
        onnxq.quantize(exported(RESNET), backend="sophgo_bm1688", data=data, config=channels, out=tmp_path)


@pytest.mark.parametrize(
    ("node", "parts", "message"),
    [
        ("depthwise", {"weight": {"bits": 4}}, "has groups, and such a convolution has no 4-bit form"),
        ("head", {"weight": {"bits": 4}, "activation": {"bits": 4}}, "makes an output of the model"),
    ],
)
def test_layers_that_chips_do_not_have_in_four_bits_are_refused(
    node: str, parts: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        onnxq.quantize(
            relu6(), backend="sophgo_bm1688", data=feeds(), config=read_config({"node": {node: parts}}), out=tmp_path
        )


# ---- in the simulators of the chips -------------------------------------------------------------------------------


def against_ours(result: Result, feed: dict[str, np.ndarray], chip: str, quantize: str) -> float:
    """SQNR in dB of the chip's simulator against `onnxq simulate`, for the worst output; 999 where both are equal."""
    reader_python("tpu_mlir")
    folder = result.model.parent
    np.savez(folder / "input.npz", **feed)  # type: ignore[arg-type]
    graph = Graph.load(folder / "model_deploy_model.onnx")
    graph.infer_shapes()
    simulate(graph, result.plan, result.qparams, get_backend(result.plan.backend))[0].save(folder / "simulated.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / "simulated.onnx"), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    np.savez(folder / "ours.npz", **dict(zip(names, session.run(names, feed), strict=True)))
    reference = ("--reference", f"ours={folder / 'ours.npz'}")
    where = ("--chip", chip, "--quantize", quantize, "--input", folder / "input.npz")
    answer = run_check("tpu_mlir", folder, *where, *reference)
    assert {modes(result)[name] for name in answer["without_row"]} <= {"F32"}  # between operators that stay float
    return min(float(figures["sqnr_db"]) for figures in answer["against"]["ours"].values())


MIXED = {
    "weights of 4 bits": config(module_name={"layer2.conv2": W4, "layer1.0.conv1": W4}),
    "excluded": config(
        quantizer={
            "exclude_module_name": ["layer3.conv3", "layer1.0"],
            "exclude_function_type": ["torch.nn.functional.sigmoid"],
            "module_only_enable_observer": ["features.0.0.weight_fake_quant"],
        }
    ),
    "one scale for a weight": config(w_qscheme=SCHEME, a_qscheme=SCHEME),
}


LEAST = {"weights of 4 bits": 40, "excluded": 25, "one scale for a weight": 40}
"""In dB. The network as a whole has 33, and the chip does not round the input of the model for a layer in float."""


@pytest.mark.readers
@pytest.mark.parametrize("name", MIXED)
def test_a_mixed_configuration_is_what_the_chip_computes(name: str, tmp_path: Path) -> None:
    graph = onnxq.load(exported(RESNET))
    translation = translate({**MIXED[name], "concrete_args": {"image": {"shape": [1, 3, 32, 32]}}}, graph)
    given = samples(RESNET)
    data = [{key: values[[index]] for key, values in given.items()} for index in range(4)]
    own = read_config(translation, minimum_sqnr_db=0.0)
    result = onnxq.quantize(exported(RESNET), backend=translation.backend, data=data, config=own, out=tmp_path)
    assert against_ours(result, data[0], "bm1688", "INT8") > LEAST[name]


@pytest.mark.readers
@pytest.mark.parametrize("kind", ["E4M3", "E5M2"])
def test_clipped_convolutions_in_float8_are_what_the_chip_computes(kind: str, tmp_path: Path) -> None:
    quantizers = {"w_fakequantize": f"{kind}FakeQuantize", "a_fakequantize": f"{kind}FakeQuantize"}
    result = files_of_relu6(config("SG2260", **quantizers), tmp_path)
    assert against_ours(result, feeds()[0], "bm1690", f"F8{kind}") > 25
