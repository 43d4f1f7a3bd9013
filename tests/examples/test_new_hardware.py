"""The chip of examples/17-new-hardware: each of its parts does what the tutorial says."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq import demo
from onnxq.emit import EMITTERS, EmitRequest
from onnxq.errors import CheckFailed, ConfigError
from onnxq.graph import Graph
from onnxq.numerics import dequantize, fake_quantize, quantize
from onnxq.observers import HistogramStatistic, make_observer
from onnxq.place import place
from onnxq.targets import get_backend
from onnxq.types import PerChannel, QParams, QParamsTable, QuantSpec
from onnxq.verify import lint
from tests.examples.runnable import ROOT

EXAMPLE = ROOT / "examples" / "17-new-hardware"
pytestmark = pytest.mark.usefixtures("plugins_forgotten")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the chip, with its compiler beside it, and loaded."""
    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("out", "__pycache__", "*.npz"))
    found = tmp_path / "example" / "quill"
    get_backend(f"{found}/")
    return found


def one_conv(width: int) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.full((2, 1, 3, 3), 0.1, np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, width])
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_the_numbers_are_those_of_the_table_and_torch_has_the_same_bits(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    spec = QuantSpec("slope6")
    qparams = QParams(spec, np.float32(0.25), np.int32(0))
    numbers = np.unique(dequantize(np.arange(64, dtype=np.uint8), qparams) / 0.25)
    positive = [*range(17), *range(20, 77, 4)]
    assert numbers.tolist() == sorted({-number for number in positive} | set(positive))
    values = np.linspace(-25, 25, 200_001, dtype=np.float32)
    exact = 0.25 * numbers[np.abs(values[:, None] / 0.25 - numbers).argmin(1)]
    found = fake_quantize(values, qparams)
    assert np.abs(np.abs(values - found) - np.abs(values - exact)).max() == 0.0  # a nearest one, whichever it is
    assert quantize(np.array([0.125, -0.125, 4.5], np.float32), qparams).tolist() == [0, 0, 16]  # ties to the smaller
    in_torch = spec.format.torch_values(torch.from_numpy(values), torch.tensor(0.25), torch.tensor(0), spec)
    assert in_torch.numpy().tobytes() == found.tobytes()


def test_the_observer_puts_a_share_of_the_values_below_the_knee(folder: Path) -> None:
    values = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    statistic = HistogramStatistic()
    statistic.update(values)
    low, high = make_observer("knee:share=0.5").rows(statistic, QuantSpec("slope6"))
    assert np.mean(np.abs(values) <= float(high[0]) / 76 * 16) == pytest.approx(0.5, abs=0.01)
    assert float(low[0]) == -float(high[0])
    with pytest.raises(ConfigError, match="share of observer 'knee'"):
        make_observer("knee:share=0")


def quantized(folder: Path, out: Path) -> Any:
    images = demo.load_data().calibration[:8]
    return onnxq.quantize(demo.model_path(), backend=f"{folder}/", data=images, config={"effort": 0}, out=out)


def test_scales_fit_the_register_and_the_compiler_runs(folder: Path, tmp_path: Path) -> None:
    result = quantized(folder, tmp_path / "out")
    for tensor in result.qparams:
        registers = result.qparams[tensor].scale.astype(np.float64) * 4096
        assert np.array_equal(registers, np.round(registers))
        assert registers.min() >= 1
    table = (tmp_path / "out" / "model.quill").read_text().splitlines()
    assert len(table) == 1 + len(result.plan)
    program = (tmp_path / "out" / "model.bin").read_bytes()
    assert program[:4] == b"QUIL"
    notes = json.loads((tmp_path / "out" / "report.json").read_text())["notes"]
    assert any(note.startswith("quillc: 16 tensors") for note in notes)


def test_the_table_is_read_back_as_the_chip_reads_it(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    graph = Graph.from_model(one_conv(4))
    backend = get_backend(f"{folder}/")
    plan = place(graph, backend)
    table = QParamsTable()
    for placement in plan:
        channels = (2,) if isinstance(placement.spec.granularity, PerChannel) else ()
        scale, zero = np.full(channels, 0.25, np.float32), np.zeros(channels, np.int32)
        table.put(placement.tensor, QParams(placement.spec, scale, zero), "test")
    emitter = EMITTERS.get("quill_table")
    request = EmitRequest(graph, plan, table, backend, tmp_path, "model")
    assert emitter.read_back is not None
    emitter(request)
    assert list(emitter.read_back(request)) == []
    # A fault of the writer's own function: reading back must not ask the same function again.
    module = sys.modules[emitter.read_back.__module__]
    right = module.register_of
    monkeypatch.setattr(module, "register_of", lambda scale: 2 * right(scale))
    emitter(request)
    assert len(list(emitter.read_back(request))) == len(plan)
    monkeypatch.setattr(module, "register_of", right)
    monkeypatch.setattr(module, "quantize", lambda values, qparams: quantize(values, qparams) ^ 1)
    emitter(request)
    assert list(emitter.read_back(request)) == ["model.quill: 'weight w' has other numbers than the parameters"]


def test_what_the_compiler_refuses_is_an_error_and_nothing_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strict.py").write_text("raise SystemExit('this table is too large')")
    monkeypatch.setenv("QUILLC", str(tmp_path / "strict.py"))
    with pytest.raises(CheckFailed, match=r"quillc refuses model\.quill: this table is too large"):
        quantized(folder, tmp_path / "out")
    assert not (tmp_path / "out" / "model.onnx").exists()
    monkeypatch.setenv("QUILLC", str(tmp_path / "nowhere.py"))
    with pytest.raises(ConfigError, match="set the environment variable QUILLC"):
        quantized(folder, tmp_path / "out")


def test_long_lines_are_found_in_any_file(folder: Path) -> None:
    backend = get_backend(f"{folder}/")
    assert not lint(Graph.from_model(one_conv(1024)), backend)
    (finding,) = lint(Graph.from_model(one_conv(1025)), backend)
    assert "reads lines of 1025 values" in str(finding)


def test_training_learns_scales_that_the_register_holds(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from onnxq import qat

    net = qat.prepare(demo.model_path(), f"{folder}/", demo.load_data().calibration[:8])
    module = net.fake_quantizers["stem.conv.weight"]
    with torch.no_grad():
        module.scale.mul_(1.01)
    scale, _ = module.qparams()
    assert torch.equal(scale * 4096, (scale * 4096).round())
    scale.sum().backward()
    assert module.scale.grad is not None
    assert not any("was changed after training" in note for note in (qat.convert(net), net.notes)[1])
