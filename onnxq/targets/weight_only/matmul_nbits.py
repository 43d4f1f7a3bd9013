"""Weights in blocks for onnxruntime's own operators: MatMulNBits for layers, GatherBlockQuantized for embeddings.

    MatMul(x, W)                 ->  MatMulNBits(x, codes, scales, zeros)
    MatMul(x, Transpose(W))      ->  MatMulNBits(x, codes, scales, zeros)
    Gemm(x, W, C)                ->  MatMulNBits(x, codes, scales, zeros) -> Add(C)
    Gather(W, indices)           ->  GatherBlockQuantized(codes, indices, scales, zeros)

NF4 weights become MatMulBnb4 in the same places; no operator looks up rows of them.

A weight that several of them read is stored once; a Gather then sees the codes of the layer through a Reshape. A weight
with a reader that none of this fits (a convolution, a Gemm with alpha) stays a blocked DequantizeLinear for all its
readers, with a line that says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.qdq import check_names, to_qdq
from onnxq.emit.uses import uses_of
from onnxq.graph import DeferredValues, Graph, Node, Use, collector_paused
from onnxq.targets.weight_only.bnb4 import NF4_OF_BNB4, Bnb4Blocks, is_in_bnb4
from onnxq.targets.weight_only.packed_blocks import PackedBlocks
from onnxq.types import Backend, PerBlock, Placement, QParamsTable, QuantPlan
from onnxq.types.note import Note

DOMAIN = "com.microsoft"
BITS = (2, 4, 8)


def to_nbits(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> tuple[Graph, list[str]]:
    """A new graph in which packed weights took the place of those that can be packed, and a line for each other one."""
    check_names(graph, plan, qparams)
    packed = graph.copy()
    packed.keep_given_names()
    rest, notes = {}, []
    with collector_paused():
        for placement in plan:
            level = _accuracy_level(backend, placement.spec.bits)
            reason = _write(packed, placement, qparams, level)
            if reason is not None:
                rest[placement.tensor] = placement
                text = f"weight '{placement.tensor}' is stored for a blocked DequantizeLinear: {reason}"
                notes.append(Note("unpacked", text))
        packed.remove_unused_constants()
    result, others = to_qdq(packed, replace(plan, placements=rest), qparams, backend)
    return result, [*others, *notes]


ROUNDS_INPUTS, SLOW_IN_FLOAT = 4, 8
"""The accuracy_level with which onnxruntime multiplies integers, and the bits of weights that it has no other kernel
for: without it the whole matrix is dequantized for every product, on a CPU 50 to 100 times as long for one token."""


def _accuracy_level(backend: Backend, bits: int) -> int | None:
    """What the target's option says for MatMulNBits; None leaves it to onnxruntime."""
    chosen = backend.chosen.get("accuracy_level", "auto")
    if chosen != "auto":
        return int(chosen)
    return ROUNDS_INPUTS if bits == SLOW_IN_FLOAT else None


def _write(graph: Graph, placement: Placement, qparams: QParamsTable, level: int | None) -> str | None:
    """Replace the readers of one weight, or say why that is not possible."""
    bnb4 = is_in_bnb4(placement.spec)
    blocks = _bnb4_layout(graph, placement, qparams) if bnb4 else _layout(graph, placement, qparams)
    if isinstance(blocks, str):
        return blocks
    weight = graph.tensor(placement.tensor)
    uses = uses_of(graph, placement)
    readers = graph.consumers(weight) if uses is None else uses
    layers = [use for use in readers if use.node.op != "Gather"]
    for use in readers:
        reason = _misfit(graph, use, blocks, among_layers=bool(layers))
        if reason is not None:
            return reason
    if isinstance(blocks, Bnb4Blocks):
        _Bnb4Writer(graph, weight, blocks).write(layers)
        return None
    _Writer(graph, weight, blocks, qparams, level).write(
        layers, [use.node for use in readers if use.node.op == "Gather"]
    )
    return None


def _layout(graph: Graph, placement: Placement, qparams: QParamsTable) -> PackedBlocks | str:
    spec, tensor = placement.spec, placement.tensor
    if not spec.evenly_spaced or not isinstance(spec.granularity, PerBlock):
        return f"it is {spec}, and only integers in blocks can be packed"
    shape = _matrix_shape(graph, placement)
    if isinstance(shape, str):
        return shape
    blocks = PackedBlocks(shape, qparams[tensor])
    return blocks if blocks.bits in BITS else f"it has {blocks.bits} bits"


