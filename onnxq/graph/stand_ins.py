"""Shapes behind operators that ONNX does not define: standard operators with the same shapes stand in for them.

ONNX's inference stops at an operator of com.microsoft, and behind the first norm of a language model nothing would have
a shape. The stand-ins exist in the model that shapes are inferred of, and nowhere else; they compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.helper import get_attribute_value

MICROSOFT = "com.microsoft"
_MARK = "onnxq.stand_in"

Nodes = list[onnx.NodeProto]


class _Maker:
    """The stand-ins of one node."""

    def __init__(self, node: onnx.NodeProto, opset: int) -> None:
        self.node, self.opset, self.made = node, opset, Nodes()

    def attribute(self, name: str, default: Any = None) -> Any:
        found = (item for item in self.node.attribute if item.name == name)
        return next((get_attribute_value(item) for item in found), default)

    def input(self, port: int) -> str:
        return self.node.input[port] if port < len(self.node.input) else ""

    def output(self, port: int) -> str:
        return self.node.output[port] if port < len(self.node.output) else ""

    def op(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        made = to or f"{_MARK}.{self.node.output[0]}.{len(self.made)}"
        self.made.append(helper.make_node(op, inputs, [made], name=_MARK, **attributes))
        return made

    def ints(self, *values: int) -> str:
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(values, np.int64)))

    def reshape(self, tensor: str, *sizes: int) -> str:
        return self.op("Reshape", tensor, self.ints(*sizes))

    def some_heads(self, packed: str, all_heads: int, start: int, end: int) -> str:
        """(batch, length, heads, size) of the heads from `start` on, from (batch, length, all heads x size)."""
        split = self.reshape(packed, 0, 0, all_heads, -1)
        return self.op("Slice", split, self.ints(start), self.ints(end), self.ints(2))

    def same(self, tensor: str, port: int = 0) -> None:
        """An output with the shape and type of a tensor."""
        if tensor and self.output(port):
            self.op("Identity", tensor, to=self.output(port))

    def weight(self, rows: int, columns: int, like: str) -> str:
        """A matrix of these sizes."""
        made = self.op("ConstantOfShape", self.ints(rows, columns))
        return self.op("CastLike", made, like) if self.opset >= 15 else made


def _like_input(make: _Maker) -> None:
    make.same(make.input(0))


def _skip_norm(make: _Maker) -> None:
    total = make.op("Add", make.input(0), make.input(1))
    make.same(total)
    make.same(total, 3)


def _embedding(make: _Maker) -> None:
    made = make.op("Gather", make.input(2), make.input(0), axis=0)
    make.same(made)
    make.same(made, 2)


def _multi_head(make: _Maker) -> None:
    if make.input(1):
        make.same(make.input(0))
        return
    one = make.op("Slice", make.input(0), make.ints(0), make.ints(1), make.ints(3))
    make.same(make.reshape(one, 0, 0, -1))


def _packed_attention(make: _Maker) -> None:
    sizes = make.attribute("qkv_hidden_sizes")
    if not make.input(1):
        return
    projected = make.op("MatMul", make.input(0), make.input(1))
    if sizes:
        make.same(make.op("MatMul", projected, make.weight(sum(sizes), int(sizes[2]), projected)))
        return
    split = make.some_heads(projected, 3, 0, 1)
    make.same(make.reshape(split, 0, 0, -1))


def _group_query(make: _Maker) -> None:
    heads, shared = int(make.attribute("num_heads", 1)), int(make.attribute("kv_num_heads", 1))
    if make.input(1):
        make.same(make.input(0))
        new = [make.reshape(make.input(port), 0, 0, shared, -1) for port in (1, 2)]
    else:
        total = heads + 2 * shared
        make.same(make.reshape(make.some_heads(make.input(0), total, 0, heads), 0, 0, -1))
        starts = (heads, heads + shared)
        new = [make.some_heads(make.input(0), total, start, start + shared) for start in starts]
    for port, item in enumerate(new, start=1):
        if not make.output(port):
            continue
        turned = make.op("Transpose", item, perm=[0, 2, 1, 3])
        past = make.input(port + 2)
        make.same(make.op("Concat", past, turned, axis=2) if past else turned, port)


def _fused(op: str, kept: Sequence[str], inputs: int) -> Callable[[_Maker], None]:
    def stand_in(make: _Maker) -> None:
        given = [make.input(port) for port in range(inputs)]
        while given and not given[-1]:
            given.pop()
        attributes = {name: make.attribute(name) for name in kept if make.attribute(name) is not None}
        make.op(op, *given, to=make.output(0), **attributes)

    return stand_in


def _fused_matmul(make: _Maker) -> None:
    if not any(make.attribute(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        make.op("MatMul", make.input(0), make.input(1), to=make.output(0))


def _matmul_n_bits(make: _Maker) -> None:
    features, rows = make.attribute("K"), make.attribute("N")
    if features and rows:
        make.op("MatMul", make.input(0), make.weight(int(features), int(rows), make.input(0)), to=make.output(0))


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_STAND_INS: dict[tuple[str, str], Callable[[_Maker], None]] = {
    ("", "SimplifiedLayerNormalization"): _like_input,
    **{
        (MICROSOFT, op): _like_input
        for op in ("SimplifiedLayerNormalization", "Gelu", "BiasGelu", "FastGelu", "QuickGelu", "RotaryEmbedding")
    },
    (MICROSOFT, "SkipLayerNormalization"): _skip_norm,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_norm,
    (MICROSOFT, "EmbedLayerNormalization"): _embedding,
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, "Attention"): _packed_attention,
    (MICROSOFT, "GroupQueryAttention"): _group_query,
    (MICROSOFT, "FusedConv"): _fused("Conv", _CONV, 3),
    (MICROSOFT, "FusedGemm"): _fused("Gemm", ("alpha", "beta", "transA", "transB"), 3),
    (MICROSOFT, "FusedMatMul"): _fused_matmul,
    (MICROSOFT, "MatMulNBits"): _matmul_n_bits,
}


def put_stand_ins(model: onnx.ModelProto) -> bool:
    """Exchange the nodes that ONNX does not know for such with the same shapes; whether there were any."""
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
    found = False
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        pending.extend(body for node in graph.node for body in _bodies(node))
        if any((node.domain, node.op_type) in _STAND_INS for node in graph.node):
            found = True
            nodes = [made for node in graph.node for made in _in_place_of(node, opset)]
            del graph.node[:]
            graph.node.extend(nodes)
    return found


def without_stand_ins(nodes: Iterable[onnx.NodeProto]) -> Nodes:
    """The nodes of the model, in their order; those that had stand-ins are nodes without outputs."""
    return [node for node in nodes if node.name != _MARK]


def _in_place_of(node: onnx.NodeProto, opset: int) -> Nodes:
    stand_in = _STAND_INS.get((node.domain, node.op_type))
    if stand_in is None or not node.output:
        return [node]
    make = _Maker(node, opset)
    stand_in(make)
    taken = {name for made in make.made for name in made.output}
    left = [name if name not in taken else "" for name in node.output]
    kept = onnx.NodeProto()
    kept.CopyFrom(node)
    del kept.output[:]
    kept.output.extend(left)
    return [*make.made, kept]


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [body for item in node.attribute for body in ([item.g] if item.HasField("g") else item.graphs)]
