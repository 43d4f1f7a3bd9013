"""Models out of memory: as one protobuf, as a skeleton without weights, or as files.

Each file is first written under a temporary name in the target folder and then renamed, data before model, so that a
killed run never leaves half a file. Large models go to disk one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx

from onnxq.errors import ModelError
from onnxq.files import replace_file
from onnxq.graph.nodes import Scope
from onnxq.graph.store import DataWriter, KeptApart, StoreTensor, store_inline, store_skeleton
from onnxq.graph.values import SparseValues
from onnxq.graph.write import INITIALIZERS_APART, GraphWriter, constants_of, weight_bytes

PROTOBUF_LIMIT = 2**31 - 2**24
"""Models are kept inside one protobuf below this size; it leaves room for everything that is not a weight."""


def skeleton(header: onnx.ModelProto, main: Scope) -> onnx.ModelProto:
    """The model with large weights left out: valid for shape inference, not for running."""
    return _model(header, main, store_skeleton, str, in_users_words=False)


def inline_model(header: onnx.ModelProto, main: Scope, node_name: Callable[[str], str] = str) -> onnx.ModelProto:
    """The whole model as one ModelProto; refused above the size that protobuf can hold."""
    size = weight_bytes(main)
    if size > PROTOBUF_LIMIT:
        raise ModelError(
            f"the model's weights take {size:,} bytes, more than one protobuf holds; save it with external data instead"
        )
    return _model(header, main, store_inline, node_name)


def model_with_weights_apart(
    header: onnx.ModelProto, main: Scope, node_name: Callable[[str], str] = str
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model without the values of large initializers, and these, by their names: for onnxruntime in this process.

    What is an input too stays inside: a value of its own would not be a constant there. So does what no node reads:
    onnxruntime drops it before it looks for the values of others.
    """
    constants = constants_of(main, is_main=True).items()
    plain = {name for name, held in constants if held.outputs and not isinstance(held._values, SparseValues)}
    apart = KeptApart(() if header.ir_version < INITIALIZERS_APART else plain.difference(main.overridable))
    return _model(header, main, apart.store, node_name, store_attribute=store_inline), apart.values


def save_model(
    header: onnx.ModelProto, main: Scope, path: Path, external: bool, node_name: Callable[[str], str] = str
) -> list[Path]:
    """Write `path` (and `path`.data when `external`); returns the files written."""
    if not path.parent.is_dir():
        raise ModelError(f"the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise ModelError(f"{path} is a folder; give the path of the file to write")
    if not external:
        data = inline_model(header, main, node_name).SerializeToString(deterministic=True)
        replace_file(path, lambda stream: stream.write(data))
        return [path]

    data_path = path.with_name(path.name + ".data")
    written: list[onnx.ModelProto] = []

    def write_data(stream: BinaryIO) -> None:
        written.append(_model(header, main, DataWriter(stream, data_path.name).store, node_name))

    replace_file(data_path, write_data)
    replace_file(path, lambda stream: stream.write(written[0].SerializeToString(deterministic=True)))
    return [path, data_path]


def _model(
    header: onnx.ModelProto,
    main: Scope,
    store: StoreTensor,
    node_name: Callable[[str], str],
    *,
    in_users_words: bool = True,
    store_attribute: StoreTensor | None = None,
) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(header)
    try:
        GraphWriter(store, node_name, header.ir_version, in_users_words, store_attribute).graph(model.graph, main)
    except UnicodeDecodeError as error:
        raise ModelError(f"the model has a doc string or metadata that is not UTF-8 text: {error.object!r}") from error
    return model
