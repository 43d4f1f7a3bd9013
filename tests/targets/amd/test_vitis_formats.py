"""The formats of `vitis:strategy=fs` from a float model to files that onnxruntime runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxq
from onnxq.calibrate import calibrate
from onnxq.emit.qdq import to_qdq
from onnxq.emit.simulate import simulate
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize
from onnxq.runtime.session import float_session, run_session
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import PerBlock
from tests.zoo import ZOO

NETWORKS = ["conv_bn_relu_residual", "mobilenet_like_clip_inputs", "transformer_without_mask"]


def quantize(case: str, folder: Path, config: Mapping[str, Any]) -> onnxq.Result:
    given = ZOO[case]()
    out = folder / "out"
    return onnxq.quantize(
        given.model, backend="vitis:strategy=fs", data=given.feeds, out=out, config={"effort": 0, **config}
    )


def everywhere(**fields: Any) -> dict[str, Any]:
    return {"activation": dict(fields), "weight": dict(fields)}


def lowest_db(result: onnxq.Result) -> float:
    return min(float(output["sqnr_db"]) for output in result.report["checks"]["outputs"])


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.parametrize(
    ("config", "minimum"),
    [
        (everywhere(dtype="bfp16"), 30),
        (everywhere(dtype="fp16"), 60),
        (everywhere(dtype="bf16"), 40),
        (everywhere(dtype="int16"), 75),
        (everywhere(dtype="uint8", symmetric=False), 30),
        (everywhere(dtype="int6"), 18),
        (everywhere(dtype="int8", rounding="half_up"), 28),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else value["weight"]["dtype"],
)
def test_small_networks_keep_what_the_format_can_hold(
    case: str, config: dict[str, Any], minimum: float, tmp_path: Path
) -> None:
    result = quantize(case, tmp_path, config)
    roles = {placement.role for placement in result.plan if placement.spec.dtype == config["weight"]["dtype"]}
    assert roles == {"activation", "weight"}
    assert lowest_db(result) > minimum


@pytest.mark.parametrize("case", NETWORKS)
def test_a_bias_stays_float_beside_formats_without_scales(case: str, tmp_path: Path) -> None:
    assert {placement.role for placement in quantize(case, tmp_path, everywhere(dtype="bfp16")).plan} == {
        "activation",
        "weight",
    }


def test_a_bias_may_have_the_format_too(tmp_path: Path) -> None:
    config = {**everywhere(dtype="bfp16"), "bias": {"dtype": "bfp16"}}
    result = quantize("conv_bn_relu_residual", tmp_path, config)
    assert {placement.spec.dtype for placement in result.plan if placement.role == "bias"} == {"bfp16"}
    assert lowest_db(result) > 30


def test_weights_in_the_file_are_the_numbers_of_the_format(tmp_path: Path) -> None:
    result = quantize("conv_bn_relu_residual", tmp_path, everywhere(dtype="bfp16"))
    model = onnx.load(result.model)
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in model.graph.node}
    stored = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    weights = [placement.tensor for placement in result.plan if placement.role == "weight"]
    assert weights
    for name in weights:
        held = stored[f"{name}_quantized"]
        np.testing.assert_array_equal(held, fake_quantize(held, result.qparams[name]))


def test_the_axis_of_the_blocks_can_be_chosen_for_each_operator(tmp_path: Path) -> None:
    matmul = {"activation": {"dtype": "bfp16", "channel_axis": -1}, "weight": {"dtype": "bfp16", "channel_axis": 0}}
    result = quantize("transformer_without_mask", tmp_path, {"op": {"MatMul": matmul}})
    blocks = {(p.role, p.spec.granularity) for p in result.plan if p.spec.dtype == "bfp16"}
    assert blocks == {("activation", PerBlock(-1, 8)), ("weight", PerBlock(0, 8))}
    assert lowest_db(result) > 30


def test_the_simulated_model_computes_the_same_numbers() -> None:
    given = ZOO["conv_bn_relu_residual"]()
    prepared = prepare(Graph.from_model(given.model), "vitis:strategy=fs", everywhere(dtype="bfp16"))
    plan = make_plan(prepared)
    qparams, plan, _ = calibrate(prepared.graph, plan, given.feeds)
    written = [write(prepared.graph, plan, qparams, prepared.backend)[0] for write in (to_qdq, simulate)]
    names = written[0].output_names
    one, other = (run_session(float_session(g, optimize="none"), names, given.feeds[0], "sample 0") for g in written)
    for name, left, right in zip(names, one, other, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_channels_of_activations_have_no_scales_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="activation-per-tensor"):
        quantize("conv_bn_relu_residual", tmp_path, {"activation": {"per_channel": True, "channel_axis": 1}})
