"""Files that are no models, and models that are not valid: always a ModelError that says what and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxq.errors import ModelError, OnnxqError
from onnxq.graph import Graph, load
from tests.graph.models import body, model, node, sample, value


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model file at .*gone\.onnx"):
        load(tmp_path / "gone.onnx")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"not a model at all", b"\x00" * 100, b"\xff" * 50, b"PK\x03\x04zip", b'{"a": 1}']
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.onnx"):
        load(path)


def test_a_model_cut_off_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    whole = model([node("Add", "x c", "t"), node("Relu", "t", "y")], constants={"c": sample(2, 3)}).SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(0, len(whole) - 1, 3):
        path.write_bytes(whole[:length])
        with pytest.raises(OnnxqError):
            load(path).to_model()


def test_random_damage_never_raises_anything_else(tmp_path: Path) -> None:
    import numpy as np

    whole = bytearray(
        model(
            [node("Conv", "x w", "t", pads=[1, 1, 1, 1]), node("Relu", "t", "y")], constants={"w": sample(2, 3)}
        ).SerializeToString()
    )
    generator = np.random.default_rng(0)
    path = tmp_path / "m.onnx"
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for place in generator.integers(0, len(whole), 3):
            damaged[place] = int(generator.integers(0, 256))
        path.write_bytes(bytes(damaged))
        try:
            graph = load(path)
            for constant in graph.constants():
                graph.values(constant)
            graph.to_model()
        except OnnxqError:
            refused += 1
    assert refused > 30


def spoiled(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    source = model(
        [node("Add", "x c", "t", name="add"), node("Relu", "t", "y", name="act")], constants={"c": sample(2, 3)}
    )
    change(source)
    return source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.ClearField("opset_import"), "no opset"),
        (lambda m: m.ClearField("graph"), "no graph"),
        (lambda m: setattr(m.opset_import[0], "domain", "my.domain"), "default ONNX operator set"),
        (lambda m: m.graph.node[1].input.__setitem__(0, "ghost"), "node 'act'.*'ghost'"),
        (lambda m: setattr(m.graph.output[0], "name", "ghost"), "output of graph.*'ghost'"),
        (lambda m: m.graph.node[1].output.__setitem__(0, "t"), "'t' is defined twice"),
        (lambda m: m.graph.node[1].output.__setitem__(0, "x"), "'x' is defined twice"),
        (lambda m: m.graph.node[1].output.__setitem__(0, "c"), "'c' is defined twice"),
        (lambda m: m.graph.input.append(value("x")), "'x' is defined twice"),
        (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "'c' is defined twice"),
        (lambda m: m.graph.initializer[0].ClearField("name"), "no name"),
        (lambda m: m.graph.input[0].ClearField("name"), "no name"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77), "'x'.*77"),
    ],
)
def test_invalid_models_are_refused_by_name(change: Callable[[onnx.ModelProto], object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Graph.from_model(spoiled(change))


def test_a_tensor_of_one_branch_is_unknown_in_the_other() -> None:
    then = body([node("Neg", "x", "inner"), node("Neg", "inner", "o")], [value("o")])
    other = body([node("Abs", "inner", "p", name="peek")], [value("p")])
    source = model(
        [node("If", "k", "y", then_branch=then, else_branch=other)], [value("x"), value("k", (), onnx.TensorProto.BOOL)]
    )
    with pytest.raises(ModelError, match=r"node 'peek'.*'inner'"):
        Graph.from_model(source)


def test_saving_into_a_missing_folder_or_over_a_folder_is_refused(tmp_path: Path) -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    with pytest.raises(ModelError, match="does not exist"):
        graph.save(tmp_path / "gone" / "m.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        graph.save(tmp_path)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    graph = Graph.from_model(model([node("Relu", "x", "y", name="act")]))
    graph.save(path)
    before = path.read_bytes()
    graph.node("act").attrs["bad"] = object()
    for external in (True, False):
        with pytest.raises(ModelError):
            graph.save(path, external=external)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