def _bnb4_layout(graph: Graph, placement: Placement, qparams: QParamsTable) -> Bnb4Blocks | str:
    shape = _matrix_shape(graph, placement)
    if isinstance(shape, str):
        return shape
    blocks = Bnb4Blocks(shape, qparams[placement.tensor])
    return blocks.why_not() or blocks


def _matrix_shape(graph: Graph, placement: Placement) -> tuple[int, int] | str:
    tensor = placement.tensor
    if not graph.is_constant(tensor) or (placement.edges is None and graph.is_output(tensor)):
        return "others need its values too"
    shape = graph.shape(tensor) or ()
    return (int(shape[0] or 0), int(shape[1] or 0)) if len(shape) == 2 else f"it has {len(shape)} axes"


def _misfit(graph: Graph, use: Use, blocks: PackedBlocks | Bnb4Blocks, *, among_layers: bool) -> str | None:
    """Why a reader cannot become one of onnxruntime's operators."""
    node = use.node
    if isinstance(blocks, Bnb4Blocks) and node.op == "Gather":
        return f"'{node.name}' (Gather) has no operator for packed weights of this format"
    if node.domain or node.op not in _READS or use.port != _READS[node.op]:
        return f"'{node.name}' ({node.op}) has no operator for packed weights"
    if node.op == "Gather" and isinstance(blocks, PackedBlocks):
        whole = (blocks.columns * blocks.bits) % 8 == 0
        if node.attrs.get("axis", 0) != 0 or blocks.transposed or not whole:
            return f"rows of {blocks.columns} numbers are not whole bytes for '{node.name}' (Gather)"
        if among_layers and blocks.columns % blocks.size:
            return f"a layer and '{node.name}' (Gather) can share rows of whole blocks only"
        return None
    turned = node.op == "Transpose" or (node.op == "Gemm" and bool(node.attrs.get("transB", 0)))
    if turned == blocks.transposed:
        return f"its blocks do not lie along the inputs of '{node.name}' ({node.op})"
    if node.op == "Gemm":
        plain = all(float(node.attrs.get(key, 1.0)) == 1.0 for key in ("alpha", "beta"))
        return None if plain and not node.attrs.get("transA", 0) else f"'{node.name}' (Gemm) has alpha, beta or transA"
    layers = [use]
    if node.op == "Transpose":
        layers = graph.consumers(node.outputs[0])
        others = any(layer.node.op != "MatMul" or layer.port != 1 for layer in layers)
        if others or graph.is_output(node.outputs[0]):
            return f"what '{node.name}' (Transpose) makes is not only read by MatMul"
    if any(len(graph.shape(layer.node.inputs[0]) or (1, 1)) < 2 for layer in layers):
        return f"'{layers[0].node.name}' (MatMul) multiplies a vector"
    return None


_READS = {"MatMul": 1, "Gemm": 1, "Transpose": 0, "Gather": 0}
"""Operators that read weights which can be packed, and at which port."""


