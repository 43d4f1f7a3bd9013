"""Every key of the configuration changes what its stage does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.config import Config, read_config, resolve
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.session.prepare import Prepared, make_plan, prepare
from onnxq.targets import get_backend
from onnxq.types import QuantPlan

Outcome = Callable[[Prepared, QuantPlan], Any]

PLANNED: dict[str, tuple[str, Any, Outcome]] = {
    "backend": ("tensorrt", "vitis", lambda prepared, plan: plan.backend),
    "inputs": ("tensorrt", {"image": {"shape": [4, 1, 8, 8]}}, lambda prepared, plan: prepared.graph.shape("image")),
    "extra_outputs": ("tensorrt", ["stem.relu.out"], lambda prepared, plan: prepared.graph.output_names),
    "passes": ("tensorrt", ["relu6_as_clip"], lambda prepared, plan: [report.name for report in prepared.passes]),
    "skip_passes": (
        "tensorrt",
        ["fold_batchnorm"],
        lambda prepared, plan: len(prepared.graph.nodes("BatchNormalization")),
    ),
    "fuse": ("qnn", [["GlobalAveragePool", "Flatten"]], lambda prepared, plan: plan.fused),
    "skip": ("tensorrt", ["stem.conv"], lambda prepared, plan: plan.left_float),
    "force": ("academic", ["pool"], lambda prepared, plan: plan.quantized),
    "quantize_inputs": ("onnx_qnn", True, lambda prepared, plan: prepared.backend.quantize_inputs),
    "skip_ties": ("tensorrt", ["Concat"], lambda prepared, plan: prepared.backend.tied),
    "residual": ("tensorrt", "both", lambda prepared, plan: [p.edges for p in plan]),
    "activation": ("tensorrt", {"observer": "mse"}, lambda prepared, plan: plan["image"].observer),
    "weight": ("tensorrt", {"bits": 4}, lambda prepared, plan: plan["stem.conv.weight"].spec),
    "bias": ("qnn", {"bits": 8}, lambda prepared, plan: [p.spec for p in plan if p.role == "bias"]),
    "input": ("qnn", {"bits": 16}, lambda prepared, plan: plan["image"].spec),
    "output": ("qnn", {"bits": 16}, lambda prepared, plan: plan["logits"].spec),
    "op": ("tensorrt", {"Gemm": {"skip": True}}, lambda prepared, plan: plan.left_float),
    "node": ("tensorrt", {"stem.conv": {"weight": {"bits": 4}}}, lambda prepared, plan: plan["stem.conv.weight"].spec),
    "tensor": ("tensorrt", {"image": {"observer": "kl"}}, lambda prepared, plan: plan["image"].observer),
    "observer": ("tensorrt", "mse", lambda prepared, plan: plan["image"].observer),
    "weight_observer": ("tensorrt", "mse", lambda prepared, plan: plan["stem.conv.weight"].observer),
    "workers": ("tensorrt", 2, lambda prepared, plan: prepared.config.engine()),
    "memory_limit": ("tensorrt", "1GB", lambda prepared, plan: prepared.config.engine()),
    "provider": ("tensorrt", "cuda", lambda prepared, plan: prepared.config.engine()),
    "skip_refinements": ("vitis", ["coarse_weights"], lambda prepared, plan: prepared.backend.refinements),
    "weight_storage": ("tensorrt", "integer", lambda prepared, plan: prepared.backend.weight_storage),
    "skip_emitters": ("vitis", ["fix_neuron"], lambda prepared, plan: prepared.backend.emitters),
    "skip_simulations": ("vitis", ["dpu_leaky_relu"], lambda prepared, plan: prepared.backend.simulations),
}
RUN = {"data", "strict", "samples", "name", "portable", "verify_samples", "minimum_sqnr_db"}
ELSEWHERE = {
    *("preprocess", "effort", "improvements", "skip_improvements", "skip_steps", "time_limit", "optimize_for"),
    *("diagnose", "report", "keep_float32"),
}
"""tests/runtime/test_preprocessing.py: it is about images. tests/flow/test_effort.py: what is tried for accuracy.
tests/flow/test_time_limit.py: what there is no time for. tests/latency: nodes that are timed. tests/diagnose: whether
the cause of a low result is looked for. tests/half: what stays float32 beside half precision."""


def outcome(key: str, config: dict[str, Any]) -> Any:
    backend, _, look = PLANNED[key]
    prepared = prepare(model_path(), None if "backend" in config else backend, config)
    return look(prepared, make_plan(prepared))


@pytest.mark.parametrize("key", PLANNED)
def test_a_key_changes_what_is_planned(key: str) -> None:
    assert outcome(key, {key: PLANNED[key][1]}) != outcome(key, {})


def test_no_key_is_without_a_test() -> None:
    assert {*PLANNED, *RUN, *ELSEWHERE} == set(Config.model_fields)


def run(out: Path, **config: Any) -> onnxq.Result:
    data = [{"image": image[None]} for image in load_data().calibration[:8]]
    return onnxq.quantize(model_path(), backend="onnxruntime", data=data, config=config, out=out)


def test_samples_name_and_verification_change_the_run(tmp_path: Path) -> None:
    usual = run(tmp_path / "usual")
    other = run(tmp_path / "other", samples=3, name="net", verify_samples=2, portable=True)
    assert (usual.report["calibration_samples"], other.report["calibration_samples"]) == (8, 3)
    assert (usual.report["checks"]["samples"], other.report["checks"]["samples"]) == (8, 2)
    assert (usual.model.name, other.model.name) == ("model.onnx", "net.onnx")
    weights = [{p.spec.dtype for p in result.plan if p.role == "weight"} for result in (usual, other)]
    assert weights[1] == {"uint8"}
    with pytest.raises(onnxq.OnnxqError, match="below the required"):
        run(tmp_path / "strict", minimum_sqnr_db=90.0)


def test_the_data_can_be_named_in_the_configuration(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:8])
    given = onnxq.quantize(
        model_path(), backend="tensorrt", data=tmp_path / "calib.npz", out=tmp_path / "given", config={"effort": 0}
    )
    named = onnxq.quantize(model_path(), config=tmp_path / "given" / "config.json", out=tmp_path / "named")
    assert named.report["calibration_samples"] == 8
    assert given.model.read_bytes() == named.model.read_bytes()


def test_strict_can_be_named_in_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(onnxq.OnnxqError, match="does not know their operators"):
        onnxq.quantize(model_path(), backend="academic", config={"strict": True, "effort": 0}, data=[], out=tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"skip_passes": ["fold_batchnrom"]}, "no pass 'fold_batchnrom'. Did you mean 'fold_batchnorm'"),
        ({"skip_emitters": ["fix_neuronn"]}, "no emitter 'fix_neuronn'. Did you mean 'fix_neuron'"),
        ({"skip_emitters": ["qdq"]}, "writes the model itself"),
        ({"skip_refinements": ["coarse_weight"]}, "no refinement 'coarse_weight'. Did you mean 'coarse_weights'"),
        ({"skip_simulations": ["dpu_leaky"]}, "no simulation 'dpu_leaky'. Did you mean 'dpu_leaky_relu'"),
        ({"observer": "mse", "activation": {"observer": "kl"}}, "give one of them"),
    ],
)
def test_names_that_a_target_does_not_have_are_errors(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(read_config(config), get_backend("vitis"))
