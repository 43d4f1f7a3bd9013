"""The configurations of Sophgo's document on real exported networks, and the flow of prepare_by_platform."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.compat.read import read_dialect
from onnxq.errors import ConfigError, DataError, ModelError
from onnxq.pipeline.artifacts import Result
from onnxq.targets.sophgo.dialect import (
    convert_deploy,
    disable_all,
    enable_calibration,
    enable_quantization,
    prepare_by_platform,
)
from tests.networks.exported import exported, samples
from tests.targets.sophgo.sophgo_plans import (
    FILES,
    FIRST_RESULT,
    RESNET,
    RESNET_DYNAMO,
    SECOND,
    THIRD,
    TRANSFORMER,
    became,
    config,
    modes,
    weight_of,
    weights,
)


def run(network: str, file: str, folder: Path) -> Result:
    """Quantize a network as a configuration file says."""
    translation = read_dialect("sophgo", FILES / file, onnxq.load(exported(network)), allow_code=True)
    data = folder / "calibration.npz"
    np.savez(data, **samples(network))  # type: ignore[arg-type]
    return onnxq.quantize(
        exported(network), backend=translation.backend, data=data, config=translation, out=folder / "out"
    )


@pytest.mark.parametrize("network", [RESNET, RESNET_DYNAMO])
def test_the_printed_configuration_runs_on_a_resnet_in_float8(network: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")  # the file names a function of torch itself
    result = run(network, "printed.py", tmp_path)
    assert "precision=F8E4M3" in result.plan.backend
    assert {item.spec.dtype for item in result.plan} == {"fp8_e4m3"}
    found = modes(result)
    assert set(found.values()) == {"F8E4M3", "F32"}
    assert (
        result.report["checks"]["outputs"][0]["sqnr_db"] > 8
    )  # four bits of mantissa and sign, one scale for a weight


def test_the_printed_configuration_reaches_the_plan(tmp_path: Path) -> None:
    plan = run(RESNET, "integers.json", tmp_path).plan
    assert plan[FIRST_RESULT].observer == "minmax"  # module_name, activation
    assert plan["/relu/Relu_output_0"].observer == "minmax"  # ConvBnReLU2d_sophgo
    assert plan["image"].observer == "ema_minmax"  # the whole model
    assert weight_of(plan, SECOND).fake_quantizer == "fixed"  # module_name, weight
    assert weight_of(plan, "/layer3/conv1/Conv").fake_quantizer == "fixed"  # ConvReLU2d_sophgo
    assert weight_of(plan, "/fc/Gemm").fake_quantizer == "lsq_plus"  # the whole model
    assert next(item for item in weights(plan) if item.observe_only).tensor.startswith("features.0.0")
    assert {THIRD, "/Sigmoid"} <= set(plan.left_float)


def test_the_printed_configuration_runs_on_a_transformer(tmp_path: Path) -> None:
    result = run(TRANSFORMER, "transformer.yaml", tmp_path)
    plan = result.plan
    assert plan["/encoder.0/attention/query/Add_output_0"].fake_quantizer == "lsq_plus"
    assert {item.observer for item in weights(plan)} == {"mse", "minmax"}
    assert {"/pooler/Gemm"} <= set(plan.left_float)
    assert any(item.observe_only for item in weights(plan))
    assert (result.model.parent / "model_cali_table_from_sophgo_mq_Academic_NLP").is_file()


def test_the_report_has_a_row_for_every_key(tmp_path: Path) -> None:
    given = json.loads((FILES / "integers.json").read_text())
    run(RESNET, "integers.json", tmp_path)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    keys = {row["key"] for row in _rows(report)}
    assert {f"quant_dict.{key}" for key in given["quant_dict"]} <= keys
    for name, entry in given["extra_qconfig_dict"]["module_name"].items():
        assert {f"extra_qconfig_dict.module_name['{name}'].{key}" for key in entry} <= keys
    for key, value in given["extra_qconfig_dict"].items():
        if isinstance(value, str):
            assert f"extra_qconfig_dict.{key}" in keys
        elif key.endswith("qscheme"):
            assert {f"extra_qconfig_dict.{key}.{part}" for part in value} <= keys
    assert {f"extra_quantizer_dict.{key}" for key in given["extra_quantizer_dict"]} <= keys


def _rows(report: Any) -> list[dict[str, str]]:
    """The table of keys, wherever the report has it."""
    found: list[dict[str, str]] = []
    pending = [report]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if {"key", "value", "became"} <= set(value):
                found.append(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return found


def test_the_layers_as_printed_are_refused_in_a_float8_model() -> None:
    given = json.loads((FILES / "integers.json").read_text())
    given["extra_qconfig_dict"] |= {"w_fakequantize": "E4M3FakeQuantize", "a_fakequantize": "E4M3FakeQuantize"}
    with pytest.raises(ConfigError, match="Use E4M3FakeQuantize here"):
        prepare_by_platform(exported(RESNET), given)


# ---- the flow ----------------------------------------------------------------------------------------------------


def test_the_flow_of_sophgo_mq_gives_the_files(tmp_path: Path) -> None:
    image = samples(RESNET)["image"]
    prepared = prepare_by_platform(exported(RESNET), config("BM1688", quant={"strategy": "CNN"}))
    enable_calibration(prepared)
    expected = prepared(image)
    enable_quantization(prepared)
    rounded = prepared(image)
    disable_all(prepared)
    assert np.array_equal(prepared(image), expected)
    assert not np.array_equal(rounded, expected)
    noise = np.square(rounded - expected).sum() / np.square(expected).sum()
    assert 10 * np.log10(1 / noise) > 20
    result = convert_deploy(
        prepared, "CNN", input_shape_dict={"image": [1, 3, 32, 32]}, output_path=tmp_path, model_name="resnet18"
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert {
        "resnet18.onnx",
        "resnet18_deploy_model.onnx",
        "resnet18_cali_table_from_sophgo_mq_sophgo_tpu",
        "resnet18_q_table_from_sophgo_mq_sophgo_tpu",
        "resnet18_clip_ranges.json",
        "resnet18_weight_name_to_unique_id.json",
    } <= names
    assert onnxq.load(result.model).shape("image") == (1, 3, 32, 32)


def test_the_name_of_the_files_may_stand_in_quant_dict(tmp_path: Path) -> None:
    prepared = prepare_by_platform(exported(RESNET), config(quant={"model_name": "net"}))
    enable_calibration(prepared)
    prepared(samples(RESNET)["image"])
    assert convert_deploy(prepared, output_path=tmp_path / "first").model.name == "net.onnx"
    assert convert_deploy(prepared, output_path=tmp_path / "second", model_name="own").model.name == "own.onnx"


def test_arguments_about_torch_and_tpu_mlir_say_that_they_have_no_effect(tmp_path: Path) -> None:
    prepared = prepare_by_platform(exported(RESNET), config(), input_shape_dict=[[1, 3, 32, 32]], cuda=0)
    for key in ("input_shape_dict", "cuda"):
        assert became(prepared.translation, key).startswith("no effect")
    enable_calibration(prepared)
    prepared(samples(RESNET)["image"])
    convert_deploy(prepared, output_path=tmp_path / "out", mlir_deploy=False, chip="BM1688")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {"convert_deploy.mlir_deploy", "convert_deploy.chip"} <= {row["key"] for row in _rows(report)}


def test_what_is_wrong_in_the_flow_is_named(tmp_path: Path) -> None:
    prepared = prepare_by_platform(exported(RESNET), config())
    with pytest.raises(DataError, match="enable_calibration"):
        convert_deploy(prepared, output_path=tmp_path)
    with pytest.raises(ConfigError, match="prepared for sophgo_bm1688"):
        convert_deploy(prepared, "Transformer", output_path=tmp_path)
    with pytest.raises(ConfigError, match="Did you mean 'CNN'"):
        convert_deploy(prepared, "CNNs", output_path=tmp_path)
    with pytest.raises(ConfigError, match="Call prepare_by_platform with that chip"):
        convert_deploy(prepared, output_path=tmp_path, chip="BM1684X")
    with pytest.raises(ConfigError, match="unknown argument 'model_nam'"):
        convert_deploy(prepared, output_path=tmp_path, model_nam="net")
    with pytest.raises(ConfigError, match="prepare_by_platform is expected"):
        convert_deploy("model.onnx")  # type: ignore[arg-type]


def test_a_torch_module_is_refused_with_the_way_to_export_it() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ModelError, match=r"torch\.onnx\.export"):
        prepare_by_platform(torch.nn.ReLU(), config())


def test_nothing_of_torch_or_onnxruntime_is_loaded_for_a_translation() -> None:
    code = (
        "import sys, onnxq, onnxq.targets.sophgo.dialect as s\n"
        f"s.translate({config()!r}, onnxq.load({str(exported(RESNET))!r}))\n"
        "sys.exit(len({'torch', 'onnxruntime'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- the command line --------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="onnxq")


def test_a_configuration_file_names_the_target_of_a_command(tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, **samples(RESNET))  # type: ignore[arg-type]
    model, out = str(exported(RESNET)), str(tmp_path / "out")
    done = invoke("quantize", model, "--sophgo", str(FILES / "integers.json"), "-d", str(data), "-o", out)
    assert done.exit_code == 0, done.output
    assert "sophgo_sg2260" in json.loads((tmp_path / "out" / "report.json").read_text())["backend"]


def test_a_command_writes_the_translation(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    done = invoke("translate", str(exported(RESNET)), "--sophgo", str(FILES / "integers.json"), "-o", str(settings))
    assert done.exit_code == 0, done.output
    assert "quant_dict.chip" in done.output
    assert json.loads(settings.read_text())["backend"].startswith("sophgo_sg2260:")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"quant_dict"', '"quant_dic"', "Did you mean 'quant_dict'"),
        ("SG2260", "SG2261", "Did you mean 'SG2260'"),
        ('"w_observer": "MinMaxObserver"', '"w_observer": "MinMaxObservr"', "Did you mean 'MinMaxObserver'"),
        ("layer2.conv2", "layer2.conv3", "Did you mean"),
        ("ConvReLU2d_sophgo", "ConvReLu2d_sophg", "Did you mean"),
        ("torch.nn.functional.sigmoid", "torch.nn.functional.sigmod", "Did you mean"),
    ],
)
def test_a_typing_error_ends_a_command_with_the_nearest_name(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (FILES / "integers.json").read_text()
    assert old in text
    file = tmp_path / "config.json"
    file.write_text(text.replace(old, new))
    done = invoke("translate", str(exported(RESNET)), "--sophgo", str(file), "-o", str(tmp_path / "settings.json"))
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
