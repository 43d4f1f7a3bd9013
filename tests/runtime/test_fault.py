"""A model that onnxruntime refuses: bad input if the user gave it so, a fault of onnxq if onnxq has made it so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.errors import InternalError, OnnxqError
from onnxq.graph import Graph
from onnxq.pipeline import written as pipeline
from onnxq.runtime.expose import Exposer
from tests.graph.models import model, node, sample, value


def two_layers() -> onnx.ModelProto:
    nodes = [
        node("MatMul", "x w", "a", name="first"),
        node("Relu", "a", "b", name="relu"),
        node("MatMul", "b v", "y", name="second"),
    ]
    return model(nodes, [value("x", (2, 4))], [value("y", (2, 4))], {"w": sample(4, 4), "v": sample(4, 4)})


def quantized(given: onnx.ModelProto, out: Path, backend: str = "onnxruntime") -> Any:
    return onnxq.quantize(given, backend=backend, data=[{"x": sample(2, 4)}], config={"effort": 0}, out=out)


def break_taps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exposer, "expose", lambda self, tensor: "nothing")


def break_emitted_files(monkeypatch: pytest.MonkeyPatch) -> None:
    write = pipeline.emit

    def damaged(*arguments: Any, **named: Any) -> Any:
        emitted = write(*arguments, **named)
        path = next(path for path in emitted.files if path.suffix == ".onnx")
        written = onnx.load(path)
        next(item for item in written.graph.node if item.name == "second").op_type = "LSTM"
        onnx.save(written, path)
        return emitted

    monkeypatch.setattr(pipeline, "emit", damaged)


def break_running_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file loads, and onnxruntime stops at one of its nodes."""
    write = pipeline.emit

    def damaged(*arguments: Any, **named: Any) -> Any:
        emitted = write(*arguments, **named)
        path = next(path for path in emitted.files if path.suffix == ".onnx")
        written = onnx.load(path)
        last = next(item for item in written.graph.node if "y" in item.output)
        last.output[0] = "y_before"
        rows = onnx.helper.make_node("Slice", ["x", "zero", "one"], ["row"], name="a_row")
        asked = onnx.helper.make_node("NonZero", ["row"], ["found"], name="asked")
        shape = onnx.helper.make_node("ReduceMax", ["found"], ["shape"], name="largest", keepdims=1)
        written.graph.node.extend([rows, asked, shape])
        written.graph.node.append(onnx.helper.make_node("Expand", ["y_before", "shape"], ["y"], name="second_again"))
        written.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.int64([number]), name) for name, number in (("zero", 0), ("one", 1))
        )
        onnx.save(written, path)
        return emitted

    monkeypatch.setattr(pipeline, "emit", damaged)


@pytest.mark.parametrize("break_it", [break_taps, break_emitted_files, break_running_files])
def test_a_model_that_onnxq_has_made_and_onnxruntime_refuses_is_a_fault_of_onnxq(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_it(monkeypatch)
    with pytest.raises(InternalError, match="onnxruntime refuses a model that onnxq has made") as raised:
        quantized(two_layers(), tmp_path / "out")
    assert raised.value.exit_code == 3
    assert "It runs the float model on the same data" in str(raised.value)
    assert "--skip" in str(raised.value)
    assert not list(tmp_path.glob("out/*.onnx"))


def test_a_simulated_model_that_does_not_load_is_a_fault_of_onnxq(tmp_path: Path) -> None:
    broken = Graph.from_model(two_layers())
    broken.node("second").op = "LSTM"
    with pytest.raises(InternalError, match="refuses a model that onnxq has made"):
        pipeline.check_simulated(broken, Graph.from_model(two_layers()), tmp_path / "s.onnx", None)


def test_a_model_that_onnxruntime_refuses_as_it_was_given_is_bad_input(tmp_path: Path) -> None:
    given = two_layers()
    given.graph.node.append(node("Concat", "a b", "z", name="joined", axis=9))
    given.graph.output.append(value("z", (2, 8)))
    with pytest.raises(OnnxqError) as raised:
        quantized(given, tmp_path)
    assert raised.value.exit_code == 2


def test_data_on_which_the_float_model_fails_too_is_bad_input(tmp_path: Path) -> None:
    """A Reshape to 2 rows of 4, which a sample with 3 rows does not have."""
    nodes = [node("MatMul", "x w", "a", name="layer"), node("Reshape", "a shape", "y", name="rows")]
    constants = {"w": sample(4, 4), "shape": np.int64([2, 4])}
    given = model(nodes, [value("x", ("n", 4))], [value("y", (2, 4))], constants)
    feeds = [{"x": sample(2, 4)}, {"x": sample(3, 4)}]
    with pytest.raises(OnnxqError, match="could not run the model on sample 1") as raised:
        onnxq.quantize(given, backend="onnxruntime", data=feeds, config={"effort": 0}, out=tmp_path)
    assert raised.value.exit_code == 2


def test_the_command_line_ends_with_3_and_names_the_file_to_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_taps(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    onnx.save(two_layers(), tmp_path / "model.onnx")
    command = ["quantize", tmp_path / "model.onnx", "-b", "onnxruntime", "--random", 2, "-o", tmp_path / "out"]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 3
    said = " ".join(result.stderr.split())
    assert "this is a fault of onnxq, and not of the model" in said
    assert re.search(r"Please report it with the model, the command and \S*onnxq-crash-\S+\.txt", said)
    (kept,) = tmp_path.glob("onnxq-crash-*.txt")
    assert "Traceback" in kept.read_text()