class _LayerWriter(ABC):
    """Replaces layers by an operator that reads packed weights."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @abstractmethod
    def _multiply(self, node: Node, codes: Any) -> None:
        """Let a node multiply its first input with the packed weight."""

    def _write_layers(self, node: Node, codes: Any) -> None:
        if node.op == "Transpose":
            for use in self.graph.consumers(node.outputs[0]):
                self._write_layer(use.node, codes)
            self.graph.remove(node)
        else:
            self._write_layer(node, codes)

    def _write_layer(self, node: Node, codes: Any) -> None:
        rest = [tensor for tensor in node.inputs[2:] if tensor.name]
        self._multiply(node, codes)
        for added in rest:
            made = node.outputs[0]
            node.outputs[0] = self.graph.add_variable(f"{made.name}_product", made.dtype, made.shape)
            scope = self.graph.scope_of(node)
            self.graph.add_node("Add", [node.outputs[0], added], [made], name=f"{node.name}_Add", scope=scope)

    def _become(self, node: Node, op: str, inputs: list[Any]) -> None:
        """Another operator in the place and under the name of a node."""
        node.op, node.domain = op, DOMAIN
        node.attrs.clear()
        node.attr_types.clear()
        node.inputs.clear()
        node.inputs.extend(inputs)


class _Bnb4Writer(_LayerWriter):
    """Writes one NF4 weight, and the layers that read it."""

    def __init__(self, graph: Graph, weight: Any, blocks: Bnb4Blocks) -> None:
        super().__init__(graph)
        self.blocks, self._weight = blocks, weight
        home = graph.home_of(weight)
        packed = DeferredValues(blocks.packed_shape, np.dtype(np.uint8), lambda: blocks.pack(graph.values(weight)))
        self._codes = graph.add_constant(f"{weight.name}_packed", packed, scope=home)
        self._scales = graph.add_constant(f"{weight.name}_scales", blocks.scales(), scope=home)

    def write(self, layers: list[Use]) -> None:
        for use in layers:
            self._write_layers(use.node, self._codes)
        self.graph.origins.tensor_became(self._weight.name, self._codes.name)

    def _multiply(self, node: Node, codes: Any) -> None:
        blocks = self.blocks
        self._become(node, "MatMulBnb4", [node.inputs[0], codes, self._scales])
        node.attrs.update(K=blocks.columns, N=blocks.rows, block_size=blocks.size, quant_type=NF4_OF_BNB4)


class _Writer(_LayerWriter):
    """Writes one weight, and the operators that read it."""

    def __init__(
        self, graph: Graph, weight: Any, blocks: PackedBlocks, qparams: QParamsTable, level: int | None
    ) -> None:
        super().__init__(graph)
        self.level = level
        self.weight = weight
        self.blocks = blocks
        self._fixed = qparams.integer_weights.get(weight.name)
        self._home = graph.home_of(weight)
        scales = DeferredValues((blocks.rows, blocks.count), np.dtype(np.float32), blocks.scales)
        self._scales = graph.add_constant(f"{weight.name}_scales", scales, scope=self._home)
        zeros = blocks.zero_points()
        self._zeros = (
            [] if zeros is None else [graph.add_constant(f"{weight.name}_zero_points", zeros, scope=self._home)]
        )

    def write(self, layers: list[Use], gathers: list[Node]) -> None:
        if layers:
            codes = self._constant(self.blocks.packed_shape, self.blocks.pack)
            for use in layers:
                self._write_layers(use.node, codes)
            table = self._reshaped(codes) if gathers else codes
        else:
            table = codes = self._constant(self.blocks.table_shape, self.blocks.pack_table)
        for node in gathers:
            self._become(node, "GatherBlockQuantized", [table, node.inputs[1], self._scales, *self._zeros])
            node.attrs.update(gather_axis=0, quantize_axis=1, block_size=self.blocks.size, bits=self.blocks.bits)
        self.graph.origins.tensor_became(self.weight.name, codes.name)

    def _constant(self, shape: tuple[int, ...], pack: Callable[..., np.ndarray]) -> Any:
        graph, weight, fixed = self.graph, self.weight, self._fixed

        def compute() -> np.ndarray:
            return pack(graph.values(weight), fixed)

        values = DeferredValues(shape, np.dtype(np.uint8), compute)
        return graph.add_constant(f"{weight.name}_packed", values, scope=self._home)

    def _reshaped(self, codes: Any) -> Any:
        shape = self.graph.add_constant(f"{codes.name}_shape", np.array(self.blocks.table_shape), scope=self._home)
        table = self.graph.add_variable(f"{codes.name}_table", np.dtype(np.uint8), self.blocks.table_shape)
        self.graph.add_node("Reshape", [codes, shape], [table], name=f"{codes.name}_Reshape", scope=self._home)
        return table

    def _multiply(self, node: Node, codes: Any) -> None:
        self._become(node, "MatMulNBits", [node.inputs[0], codes, self._scales, *self._zeros])
        node.attrs.update(K=self.blocks.columns, N=self.blocks.rows, bits=self.blocks.bits, block_size=self.blocks.size)
        if self.level is not None:
            node.attrs["accuracy_level"] = self.level


def write_nbits(request: EmitRequest) -> Emitted:
    """Write `<name>.onnx` with MatMulNBits and GatherBlockQuantized (and `<name>.onnx.data` for large models)."""
    result, notes = to_nbits(*request.quantized, request.backend)
    return Emitted(tuple(result.save(request.path(".onnx"))), tuple(notes))


EMITTERS.add("matmul_nbits", Emitter(write_nbits, files=(".onnx",)))
