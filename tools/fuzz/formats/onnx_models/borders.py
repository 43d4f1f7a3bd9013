"""What a model says about itself: inputs, outputs, types and shapes of values, opsets, versions, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import onnx
from onnx import TensorProto, TypeProto, helper

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change
from tools.fuzz.formats.onnx_models.parts import any_graph, tensor_names

OPSETS = (
    0,
    1,
    6,
    7,
    9,
    10,
    11,
    12,
    13,
    17,
    18,
    20,
    21,
    22,
    25,
    27,
    99,
    2**31 - 1,
    2**31,
    2**40,
    2**63 - 1,
    -1,
    -(2**63),
)


def _borders(graph: Any) -> list[onnx.ValueInfoProto]:
    """Functions say inputs as names only, and have nothing to change here."""
    return [value for value in (*graph.input, *graph.output) if isinstance(value, onnx.ValueInfoProto)]


def _any_border(model: onnx.ModelProto, rng: Random) -> onnx.ValueInfoProto | None:
    found = _borders(any_graph(model, rng)) or _borders(model.graph)
    return rng.choice(found) if found else None


def _type(rng: Random) -> TypeProto:
    element = helper.make_tensor_type_proto(
        rng.choice((*TensorProto.DataType.values(), 77)), rng.choice((None, [], [1], [1, 3, 8, 8]))
    )
    return rng.choice(
        (
            element,
            helper.make_sequence_type_proto(element),
            helper.make_optional_type_proto(element),
            helper.make_map_type_proto(TensorProto.INT64, element),
            helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2, 2]),
            TypeProto(),
            TypeProto(denotation="IMAGE"),
        )
    )


def _set_dim(value: onnx.ValueInfoProto, rng: Random) -> None:
    dims = value.type.tensor_type.shape.dim
    if not dims or rng.random() < 0.1:
        dims.add()
    dim = rng.choice(dims)
    choice = rng.randrange(4)
    if choice == 0:
        dim.dim_param = rng.choice(("batch", "N", hostile.name(rng)))
    elif choice == 1:
        dim.Clear()
    elif choice == 2:
        dim.dim_value = hostile.integer(rng)
    else:
        dim.dim_value = hostile.small_integer(rng)


def other_border_dim(model: onnx.ModelProto, rng: Random) -> None:
    if value := _any_border(model, rng):
        _set_dim(value, rng)


def other_border_type(model: onnx.ModelProto, rng: Random) -> None:
    if value := _any_border(model, rng):
        value.type.CopyFrom(_type(rng))


def other_element_type(model: onnx.ModelProto, rng: Random) -> None:
    if value := _any_border(model, rng):
        value.type.tensor_type.elem_type = rng.choice((*TensorProto.DataType.values(), 77, -1))


def no_shape(model: onnx.ModelProto, rng: Random) -> None:
    value = _any_border(model, rng)
    if value is not None and value.type.HasField("tensor_type"):
        value.type.tensor_type.ClearField("shape")


def remove_border(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    side = rng.choice((graph.input, graph.output))
    if side:
        del side[rng.randrange(len(side))]


def add_border(model: onnx.ModelProto, rng: Random) -> None:
    """One more input or output: a tensor of the graph, a twin, or a name that nobody knows."""
    name = rng.choice(["nowhere", hostile.name(rng), *tensor_names(model.graph)])
    rng.choice((model.graph.input, model.graph.output)).append(helper.make_value_info(name, _type(rng)))


def rename_border(model: onnx.ModelProto, rng: Random) -> None:
    if value := _any_border(model, rng):
        value.name = rng.choice([hostile.name(rng), *tensor_names(model.graph)])


def lying_value_info(model: onnx.ModelProto, rng: Random) -> None:
    names = tensor_names(model.graph)
    for _ in range(rng.choice((1, 3))):
        if names:
            model.graph.value_info.append(helper.make_value_info(rng.choice(names), _type(rng)))


def overridable_initializer(model: onnx.ModelProto, rng: Random) -> None:
    if model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))


def other_opset(model: onnx.ModelProto, rng: Random) -> None:
    choice = rng.randrange(5)
    if choice == 0:
        del model.opset_import[:]
    elif choice == 1:
        model.opset_import.add(
            domain=rng.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "x")), version=rng.choice(OPSETS)
        )
    elif model.opset_import:
        rng.choice(model.opset_import).version = rng.choice(OPSETS)


def other_ir_version(model: onnx.ModelProto, rng: Random) -> None:
    model.ir_version = rng.choice((0, 1, 3, 4, 7, 8, 10, 13, 99, 2**40, -1))


def metadata(model: onnx.ModelProto, rng: Random) -> None:
    key = hostile.name(rng)
    for _ in range(rng.choice((1, 2))):
        model.metadata_props.add(key=key, value=hostile.name(rng))
    model.producer_name, model.doc_string = hostile.name(rng), hostile.name(rng)
    if model.graph.node and rng.random() < 0.5:
        model.graph.node[0].metadata_props.add(key=key, value=hostile.name(rng))


def quantization_annotation(model: onnx.ModelProto, rng: Random) -> None:
    annotation = model.graph.quantization_annotation.add(
        tensor_name=rng.choice(["nowhere", *tensor_names(model.graph)])
    )
    annotation.quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value=rng.choice(("nowhere", *tensor_names(model.graph)))
    )


def no_graph(model: onnx.ModelProto, rng: Random) -> None:
    choice = rng.randrange(3)
    if choice == 0:
        model.ClearField("graph")
    elif choice == 1:
        del model.graph.node[:]
    else:
        del model.graph.output[:]


CHANGES: Mapping[str, Change] = {
    f"border.{change.__name__}": change
    for change in (
        *(other_border_dim, other_border_type, other_element_type, no_shape, remove_border, add_border, rename_border),
        *(lying_value_info, overridable_initializer, other_opset, other_ir_version, metadata, quantization_annotation),
        no_graph,
    )
}
