"""vitis and ryzenai from a float model to files: formats, placement, accuracy, and what their options change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

import onnxq
from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError
from onnxq.targets import get_backend
from tests.targets.amd.dpu_graphs import drawn, network, planned
from tests.zoo import ZOO

SAMPLES = [{"x": x[None]} for x in np.random.default_rng(5).normal(0, 1, (12, 3, 16, 16)).astype(np.float32)]


def quantize(backend: str, folder: Path) -> onnxq.Result:
    return onnxq.quantize(network(), backend=backend, data=SAMPLES, out=folder / "out", config={"effort": 0})


def lowest_db(result: onnxq.Result) -> float:
    return min(float(output["sqnr_db"]) for output in result.report["checks"]["outputs"])


@pytest.mark.parametrize("case", ["conv_bn_relu_residual", "mobilenet_like_clip_inputs", "transformer_without_mask"])
@pytest.mark.parametrize(
    ("backend", "minimum"),
    [
        ("vitis", 25),
        ("vitis:strategy=fs", 28),
        ("vitis:strategy=tqt", 18),
        ("ryzenai", 25),
        ("ryzenai:precision=A8W8", 28),
        ("ryzenai:precision=A16W8", 30),
    ],
)
def test_small_networks_keep_their_accuracy(backend: str, minimum: float, case: str, tmp_path: Path) -> None:
    given = ZOO[case]()
    assert (
        lowest_db(
            onnxq.quantize(given.model, backend=backend, data=given.feeds, out=tmp_path / "out", config={"effort": 0})
        )
        > minimum
    )


@pytest.mark.parametrize("backend", ["vitis", "vitis:strategy=tqt", "ryzenai"])
def test_power_of_two_targets_have_int8_at_positions_everywhere(backend: str, tmp_path: Path) -> None:
    result = quantize(backend, tmp_path)
    assert {placement.role for placement in result.plan} == {"activation", "weight", "bias"}
    for placement in result.plan:
        assert placement.spec.dtype == "int8"
        assert placement.derive is None  # a bias has a position of its own
        assert float(np.log2(result.qparams[placement.tensor].scale)).is_integer()


@pytest.mark.parametrize(
    ("backend", "config"),
    [("vitis", {}), ("vitis:strategy=tqt", {}), ("vitis", {"observer": "minmax", "weight_observer": "mse"})],
)
def test_positions_of_vitis_end_at_twelve(backend: str, config: dict[str, str], tmp_path: Path) -> None:
    model = network()
    for item in model.graph.initializer:
        if item.data_type == 1 and len(item.dims) == 1:  # biases of a millionth
            values = np.full(item.dims, 1e-6, np.float32)
            item.CopyFrom(numpy_helper.from_array(values, item.name))
    result = onnxq.quantize(model, backend=backend, data=SAMPLES, out=tmp_path / "out", config=config)
    biases = [result.qparams[p.tensor].scale for p in result.plan if p.role == "bias"]
    assert min(biases) == 2.0**-12
    assert any("to 12, the highest of Vitis AI for 8 bits" in note for note in result.report["notes"])


def test_quantizers_stand_behind_the_activation_that_runs_inside() -> None:
    graph, plan, _ = planned("vitis")
    for node in graph.nodes("Conv"):
        readers = graph.consumers(node.outputs[0])
        if [use.node.op for use in readers] in (["Relu"], ["LeakyRelu"]):
            assert node.outputs[0].name not in plan
            assert readers[0].node.outputs[0].name in plan
            assert plan.fused[readers[0].node.name] == node.name
    assert "x" in plan
    pool = graph.nodes("MaxPool")[0]
    assert plan.leader(pool.outputs[0].name) == plan.leader(pool.inputs[0].name)


def test_the_files_of_each_strategy(tmp_path: Path) -> None:
    tables = {"model_clip_ranges.json", "model_quant_info.json", "model_fixneuron.onnx"}
    names = {path.name for path in quantize("vitis", tmp_path / "a").model.parent.iterdir()}
    assert tables | {"model.onnx", "model_deploy_model.onnx"} <= names
    names = {path.name for path in quantize("vitis:strategy=fs", tmp_path / "b").model.parent.iterdir()}
    assert not tables & names
    assert "model_deploy_model.onnx" in names


def test_simulating_computes_the_operators_of_the_chip() -> None:
    graph, plan, backend = planned("vitis")
    simulated, notes = simulate(graph, plan, drawn(plan, 0, 4, 6), backend)
    assert any("26/256" in note for note in notes)
    assert any("2731 / 16384" in note for note in notes)
    assert any("approximation of the division" in note for note in notes)
    assert not simulated.nodes("HardSigmoid")


def test_approximations_add_sigmoid_and_clip() -> None:
    everything = get_backend("vitis:approximations=all")
    assert {"dpu_sigmoid", "dpu_clip"} <= set(everything.simulations)
    assert everything.rules_for("Sigmoid")
    assert not get_backend("vitis").rules_for("Sigmoid")


def test_approximations_without_power_of_two_scales_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"approximations=all speaks of XINT8.*Leave it out"):
        get_backend("ryzenai:precision=A8W8,approximations=all")


def test_sixteen_bits_need_a_newer_opset(tmp_path: Path) -> None:
    result = quantize("ryzenai:precision=A16W8", tmp_path)
    assert {p.spec.dtype for p in result.plan if p.role == "activation"} == {"int16"}
    assert {p.spec.dtype for p in result.plan if p.role == "weight"} <= {"int8", "int16"}
    assert onnxq.load(result.model).opset >= 21
