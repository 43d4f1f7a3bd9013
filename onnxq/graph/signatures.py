"""Nodes held against the definitions of their operators: what onnx, onnxruntime and the passes rely on unseen.

Too few inputs, an input that must be given and has no name, or an attribute of another type make the libraries below
read past the end of a list, some of them without an exception. So a model is refused here, on load, by the name of the
node. Operators without a definition in the installed onnx (other domains, newer opsets) are left to those who run them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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

_TERM = rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(_TERM + rb"(," + _TERM + rb")*(->" + _TERM + rb")?")

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
    unsafe = node.op_type in _UNSAFE_EMPTY_END and node.domain in DEFAULT_DOMAINS
    return _without_empty_end(node.input) if unsafe else node.input


def _without_empty_end(names: Sequence[str]) -> Sequence[str]:
    last = max((port for port, name in enumerate(names) if name), default=-1)
    return names[: last + 1]


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
    signature = _signature(node.op_type, versions.get(domain, 1), domain)
    if signature is not None:
        _check_ports(node, signature, signature.inputs, node.input)
        _check_ports(node, signature, signature.outputs, node.output)
        _check_attributes(node, signature)
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            _check_graph(body, versions, in_function=in_function)


@dataclass(frozen=True)
class _Ports:
    """The inputs or outputs that an operator takes; `required` are the numbers of those that cannot be left out."""

    noun: str
    least: int
    most: int
    names: tuple[str, ...]
    required: frozenset[int]
    variadic: bool
    all_required: bool

    @property
    def verb(self) -> str:
        return "takes" if self.noun == "input" else "makes"

    def amount(self) -> str:
        names = ", ".join(self.names)
        if self.most >= LARGEST_VERSION:
            return f"at least {self.least} ({names})"
        return f"{self.least} ({names})" if self.least == self.most else f"{self.least} to {self.most} ({names})"


@dataclass(frozen=True)
class _Signature:
    """What a definition says, as plain values: asking the library again for each node costs more than reading it."""

    op: str
    since: int
    inputs: _Ports
    outputs: _Ports
    attributes: Mapping[str, int]
    required: frozenset[str]


@functools.cache
def _signature(op: str, version: int, domain: str) -> _Signature | None:
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None
    return _Signature(
        op,
        int(schema.since_version),
        _ports("input", schema.inputs, schema.min_input, schema.max_input),
        _ports("output", schema.outputs, schema.min_output, schema.max_output),
        {name: _kind_number(attribute.type) for name, attribute in schema.attributes.items()},
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def _kind_number(kind: object) -> int:
    """A type of attributes as definitions name it ("AttrType.INT") -> as files do."""
    return int(AttributeProto.AttributeType.Value(str(kind).rpartition(".")[2]))


def _ports(noun: str, parameters: Sequence[defs.OpSchema.FormalParameter], least: int, most: int) -> _Ports:
    variadic = bool(parameters) and parameters[-1].option == _VARIADIC
    return _Ports(
        noun,
        least,
        most,
        tuple(parameter.name for parameter in parameters),
        frozenset(port for port, parameter in enumerate(parameters) if parameter.option == _REQUIRED),
        variadic,
        variadic and parameters[-1].is_homogeneous,
    )


def _check_ports(node: onnx.NodeProto, signature: _Signature, ports: _Ports, names: Sequence[str]) -> None:
    count = len(names)
    if count <= ports.most and not ports.variadic and count and not names[-1]:
        count = len(_without_empty_end(names))
    if not ports.least <= count <= ports.most:
        said = f"has {_counted(count, ports.noun)}, but it {ports.verb} {ports.amount()}"
        raise _wrong(node, signature, said)
    if "" not in names:
        return
    for port, name in enumerate(names):
        if not name and port in ports.required and (node.op_type, port) not in _MAY_BE_EMPTY:
            said = f"leaves out {ports.noun} {port} ({ports.names[port]}), which has to be given"
            raise _wrong(node, signature, said)
    if ports.all_required and ports.noun == "input":
        raise _wrong(node, signature, f"leaves out one of its inputs ({ports.names[-1]}), which all have to be given")


def _check_own_attributes(node: onnx.NodeProto, in_function: bool) -> None:
    """What holds for the attributes of every operator, known or not."""
    seen = set()
    for attribute in node.attribute:
        name, kind, reference = attribute.name, attribute.type, attribute.ref_attr_name
        if not name or name in seen:
            said = f"gives its attribute '{name}' twice" if name else "has an attribute without a name"
            raise ModelError(f"{described(node)} {said}; the model is not valid ONNX, export it again")
        seen.add(name)
        if reference and not in_function:
            raise ModelError(
                f"attribute '{name}' of {described(node)} refers to '{reference}' of a function, but the node is in no "
                "function; the model is not valid ONNX, export it again"
            )
        field = _FIELDS_OF_KINDS.get(kind)
        if field is not None and not reference and not attribute.HasField(field):
            raise ModelError(
                f"attribute '{name}' of {described(node)} says that it is a {_kind_name(kind)} and holds none; "
                "the file is damaged, export the model again"
            )


def _check_attributes(node: onnx.NodeProto, signature: _Signature) -> None:
    given = set()
    for attribute in node.attribute:
        name = attribute.name
        given.add(name)
        wanted, kind = signature.attributes.get(name), attribute_kind(attribute)
        if wanted is not None and kind and kind != wanted:
            said = f"has an attribute '{name}' of type {_kind_name(kind)}, but it has to be {_kind_name(wanted)}"
            raise _wrong(node, signature, said)
        if name == "equation" and signature.op == "Einsum":
            _check_equation(node, signature, attribute.s)
    if not signature.required <= given:
        missing = min(signature.required - given)
        raise _wrong(node, signature, f"has no attribute '{missing}', which has to be given")
    if signature.op == "Constant" and len(given) != 1:
        said = f"has {_counted(len(given), 'attribute')}, but the one that holds its value is needed"
        raise _wrong(node, signature, said)


def _check_equation(node: onnx.NodeProto, signature: _Signature, equation: bytes) -> None:
    """onnx looks for the next term of an equation for ever where there is something else."""
    if equation and not _EQUATION.fullmatch(equation.replace(b" ", b"")):
        said = f"has the equation {equation!r}, which is not one: letters, '...', ',' and one '->'"
        raise _wrong(node, signature, said)


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


_FIELDS_OF_KINDS: dict[int, str] = {
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
}
"""Attributes whose value has to be there; numbers and lists are left out where they are zero or empty."""


def _kind_name(kind: int) -> str:
    return str(AttributeProto.AttributeType.Name(kind))


def _wrong(node: onnx.NodeProto, signature: _Signature, what: str) -> ModelError:
    return ModelError(
        f"{described(node)} {what} ({signature.op} of opset {signature.since}); the model is not valid ONNX. "
        "Correct the node, or export the model again"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
