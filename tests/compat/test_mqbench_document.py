"""The configuration that MQBench's document prints, completed to a valid one, on real networks; and from files."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.compat.mqbench import convert_deploy, enable_calibration, enable_quantization, prepare_by_platform, translate
from onnxq.compat.read import read_dialect
from onnxq.plugins import run_file
from onnxq.types import PerChannel
from tests.compat.mqbench_plans import RESNET, TRANSFORMER, became, translated
from tests.networks.exported import exported, samples

CONFIGURATIONS = Path(__file__).resolve().parent / "mqbench"

KEYS = (
    "extra_qconfig_dict.w_observer",
    "extra_qconfig_dict.a_observer",
    "extra_qconfig_dict.w_fakequantize",
    "extra_qconfig_dict.a_fakequantize",
    *(f"extra_qconfig_dict.{side}_qscheme.{key}" for side in "wa" for key in ("bit", "symmetry", "per_channel")),
    *(f"extra_qconfig_dict.{side}_qscheme.pot_scale" for side in "wa"),
    "extra_quantizer_dict.additional_function_type",
    "extra_quantizer_dict.additional_module_type",
    "extra_quantizer_dict.additional_node_name",
    "extra_quantizer_dict.exclude_module_name",
    "extra_quantizer_dict.exclude_function_type",
    "extra_quantizer_dict.exclude_node_name",
    "preserve_attr['']",
    "preserve_attr['backbone']",
    "extra_fuse_dict.additional_fuser_method_mapping",
    "extra_fuse_dict.additional_fusion_pattern",
    "extra_fuse_dict.additional_qat_module_mapping",
    "concrect_args",
)
"""Every key that the document prints."""


def printed() -> dict[str, Any]:
    module = run_file(CONFIGURATIONS / "extra_config.py", "MQBench configuration")
    found: dict[str, Any] = module.extra_config
    return found


def with_attributes(network: str) -> onnx.ModelProto:
    """The network with the two attributes that the document preserves."""
    model = onnx.load(exported(network))
    helper.set_model_props(model, {"func1": "a", "backbone.func2": "b"})
    return model


def deploy(model: onnx.ModelProto, extra: dict[str, Any], backend: str, network: str, folder: Path) -> Any:
    prepared = prepare_by_platform(model, backend, extra)
    enable_calibration(prepared)
    feeds = samples(network)
    for number in range(8):
        prepared({name: array[number : number + 1] for name, array in feeds.items()})
    enable_quantization(prepared)
    assert np.isfinite(prepared({name: array[:1] for name, array in feeds.items()})).all()
    return convert_deploy(prepared, backend, output_path=folder)


def test_the_printed_configuration_runs_on_a_resnet(tmp_path: Path) -> None:
    result = deploy(with_attributes(RESNET), printed(), "Academic", RESNET, tmp_path)
    ort.InferenceSession(result.model)
    weight = result.plan["layer3.conv1.weight"]
    assert (weight.spec.dtype, weight.observer, weight.spec.granularity) == ("uint8", "mse", PerChannel(0))
    inside = result.plan["/layer3/relu/Relu_output_0"]
    assert (inside.spec.dtype, inside.observer, inside.spec.granularity) == ("uint8", "mse", PerChannel(1))
    assert {"/layer3/Add", "/up/Resize", "/layer1/layer1.1/conv1/Conv"} <= set(result.plan.quantized)
    assert {"/Mul", "/layer2/layer2.1/relu/Relu"} <= set(result.plan.left_float)
    kept = {item.key for item in onnx.load(result.model).metadata_props}
    assert {"func1", "backbone.func2"} <= kept
    rows = {row["key"] for row in result.report["translated"]["keys"]}
    assert set(KEYS) <= rows


def test_the_printed_configuration_runs_on_a_transformer(tmp_path: Path) -> None:
    extra = printed()
    extra["extra_qconfig_dict"]["a_qscheme"]["per_channel"] = False
    extra["extra_quantizer_dict"] = {
        "additional_function_type": [operator.add],
        "additional_module_type": ("torch.nn.LayerNorm"),
        "additional_node_name": ["pooler"],
        "exclude_module_name": ["encoder.1.linear2"],
        "exclude_function_type": [operator.mul],
        "exclude_node_name": ["pooler"],
    }
    result = deploy(with_attributes(TRANSFORMER), extra, "Academic_NLP", TRANSFORMER, tmp_path)
    ort.InferenceSession(result.model)
    assert {"/encoder.0/Add", "/pooler/Gemm", "/encoder.0/linear2/MatMul"} <= set(result.plan.quantized)
    assert "/encoder.1/linear2/MatMul" in result.plan.left_float
    assert {row["key"] for row in result.report["translated"]["keys"]} >= set(KEYS)


def test_every_key_of_the_printed_configuration_has_a_row() -> None:
    translation = translate(printed(), onnxq.Graph.from_model(with_attributes(RESNET)), "Academic")
    for key in KEYS:
        assert became(translation, key)
    assert {row.key for row in translation.rows} == {"backend", *KEYS, "effort"}


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_configuration_in_a_file_says_the_same(suffix: str) -> None:
    graph = onnxq.load(exported(RESNET))
    translation = read_dialect("mqbench", CONFIGURATIONS / f"extra_config.{suffix}", graph, "SNPE")
    given = {
        "extra_qconfig_dict": {
            "w_observer": "MSEObserver",
            "a_observer": "EMAMinMaxObserver",
            "a_observer_extra_args": {"ema_ratio": 0.95},
            "w_qscheme": {"bit": 8, "symmetry": True, "per_channel": True, "pot_scale": False},
        },
        "extra_quantizer_dict": {
            "additional_function_type": ["torch.nn.functional.sigmoid"],
            "additional_module_type": ("torch.nn.Upsample",),
            "exclude_module_name": ["layer2.1.conv1"],
        },
        "extra_fuse_dict": {"additional_fuser_method_mapping": {("torch.nn.Conv2d", "torch.nn.Sigmoid"): None}},
        "concrete_args": {"image": {"shape": (1, 3, 32, 32)}},
    }
    assert translation.config == translated(given, "SNPE").config
    assert translation.backend == "snpe"


def test_the_written_settings_repeat_the_run(tmp_path: Path) -> None:
    model, extra = exported(RESNET), CONFIGURATIONS / "extra_config.json"
    np.savez(tmp_path / "data.npz", **samples(RESNET))  # type: ignore[arg-type]
    data, settings = str(tmp_path / "data.npz"), str(tmp_path / "settings.json")
    foreign = ["-b", "Tensorrt", "--mqbench", str(extra)]
    for arguments in (
        ["translate", str(model), *foreign, "-o", settings],
        ["quantize", str(model), *foreign, "-d", data, "-o", str(tmp_path / "foreign")],
        ["quantize", str(model), "-c", settings, "-d", data, "-o", str(tmp_path / "own")],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    first, second = (json.loads((tmp_path / name / "qparams.json").read_text()) for name in ("foreign", "own"))
    assert first == second
