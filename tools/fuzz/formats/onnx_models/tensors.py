"""Constants: claims that do not fit the bytes, values that are no numbers, data outside of the file."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change
from tools.fuzz.formats.onnx_models.parts import any_graph, any_tensor

DATA_FILE = "weights.bin"
DATA_BYTES = 4096
"""A file of this name and size lies beside every mutated model."""

LOCATIONS = (
    *(
        DATA_FILE,
        DATA_FILE,
        DATA_FILE,
        "missing.bin",
        "../outside.bin",
        "/etc/passwd",
        "null\x00byte",
        "n" * 300,
        "d/" * 2500 + "w",
    ),
    *("", ".", "..", "model.onnx", "/dev/zero", "C:\\weights.bin", "\x1b[31m.bin"),
)
NUMBERS = ("0", "16", "-1", "4095", "4096", "999999999999", "9" * 40, "", "x", "1.5", "0x10", " 8 ", "1_0", "٣")


def other_dims(model: onnx.ModelProto, rng: Random) -> None:
    if (tensor := any_tensor(model, rng)) is None:
        return
    number = hostile.integer(rng) if rng.random() < 0.4 else hostile.small_integer(rng)
    choice = rng.randrange(4)
    if choice == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = number
    elif choice == 1:
        tensor.dims.append(number)
    elif choice == 2:
        tensor.dims[:] = []
    else:
        tensor.dims[:] = list(tensor.dims)[::-1]


def other_data_type(model: onnx.ModelProto, rng: Random) -> None:
    if tensor := any_tensor(model, rng):
        tensor.data_type = rng.choice((*TensorProto.DataType.values(), 99, -1))


def other_raw_data(model: onnx.ModelProto, rng: Random) -> None:
    if tensor := any_tensor(model, rng):
        data = tensor.raw_data
        tensor.raw_data = rng.choice(
            (b"", data[:-1], data + b"\x00", data[: len(data) // 2], data * 2, b"\xff" * len(data))
        )


def two_kinds_of_data(model: onnx.ModelProto, rng: Random) -> None:
    """Raw data and typed data in one tensor, or typed data of a type that is not said."""
    if tensor := any_tensor(model, rng):
        field = rng.choice(("float_data", "int32_data", "int64_data", "double_data", "uint64_data"))
        getattr(tensor, field).extend([1] * rng.choice((1, 7)))
        if rng.random() < 0.5:
            tensor.ClearField("raw_data")


def odd_values(model: onnx.ModelProto, rng: Random) -> None:
    tensor = any_tensor(model, rng)
    if tensor is None or tensor.data_type != TensorProto.FLOAT or not tensor.raw_data or len(tensor.raw_data) % 4:
        return
    values = np.frombuffer(tensor.raw_data, np.float32).copy()
    if rng.random() < 0.4:
        values[...] = hostile.float_value(rng)
    else:
        values[rng.randrange(values.size)] = hostile.float_value(rng)
    tensor.raw_data = values.tobytes()


def odd_integers(model: onnx.ModelProto, rng: Random) -> None:
    """Constants that are shapes, axes and indices."""
    found = [
        tensor
        for graph in (model.graph,)
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.INT64 and tensor.raw_data and len(tensor.raw_data) % 8 == 0
    ]
    if found:
        tensor = rng.choice(found)
        values = np.frombuffer(tensor.raw_data, np.int64).copy()
        values[rng.randrange(values.size)] = hostile.integer(rng) if rng.random() < 0.5 else hostile.small_integer(rng)
        tensor.raw_data = values.tobytes()


def external_data(model: onnx.ModelProto, rng: Random) -> None:
    if tensor := any_tensor(model, rng):
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        entries = [("location", rng.choice(LOCATIONS))]
        if rng.random() < 0.7:
            entries.append(("offset", rng.choice(NUMBERS)))
        if rng.random() < 0.7:
            entries.append(("length", rng.choice((str(size), rng.choice(NUMBERS)))))
        if rng.random() < 0.2:
            entries.append((hostile.name(rng), hostile.name(rng)))
        if rng.random() < 0.1:
            entries = entries[1:] + entries[1:]
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)


def half_external(model: onnx.ModelProto, rng: Random) -> None:
    """The mark of external data without entries, or entries without the mark."""
    if tensor := any_tensor(model, rng):
        if rng.random() < 0.5:
            tensor.data_location = TensorProto.EXTERNAL
        else:
            tensor.external_data.add(key="location", value=DATA_FILE)


def sparse_initializer(model: onnx.ModelProto, rng: Random) -> None:
    """An initializer said as a sparse one, with indices that may lie outside."""
    dense = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.raw_data and t.dims]
    if not dense:
        return
    tensor = rng.choice(dense)
    count = rng.choice((0, 1, 3))
    last = max(1, len(tensor.raw_data) // 4)
    indices = [rng.choice((0, 1, last - 1, last, -1, 2**40)) for _ in range(count)]
    values = numpy_helper.from_array(np.ones(count, np.float32), rng.choice((tensor.name, tensor.name, "", "nowhere")))
    index_shape = rng.choice(((count,), (count, len(tensor.dims)), (count, 1)))
    wanted = int(np.prod(index_shape))
    index_values = np.array((indices * (wanted or 1))[:wanted], np.int64)
    if index_values.size != wanted:
        return
    positions = numpy_helper.from_array(index_values.reshape(index_shape), "indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, positions, list(tensor.dims)))
    model.graph.initializer.remove(tensor)


def remove_initializer(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    if getattr(graph, "initializer", None):
        del graph.initializer[rng.randrange(len(graph.initializer))]


def repeat_initializer(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    if getattr(graph, "initializer", None):
        graph.initializer.add().CopyFrom(rng.choice(graph.initializer))


def rename_initializer(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    if getattr(graph, "initializer", None):
        others = [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
        rng.choice(graph.initializer).name = rng.choice(("", hostile.name(rng), rng.choice(others)))


def text_initializer(model: onnx.ModelProto, rng: Random) -> None:
    if (tensor := any_tensor(model, rng)) is not None:
        tensor.ClearField("raw_data")
        tensor.data_type = TensorProto.STRING
        tensor.string_data.extend([b"text", b"\xff"][: max(1, len(tensor.dims))])


def segmented(model: onnx.ModelProto, rng: Random) -> None:
    if tensor := any_tensor(model, rng):
        tensor.segment.begin, tensor.segment.end = hostile.integer(rng), hostile.integer(rng)


CHANGES: Mapping[str, Change] = {
    f"tensor.{change.__name__}": change
    for change in (
        *(other_dims, other_data_type, other_raw_data, two_kinds_of_data, odd_values, odd_integers, external_data),
        *(half_external, sparse_initializer, remove_initializer, repeat_initializer, rename_initializer),
        *(text_initializer, segmented),
    )
}
