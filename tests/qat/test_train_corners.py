"""Training with data, settings and metrics that fit badly: each is an error in time, or is done right."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from onnxq import demo
from onnxq.cli.commands.qat import _summary
from onnxq.emit import emit
from onnxq.errors import ConfigError, DataError
from onnxq.qat import QatResult, agreement, convert, prepare, qat, train
from onnxq.qat.flow import NO_NUMBER
from tests.qat.digits_qat import DATA, prepared

ROWS = np.random.default_rng(0).normal(size=(64, 1, 4, 4)).astype(np.float32)
CLASSES = np.arange(64) % 3


def model_of(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, values in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def weight(rows: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, 3)).astype(np.float32)


def trained(model: Any, data: Any, folder: Path, **options: Any) -> QatResult:
    settings = {"epochs": 1, **options.pop("settings", {})}
    found = qat(model, "onnxruntime", train_on=data, out=folder, settings=settings, **options)
    assert found is not None
    return found


@pytest.mark.parametrize("built_in", [-1, 1])
def test_ready_batches_of_a_model_with_a_fixed_batch_are_evaluated_and_cut(built_in: int, tmp_path: Path) -> None:
    model = model_of(
        "g (float[1, 1, 4, 4] x) => (float[1, 3] y) { f = Reshape(x, s) y = MatMul(f, w) }",
        s=np.array([built_in, 16], np.int64),
        w=weight(16),
    )
    batches = [(ROWS[i : i + 8], CLASSES[i : i + 8]) for i in range(0, 64, 8)]
    found = trained(model, batches, tmp_path / "out").training
    assert found.batch_size == 8
    assert found.steps == 8
    reference = (ROWS.reshape(64, 16) @ weight(16)).argmax(1) == CLASSES
    assert found.metrics[0] == pytest.approx(reference.mean(), abs=0.1)


def test_batches_of_different_lengths_calibrate_too(tmp_path: Path) -> None:
    model = model_of(
        "g (float[n, t, 4] x) => (float[n, 3] y) { h = MatMul(x, w) y = ReduceMean<axes = [1], keepdims = 0>(h) }",
        w=weight(4),
    )
    draw = np.random.default_rng(2)
    batches = [(draw.normal(size=(4, 5 + n, 4)).astype(np.float32), np.arange(4) % 3) for n in range(4)]
    assert trained(model, batches, tmp_path / "out").training.steps == 4


def test_labels_of_another_shape_are_refused_where_only_the_metric_reads_them(tmp_path: Path) -> None:
    data = DATA.train_images[:32], DATA.train_labels[:32, None]
    with pytest.raises(DataError, match=r"needs classes of the shape \[32\]"):
        trained(demo.model_path(), data, tmp_path / "out", settings={"distill": 1.0})


def test_a_metric_that_is_never_a_number_is_reported(tmp_path: Path) -> None:
    (tmp_path / "metric.py").write_text("def useless(outputs, labels):\n    return float('nan')\n")
    data = DATA.train_images[:32], DATA.train_labels[:32]
    metric = f"{tmp_path / 'metric.py'}:useless"
    report = trained(demo.model_path(), data, tmp_path / "out", metric=metric).result.report
    assert report["warnings"] == [NO_NUMBER]
    assert report["training"]["after_epoch"] == 1
    assert ("useless", "nan after training (epoch 1)") in list(_summary(report["training"]))


def test_too_few_samples_for_a_fixed_batch_are_named(tmp_path: Path) -> None:
    model = model_of("g (float[16, 4] x) => (float[16, 3] y) { y = MatMul(x, w) }", w=weight(4))
    rows = ROWS.reshape(64, 16)[:, :4]
    few = {"train_on": (rows, CLASSES), "evaluate_on": (rows[:8], CLASSES[:8])}
    with pytest.raises(DataError, match="not enough for one batch; the model takes batches of 16"):
        qat(model, "onnxruntime", out=tmp_path / "out", **few)


def test_quantization_that_would_never_begin_is_refused() -> None:
    data = DATA.train_images[:32], DATA.train_labels[:32]
    with pytest.raises(ConfigError, match="quantize_from = 5 is after the last of 1 steps"):
        train(prepared("onnxruntime"), data, {"epochs": 1, "quantize_from": 5.0})


def test_a_net_without_anything_to_train_is_refused() -> None:
    net = prepare(demo.model_path(), "onnxruntime", {"image": DATA.calibration[:8]}, trainable=[])
    with pytest.raises(ConfigError, match="nothing to train"):
        train(net, (DATA.train_images[:32], DATA.train_labels[:32]), {"epochs": 1})


def test_the_file_is_held_against_the_net_as_the_user_left_it(tmp_path: Path) -> None:
    net = prepared("onnxruntime", {"weight": {"bits": 3}})
    found = convert(net)
    emit(found.graph, found.plan, found.qparams, net.prepared.backend, tmp_path, "model")
    feeds = [{"image": image[None]} for image in DATA.calibration[:4]]
    net.mute(True)  # a phase of training, which says nothing about the file
    (logits,) = agreement(net, tmp_path / "model.onnx", feeds, found.qparams)
    assert logits.within == 1.0
    assert all(module.muted for module in net.fake_quantizers.values())
    weight = next(module for module in net.fake_quantizers.values() if module.role == "weight")
    weight.disable_fake_quant()
    (logits,) = agreement(net, tmp_path / "model.onnx", feeds, found.qparams)
    assert logits.largest > 1.0
    assert not weight.quantizing
    net.quantize(False)
    with pytest.raises(ConfigError, match="every fake-quantizer of the net is switched off"):
        convert(net)


@pytest.mark.parametrize("kind", ["adaround", "dorefa"])
def test_a_copy_of_a_net_keeps_what_its_fake_quantizers_train_and_where(kind: str) -> None:
    net = prepared("onnxruntime", {"weight": {"fake_quantizer": kind}, "activation": {"fake_quantizer": "lsq"}})
    image = torch.from_numpy(DATA.test_images[:4])
    assert torch.equal(copy.deepcopy(net).eval()(image), net.eval()(image))
    net.fake_quantizers.requires_grad_(False)
    twin = copy.deepcopy(net.to("meta"))
    assert not any(parameter.requires_grad for parameter in twin.fake_quantizers.parameters())
    assert {value.device.type for value in (*twin.parameters(), *twin.buffers())} == {"meta"}
