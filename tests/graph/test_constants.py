"""Every element type of ONNX: read, written unchanged, and made new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import ModelError
from onnxq.graph import DeferredValues, Graph
from tests.graph.models import model, node, round_trip, value
from tests.products import each_once

ELEMENT_TYPES = [
    name for name, number in TensorProto.DataType.items() if number not in (TensorProto.UNDEFINED, TensorProto.STRING)
]
SHAPES = [(), (0,), (1,), (7,), (3, 3), (2, 5)]


def some_values(element_type: int, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers that every format can hold, negative ones where it can."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    numbers = np.array([1, 2, 0.5, -1, 1, -2, 2, 1, -1])[np.arange(int(np.prod(shape))) % 9]
    if dtype.kind == "u" or dtype.name in ("uint4", "uint2", "bool", "float8_e8m0fnu"):
        numbers = np.abs(numbers)
    return numbers.reshape(shape).astype(dtype)


def with_initializer(tensor: TensorProto) -> onnx.ModelProto:
    source = model([node("Relu", "x", "y")])
    source.graph.initializer.append(tensor)
    return source


def bits(array: np.ndarray) -> Any:
    """Values that compare by representation, so that NaN equals NaN."""
    return (str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())


@pytest.mark.parametrize(("name", "shape"), each_once(ELEMENT_TYPES, SHAPES), ids=str)
def test_raw_data_is_read_right_and_written_byte_for_byte(name: str, shape: tuple[int, ...]) -> None:
    expected = some_values(TensorProto.DataType.Value(name), shape)
    tensor = numpy_helper.from_array(expected, "c")
    graph = Graph.from_model(with_initializer(tensor))
    assert bits(graph.values("c").astype(expected.dtype)) == bits(expected)
    assert graph.dtype("c") == expected.dtype
    assert graph.shape("c") == shape
    written = graph.to_model()
    assert written.graph.initializer[0] == tensor
    assert round_trip(written) == written


@pytest.mark.parametrize(("name", "shape"), each_once(ELEMENT_TYPES, SHAPES), ids=str)
def test_typed_fields_are_read_right_and_written_in_the_same_field(name: str, shape: tuple[int, ...]) -> None:
    element_type = TensorProto.DataType.Value(name)
    expected = some_values(element_type, shape)
    numbers = expected.astype(np.complex128 if expected.dtype.kind == "c" else np.float64).reshape(-1)
    tensor = helper.make_tensor("c", element_type, shape, numbers.tolist())
    assert not tensor.HasField("raw_data")
    graph = Graph.from_model(with_initializer(tensor))
    np.testing.assert_array_equal(graph.values("c").astype(expected.dtype), expected)
    assert graph.to_model().graph.initializer[0] == tensor


@pytest.mark.parametrize(("name", "shape", "external"), each_once(ELEMENT_TYPES, SHAPES, [True, False]), ids=str)
def test_new_constants_of_every_type_read_back_the_same(
    name: str, shape: tuple[int, ...], external: bool, tmp_path: Path
) -> None:
    shape = (*shape, 1500) if external else shape  # large enough to leave the protobuf
    expected = some_values(TensorProto.DataType.Value(name), shape)
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    constant = graph.add_constant("c", expected)
    graph.save(tmp_path / "m.onnx", external=external)
    again = Graph.load(tmp_path / "m.onnx")
    assert bits(again.values(constant.name)) == bits(expected)
    onnx_view = onnx.load(tmp_path / "m.onnx")
    assert onnx_view.graph.initializer[0].data_type == TensorProto.DataType.Value(name)
    assert bits(numpy_helper.to_array(onnx_view.graph.initializer[0])) == bits(expected)


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_external_data_of_every_type_survives_a_second_save(name: str, tmp_path: Path) -> None:
    expected = some_values(
        TensorProto.DataType.Value(name), (3, 1501)
    )  # odd: the last byte of packed formats is padded
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    graph.add_constant("c", expected)
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    graph.save(first, external=True)
    Graph.load(first).save(second)
    assert first.with_name("a.onnx.data").read_bytes() == second.with_name("b.onnx.data").read_bytes()
    assert bits(Graph.load(second).values("c")) == bits(expected)


def test_strings_stay_strings_even_when_they_are_not_text() -> None:
    tensor = TensorProto(
        name="c", data_type=TensorProto.STRING, dims=[3], string_data=[b"one", "zwei ü".encode(), b"\xff\xfe"]
    )
    graph = Graph.from_model(with_initializer(tensor))
    assert graph.values("c").tolist() == ["one", "zwei ü", b"\xff\xfe"]
    assert graph.to_model().graph.initializer[0] == tensor


@pytest.mark.parametrize("values", [np.array(["a", "bü"]), np.array(["a", "bü"], dtype=object), np.array([b"a"])])
def test_new_string_constants_are_written_as_strings(values: np.ndarray) -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    graph.add_constant("c", values)
    tensor = graph.to_model().graph.initializer[0]
    assert tensor.data_type == TensorProto.STRING
    assert list(tensor.string_data) == [item if isinstance(item, bytes) else item.encode() for item in values.tolist()]


def test_arrays_in_any_memory_layout_are_written_right() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    layouts = {
        "transposed": plain.T,
        "strided": plain[:, ::2],
        "reversed": plain[::-1],
        "big_endian": plain.astype(">f4"),
    }
    for name, array in layouts.items():
        graph.add_constant(name, array)
    for tensor in graph.to_model().graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), layouts[tensor.name])


def test_values_without_an_onnx_type_are_refused() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    graph.add_constant("when", np.array(["2020-01-01"], dtype="datetime64[D]"))
    with pytest.raises(ModelError, match="datetime64"):
        graph.to_model()


def test_values_that_do_not_fit_the_shape_are_an_error_that_names_the_tensor() -> None:
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"\0" * 8)
    with pytest.raises(ModelError, match="'c'"):
        Graph.from_model(with_initializer(tensor)).values("c")


def test_an_unknown_element_type_is_an_error_that_names_the_tensor() -> None:
    tensor = TensorProto(name="c", data_type=99, dims=[3], raw_data=b"\0" * 8)
    with pytest.raises(ModelError, match="'c' has the element type 99"):
        Graph.from_model(with_initializer(tensor))


@pytest.mark.parametrize(
    ("attribute", "given", "expected"),
    [
        ("value", numpy_helper.from_array(np.array([1, 2], np.int8)), np.array([1, 2], np.int8)),
        ("value_float", 1.5, np.array(1.5, np.float32)),
        ("value_floats", [1.5, 2], np.array([1.5, 2], np.float32)),
        ("value_int", 7, np.array(7, np.int64)),
        ("value_ints", [7, 8], np.array([7, 8], np.int64)),
    ],
)
def test_every_kind_of_constant_node_is_a_constant(attribute: str, given: Any, expected: np.ndarray) -> None:
    source = model([node("Constant", "", "c", **{attribute: given}), node("Relu", "x", "y")])
    graph = Graph.from_model(source)
    assert graph.is_constant("c")
    assert bits(graph.values("c")) == bits(expected)
    assert graph.to_model() == source


def test_a_sparse_constant_node_is_a_constant() -> None:
    sparse = onnx.SparseTensorProto(
        dims=[2, 3],
        values=numpy_helper.from_array(np.array([5, 6], np.float32)),
        indices=numpy_helper.from_array(np.array([1, 5], np.int64)),
    )
    source = model([node("Constant", "", "c", sparse_value=sparse), node("Relu", "x", "y")])
    graph = Graph.from_model(source)
    np.testing.assert_array_equal(graph.values("c"), [[0, 5, 0], [0, 0, 6]])
    assert graph.to_model() == source


@pytest.mark.parametrize("indices", [[[0, 1], [1, 2]], [1, 5]])
def test_sparse_initializers_stay_sparse_and_read_dense(indices: list[Any]) -> None:
    sparse = onnx.SparseTensorProto(
        dims=[2, 3],
        values=numpy_helper.from_array(np.array([5, 6], np.float32), "c"),
        indices=numpy_helper.from_array(np.array(indices, np.int64), "c_indices"),
    )
    source = model([node("Add", "x c", "y")])
    source.graph.sparse_initializer.append(sparse)
    graph = Graph.from_model(source)
    np.testing.assert_array_equal(graph.values("c"), [[0, 5, 0], [0, 0, 6]])
    assert graph.to_model() == source
    assert graph.copy().to_model() == source


def test_a_variable_is_no_constant() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    assert not graph.is_constant("x")
    with pytest.raises(ModelError, match="'y' is not a constant"):
        graph.values("y")


def test_values_are_read_only_or_fresh_so_that_no_reader_changes_another() -> None:
    array = np.arange(3, dtype=np.float32)
    graph = Graph.from_model(with_initializer(numpy_helper.from_array(array, "c")))
    first = graph.values("c")
    if first.flags.writeable:
        first[0] = 99
    np.testing.assert_array_equal(graph.values("c"), array)


def test_deferred_values_are_computed_when_written_and_must_keep_their_promise() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    calls: list[int] = []

    def compute() -> np.ndarray:
        calls.append(1)
        return np.ones((2, 2), ml_dtypes.int4)

    graph.add_constant("good", DeferredValues((2, 2), np.dtype(ml_dtypes.int4), compute))
    assert not calls
    assert numpy_helper.to_array(graph.to_model().graph.initializer[0]).tolist() == [[1, 1], [1, 1]]
    graph.add_constant("bad", DeferredValues((3,), np.dtype(np.int8), lambda: np.ones(3, np.int16)))
    with pytest.raises(ModelError, match="int16"):
        graph.to_model()


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_models_pass_unchanged(dtype: int) -> None:
    weight = helper.make_tensor("w", dtype, [3, 4], np.linspace(-1, 1, 12).tolist())
    source = model([node("MatMul", "x w", "y")], [value("x", (2, 3), dtype)], [value("y", (2, 4), dtype)])
    source.graph.initializer.append(weight)
    graph = Graph.from_model(source)
    graph.infer_shapes()
    assert graph.to_model() == source
    assert graph.dtype("y") == helper.tensor_dtype_to_np_dtype(dtype)
