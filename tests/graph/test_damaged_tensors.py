"""Tensors that a file describes wrongly: shapes without such arrays, too few values, indices outside, odd places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import ModelError
from onnxq.graph import Graph
from tests.graph.models import model, node, sample


def with_weight() -> onnx.ModelProto:
    return model([node("MatMul", "x w", "y")], constants={"w": sample(3, 4)})


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((3, 5), r"'w' do not fit its shape \(3, 5\): there are 48 bytes, and float32 of this shape takes 60"),
        ((3, 3), "there are 48 bytes"),
        ((-3, 4), r"'w' has the shape \(-3, 4\), which no array can have"),
        ((-3, -4), "which no array can have"),
        ((2**40, 2**40), "which no array can have"),
        ((2**62, 4, 3), "which no array can have"),
        ((2**40, 2**40, 0), "which no array can have"),
        ((1,) * 70 + (3, 4), "64 at most"),
        ((2**30, 2**20), "do not fit its shape"),
    ],
)
def test_shapes_and_values_agree(dims: tuple[int, ...], message: str) -> None:
    source = with_weight()
    del source.graph.initializer[0].dims[:]
    source.graph.initializer[0].dims.extend(dims)
    with pytest.raises(ModelError, match=message):
        Graph.from_model(source)


def test_a_tensor_without_an_element_type() -> None:
    source = with_weight()
    source.graph.initializer[0].data_type = TensorProto.UNDEFINED
    with pytest.raises(ModelError, match="'w' has no element type"):
        Graph.from_model(source)


def test_a_tensor_without_values() -> None:
    source = with_weight()
    source.graph.initializer[0].ClearField("raw_data")
    source.graph.initializer[0].dims[0] = 300
    with pytest.raises(ModelError, match="'w' do not fit"):
        Graph.from_model(source)


def test_a_tensor_of_strings_without_strings() -> None:
    source = with_weight()
    source.graph.initializer[0].data_type = TensorProto.STRING
    with pytest.raises(ModelError, match="there are 0 strings"):
        Graph.from_model(source)


def test_a_tensor_in_an_attribute_is_called_by_its_node() -> None:
    tensor = numpy_helper.from_array(sample(3, 4))
    tensor.dims[0] = 5
    with pytest.raises(ModelError, match=r"attribute 'value' of node 'const' \(Constant\): .*do not fit"):
        Graph.from_model(model([node("Constant", "", "w", name="const", value=tensor), node("MatMul", "x w", "y")]))


def sparse(values: list[float], indices: object, dims: tuple[int, ...]) -> onnx.ModelProto:
    source = with_weight()
    del source.graph.initializer[:]
    stored = numpy_helper.from_array(np.asarray(values, np.float32), "w")
    source.graph.sparse_initializer.append(
        helper.make_sparse_tensor(stored, numpy_helper.from_array(np.asarray(indices)), dims)
    )
    return source


@pytest.mark.parametrize(
    ("values", "indices", "dims", "message"),
    [
        ([1, 2], [3, 12], (3, 4), r"sparse tensor 'w' of shape \(3, 4\) has the index 12, which lies outside"),
        ([1, 2], [-1, 3], (3, 4), "has the index -1"),
        ([1, 2], [[0, 0], [2, 4]], (3, 4), r"has the index \[2, 4\]"),
        ([1, 2], [[0, 0, 0], [1, 1, 1]], (3, 4), r"indices of int64\(2, 3\)"),
        ([1, 2, 3], [3, 5], (3, 4), "values of shape"),
        ([1, 2], [3.0, 5.0], (3, 4), "indices of float64"),
        ([1, 2], [3, 5], (-3, 4), "which no array can have"),
        ([1, 2], [0, 0], (), "outside|indices"),
    ],
)
def test_sparse_tensors_are_looked_at_on_load(
    values: list[float], indices: object, dims: tuple[int, ...], message: str
) -> None:
    source = sparse(values, indices, dims)
    if dims == ():
        del source.graph.sparse_initializer[0].dims[:]
        source.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(np.int64([0, 1])))
    with pytest.raises(ModelError, match=message):
        Graph.from_model(source)


@pytest.mark.parametrize("indices", [np.zeros(0, np.int64), np.zeros((0, 2), np.int64)])
def test_a_sparse_tensor_without_values_is_all_zeros(indices: np.ndarray) -> None:
    graph = Graph.from_model(sparse([], indices, (3, 4)))
    np.testing.assert_array_equal(graph.values("w"), np.zeros((3, 4), np.float32))


def test_a_sparse_tensor_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_model(sparse([1, 2], [3, 5], (2**20, 2**18)))

    def no_memory(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "zeros", no_memory)
    with pytest.raises(ModelError, match="takes 1,099,511,627,776 bytes"):
        graph.values("w")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "w\0.bin"}, r"'w' wants external data from 'w\\x00.bin', which cannot be the name of a file"),
        ({"location": "a" * 5000}, "which cannot be the name of a file"),
        ({"location": "a" * 300}, "does not exist"),
        ({"location": "folder"}, "which is not a file"),
        ({"location": "w.bin", "offset": "-4"}, "neither can be negative"),
        ({"location": "w.bin", "length": "-4"}, "neither can be negative"),
        ({"location": "w.bin", "offset": str(2**80)}, "which has only 48"),
        ({"location": "w.bin", "offset": "9" * 5000}, "not a number"),
    ],
)
def test_places_of_external_data(entries: dict[str, str], message: str, tmp_path: Path) -> None:
    source = with_weight()
    tensor = source.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    (tmp_path / "folder").mkdir()
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=entry)
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    with pytest.raises(ModelError, match=message):
        Graph.load(tmp_path / "m.onnx")
