"""Nodes held against the definitions of their operators: what onnx, onnxruntime and the passes rely on unseen.

Too few inputs, an input that must be given and has no name, or an attribute of another type make the libraries below
read past the end of a list, some of them without an exception. So a model is refused here, on load, by the name of the
node. Operators without a definition in the installed onnx (other domains, newer opsets) are left to those who run them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import AttributeProto, defs

from onnxq.errors import ModelError

DEFAULT_DOMAINS = ("", "ai.onnx")

LARGEST_VERSION = 2**31 - 1
"""onnx and onnxruntime count versions of operator sets in 32 bits."""

_REQUIRED = defs.OpSchema.FormalParameterOption.Single
_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic

_MAY_BE_EMPTY = frozenset({("Resize", 1), ("Resize", 2)})
"""Inputs that opset 11 calls required, though exporters leave them out and every runtime takes that."""

_UNSAFE_EMPTY_END = frozenset({"LayerNormalization"})
"""Operators of which onnxruntime reads an input at the end that has an empty name."""

Versions = Mapping[str, int]
"""Domain -> version of its operator set; the default domain is spelled ''."""


def check_signatures(model: onnx.ModelProto, where: str) -> None:
    """Raise a ModelError for the first node, of the graph, a body or a function, that its operator does not allow."""
    _check_graph(model.graph, _versions(model.opset_import, where), in_function=False)
    for function in model.functions:
        versions = _versions(function.opset_import, f"function '{function.name}' of {where}")
        for node in function.node:
            _check_node(node, versions, in_function=True)


def safe_inputs(node: onnx.NodeProto) -> Sequence[str]:
    """The inputs as a node may keep them: all, or without the empty names at the end where these are not safe.

    ONNX has two spellings for an input that is left out at the end. onnxruntime 1.31 ends the process on a
    LayerNormalization with the one of them.
    """
    return _given_inputs(node) if node.op_type in _UNSAFE_EMPTY_END and not node.domain else node.input


def _given_inputs(node: onnx.NodeProto) -> Sequence[str]:
    """The inputs without empty names at the end."""
    last = max((port for port, name in enumerate(node.input) if name), default=-1)
    return node.input[: last + 1]


def described(node: onnx.NodeProto) -> str:
    """A node as errors call it."""
    if node.name:
        return f"node '{node.name}' ({node.op_type})"
    outputs = ", ".join(f"'{name}'" for name in node.output if name)
    return f"the node {node.op_type} that makes {outputs}" if outputs else f"a node {node.op_type} without a name"


def _versions(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain in DEFAULT_DOMAINS else entry.domain
        if not 1 <= entry.version <= LARGEST_VERSION:
            raise ModelError(
                f"{where} imports version {entry.version} of the operator set '{domain or 'ai.onnx'}', which cannot "
                f"exist: versions go from 1 to {LARGEST_VERSION}. Export the model again, or correct opset_import"
            )
        versions[domain] = max(entry.version, versions.get(domain, 0))
    return versions


def _check_graph(graph: onnx.GraphProto, versions: Versions, *, in_function: bool) -> None:
    for node in graph.node:
        _check_node(node, versions, in_function)


def _check_node(node: onnx.NodeProto, versions: Versions, in_function: bool) -> None:
    _check_own_attributes(node, in_function)
    domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
    schema = _schema(node.op_type, versions.get(domain, 1), domain)
    if schema is not None:
        _check_inputs(node, schema)
        _check_outputs(node, schema)
        _check_attributes(node, schema)
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            _check_graph(body, versions, in_function=in_function)


@functools.cache
def _schema(op: str, version: int, domain: str) -> defs.OpSchema | None:
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


def _check_inputs(node: onnx.NodeProto, schema: defs.OpSchema) -> None:
    last = schema.inputs[-1] if schema.inputs else None
    variadic = last is not None and last.option == _VARIADIC
    given = len(node.input if variadic else _given_inputs(node))
    count = len(node.input) if len(node.input) > schema.max_input else given
    if not schema.min_input <= count <= schema.max_input:
        raise _wrong(node, schema, f"has {_counted(count, 'input')}, but it takes {_amount(schema, 'input')}")
    for port, (name, parameter) in enumerate(zip(node.input, schema.inputs, strict=False)):
        if not name and parameter.option == _REQUIRED and (node.op_type, port) not in _MAY_BE_EMPTY:
            raise _wrong(node, schema, f"leaves out input {port} ({parameter.name}), which has to be given")
    if last is not None and variadic and last.is_homogeneous and "" in node.input:
        raise _wrong(node, schema, f"leaves out one of its inputs ({last.name}), which all have to be given")


def _check_outputs(node: onnx.NodeProto, schema: defs.OpSchema) -> None:
    count = len(node.output)
    if not schema.min_output <= count <= schema.max_output:
        raise _wrong(node, schema, f"has {_counted(count, 'output')}, but it makes {_amount(schema, 'output')}")
    for port, (name, parameter) in enumerate(zip(node.output, schema.outputs, strict=False)):
        if not name and parameter.option == _REQUIRED:
            raise _wrong(node, schema, f"gives no name to output {port} ({parameter.name}), which has to have one")


def _check_own_attributes(node: onnx.NodeProto, in_function: bool) -> None:
    """What holds for the attributes of every operator, known or not."""
    seen = set()
    for attribute in node.attribute:
        name = attribute.name
        if not name or name in seen:
            said = f"gives its attribute '{name}' twice" if name else "has an attribute without a name"
            raise ModelError(f"{described(node)} {said}; the model is not valid ONNX, export it again")
        seen.add(name)
        if attribute.ref_attr_name and not in_function:
            raise ModelError(
                f"attribute '{name}' of {described(node)} refers to '{attribute.ref_attr_name}' of a function, but the "
                "node is in no function; the model is not valid ONNX, export it again"
            )
        kind = _kind_name(attribute.type)
        if kind is None:
            raise ModelError(
                f"attribute '{name}' of {described(node)} has the type {attribute.type}, which does not exist in ONNX; "
                "the file is damaged, export the model again"
            )
        empty = {"TENSOR": "t", "GRAPH": "g", "SPARSE_TENSOR": "sparse_tensor"}.get(kind)
        if empty is not None and not attribute.ref_attr_name and not attribute.HasField(empty):
            raise ModelError(
                f"attribute '{name}' of {described(node)} says that it is a {kind} and holds none; "
                "the file is damaged, export the model again"
            )


def _check_attributes(node: onnx.NodeProto, schema: defs.OpSchema) -> None:
    given = {attribute.name: attribute for attribute in node.attribute}
    if schema.name == "Constant" and len(given) != 1:
        raise _wrong(node, schema, f"has {_counted(len(given), 'attribute')}, but the one that holds its value is needed")
    for name, wanted in schema.attributes.items():
        attribute = given.get(name)
        if attribute is None:
            if wanted.required:
                raise _wrong(node, schema, f"has no attribute '{name}', which has to be given")
            continue
        kind = attribute_kind(attribute)
        if kind and kind != int(wanted.type.value):
            allowed = str(wanted.type.name)
            raise _wrong(
                node, schema, f"has an attribute '{name}' of type {_kind_name(kind)}, but it has to be {allowed}"
            )


def attribute_kind(attribute: AttributeProto) -> int:
    """The type of an attribute, also in a file so old that it does not say; 0 where nothing is set."""
    if attribute.type:
        return int(attribute.type)
    for field, _ in attribute.ListFields():
        kind = _FIELD_KINDS.get(field.name)
        if kind is not None:
            return int(AttributeProto.AttributeType.Value(kind))
    return int(AttributeProto.UNDEFINED)


_FIELD_KINDS = {"f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH", "floats": "FLOATS"} | {
    "ints": "INTS",
    "strings": "STRINGS",
    "tensors": "TENSORS",
    "graphs": "GRAPHS",
}


def _kind_name(kind: int) -> str | None:
    try:
        return str(AttributeProto.AttributeType.Name(kind))
    except ValueError:
        return None


def _wrong(node: onnx.NodeProto, schema: defs.OpSchema, what: str) -> ModelError:
    return ModelError(
        f"{described(node)} {what} ({schema.name} of opset {schema.since_version}); the model is not valid ONNX. "
        "Correct the node, or export the model again"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _amount(schema: defs.OpSchema, noun: str) -> str:
    least, most = (schema.min_input, schema.max_input) if noun == "input" else (schema.min_output, schema.max_output)
    parameters = schema.inputs if noun == "input" else schema.outputs
    names = ", ".join(parameter.name for parameter in parameters)
    if most >= LARGEST_VERSION:
        return f"at least {least} ({names})"
    return f"{least} ({names})" if least == most else f"{least} to {most} ({names})"
