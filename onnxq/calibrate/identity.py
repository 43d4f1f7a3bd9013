"""What statistics belong to: a hash of the model they were collected from, and one of the samples that went through."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from onnxq.calibrate.block_digest import BlockDigest
from onnxq.errors import ModelError
from onnxq.graph import Graph
from onnxq.graph.element_types import stored_bytes
from onnxq.graph.store import store_inline
from onnxq.graph.values import LazyValues, ProtoValues, raw_chunks
from onnxq.graph.write import GraphWriter

_NEVER_COUNT = frozenset(
    {"doc_string", "metadata_props", "value_info", "quantization_annotation", "device_configurations", "dim_param"}
)
"""Fields that change no value of any tensor."""

_ORDER_FREE = frozenset({"node", "initializer", "sparse_initializer", "attribute"})
"""Lists whose order means nothing: what they hold refers to each other by name."""

_DIGEST_KEY = "sha256"


LARGE = 2**24
"""Bytes of a tensor from which on its digest is that of its blocks (`BlockDigest`)."""

IN_BLOCKS = "-blocks"
"""Ends the identity of a model that has such tensors: earlier releases computed SHA-256 of all bytes."""


def model_identity(graph: Graph, like: str = "") -> str:
    """Hash of everything that decides the values of the tensors: operators, attributes, weights, tensor names, inputs.

    Names of nodes and of free dimensions, descriptions, inferred shapes and the place where weights are stored do not
    count. Weights in external files are read in pieces of a few megabytes. `like` is an identity that the result will
    be compared with: one that an earlier release has written is computed as that release did.
    """
    proto = onnx.GraphProto()
    digests = _Digests(in_blocks=not like or like.endswith(IN_BLOCKS))
    try:
        GraphWriter(digests.store).graph(proto, graph.gs)
    except UnicodeDecodeError as error:
        raise ModelError(f"the model has a text that is not UTF-8: {error.object!r}; remove it") from error
    versions = {entry.domain: int(entry.version) for entry in graph.header.opset_import}
    known: _Known = {}
    inputs = [_message(info.type, versions, known) for info in proto.input]
    return hashlib.sha256(_joined(_message(proto, versions, known), *inputs)).hexdigest() + (
        IN_BLOCKS * digests.any_large
    )


class SampleHash:
    """Sum of the hashes of numbered samples: in any order and from any number of shards, equal samples add up equally.

    The number of a sample is its position in the whole data: data in another order is other data, because its first
    samples are others.
    """

    _MODULUS = 1 << 256

    def __init__(self, hexdigest: str = "0") -> None:
        """Empty, or continued from what `hexdigest` gave."""
        self._sum = int(hexdigest, 16) % self._MODULUS

    def add(self, index: int, feed: Mapping[str, np.ndarray]) -> None:
        """Take in the sample number `index`."""
        digest = hashlib.sha256(index.to_bytes(8, "little"))
        for name in sorted(feed):
            array = np.asarray(feed[name])
            kind = "string" if _holds_strings(array) else array.dtype.name
            digest.update(_joined(name.encode(), kind.encode(), repr(array.shape).encode()))
            for piece in _pieces(array):
                digest.update(piece)
        self._sum = (self._sum + int.from_bytes(digest.digest(), "little")) % self._MODULUS

    def merge(self, other: SampleHash) -> None:
        """Take in everything that `other` has."""
        self._sum = (self._sum + other._sum) % self._MODULUS

    def hexdigest(self) -> str:
        return f"{self._sum:064x}"


class _Digests:
    """Stores digests of values in the place of the values."""

    def __init__(self, in_blocks: bool) -> None:
        self._in_blocks = in_blocks
        self.any_large = False

    def store(self, proto: TensorProto, values: np.ndarray | LazyValues) -> None:
        """The digest of one tensor; strings are few and stay."""
        if proto.data_type == TensorProto.STRING:
            store_inline(proto, values)
            return
        large = self._in_blocks and values.nbytes >= LARGE
        self.any_large |= large
        digest = BlockDigest() if large else hashlib.sha256()
        for chunk in raw_chunks(values):
            digest.update(chunk)
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key=_DIGEST_KEY, value=digest.hexdigest())


_Known = dict[bytes, bytes]
"""Attribute of plain values, as its protobuf -> its hash: the layers of a model have few different ones."""

_HOLD_PARTS = frozenset(
    {AttributeProto.TENSOR, AttributeProto.TENSORS, AttributeProto.GRAPH, AttributeProto.GRAPHS}
    | {AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS}
)


def _message(message: Any, versions: Mapping[str, int], known: _Known) -> bytes:
    """Hash of a part of the model: its fields by name, without those that do not count."""
    if isinstance(message, TensorProto):
        return _tensor(message)
    if isinstance(message, AttributeProto) and message.type not in _HOLD_PARTS:
        whole = message.SerializeToString(deterministic=True)
        if whole not in known:
            known[whole] = _fields(message, versions, known)
        return known[whole]
    return _fields(message, versions, known)


def _fields(message: Any, versions: Mapping[str, int], known: _Known) -> bytes:
    if isinstance(message, onnx.ValueInfoProto):  # shape inference fills in types of everything but the model's inputs
        return _value(message.name, versions, known)
    nameless = isinstance(message, onnx.NodeProto | onnx.GraphProto)
    parts = []
    for field, value in message.ListFields():
        if field.name in _NEVER_COUNT or (nameless and field.name == "name"):
            continue
        single = isinstance(value, str | bytes | int | float) or hasattr(value, "ListFields")
        items = [_value(item, versions, known) for item in ([value] if single else value)]
        parts.append(_joined(field.name.encode(), *(sorted(items) if field.name in _ORDER_FREE else items)))
    if isinstance(message, onnx.NodeProto):
        parts.append(_value(versions.get(message.domain, 1), versions, known))
    return hashlib.sha256(_joined(*parts)).digest()


def _value(value: Any, versions: Mapping[str, int], known: _Known) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return repr(value).encode() if isinstance(value, int | float) else _message(value, versions, known)


def _tensor(tensor: TensorProto) -> bytes:
    """Name, type, shape and values, in whichever field of the protobuf the values are."""
    if tensor.data_location == TensorProto.EXTERNAL:
        values = tensor.external_data[0].value
    else:
        digest = hashlib.sha256()
        for piece in _pieces(ProtoValues(tensor).load()):
            digest.update(piece)
        values = digest.hexdigest()
    return _joined(tensor.name.encode(), repr((tensor.data_type, list(tensor.dims))).encode(), values.encode())


def _pieces(array: np.ndarray) -> Iterator[bytes | memoryview]:
    """The bytes of the elements, the same on every machine."""
    if not _holds_strings(array):
        yield stored_bytes(array)
        return
    for item in array.reshape(-1):
        yield _joined(item if isinstance(item, bytes) else str(item).encode())


def _holds_strings(array: np.ndarray) -> bool:
    return array.dtype.kind in "OSU"


def _joined(*parts: bytes) -> bytes:
    """The parts behind their lengths, so that no two lists of parts look alike."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
