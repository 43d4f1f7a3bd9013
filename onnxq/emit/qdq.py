"""QuantizeLinear / DequantizeLinear models: the float graph with the plan's quantizers written into it.

Weights become integer initializers with a DequantizeLinear behind (computed while the file is written, one at a time),
or stay float behind a Q/DQ pair where the target folds them itself. Tables of embeddings are dequantized when rows were
looked up (`lookups`). Biases become int32 initializers. The file computes exactly what `onnxq.numerics` computes:
`narrow` and `arithmetic` have the formats that QuantizeLinear lacks, `guards` keeps float8 pairs and float layers from
onnxruntime's optimizer. What a plan wants in half precision becomes so at the end (`onnxq.half`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.absorb import absorb_activation, can_be_absorbed, saturates_as
from onnxq.emit.arithmetic import write_operators
from onnxq.emit.block_constants import write_block_constant
from onnxq.emit.guards import guard, guard_float_layers
from onnxq.emit.lookups import look_up_integers, looks_up, scale_columns
from onnxq.emit.narrow import clip_to_range, is_narrower
from onnxq.emit.quantized_values import quantized_numbers, replace_by_values
from onnxq.emit.uses import readers_of, uses_of
from onnxq.errors import SpecError, UnsupportedError
from onnxq.graph import DeferredValues, Graph, Node, Use, collector_paused
from onnxq.half import opset_for, round_to_half, to_half
from onnxq.numerics import quantize_by_rows
from onnxq.types import Backend, PerBlock, PerChannel, Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from onnxq.types.note import Note

_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def to_qdq(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, *, rounded: bool = False
) -> tuple[Graph, list[str]]:
    """A new graph with Q/DQ nodes, and a line for each thing that had to change on the way (opset, absorbed nodes).

    With `rounded`, what is half precision in the file is float32 and rounded (`onnxq.half.round_to_half`).
    """
    result, notes, writer = _written(graph, plan, qparams, backend)
    if plan.rest is not None and rounded:
        round_to_half(result, plan.rest)
    elif plan.rest is not None:
        to_half(result, plan.rest, qparams.entries)
    return result, notes + writer.remarks()


@dataclass(frozen=True)
class QdqParts:
    """A model with Q/DQ nodes, and where its parameters stand.

    constants   quantized constant -> the constant with its numbers
    scales      leader -> names of its scale and zero point, in each scope that reads them
    saturating  activation behind a Relu or Clip -> whether its quantizer saturates at the same values, which decides
                whether that node was written
    """

    graph: Graph
    constants: Mapping[str, str]
    scales: Mapping[str, list[tuple[str, str | None]]]
    saturating: Mapping[str, bool]


def to_qdq_in_parts(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> QdqParts | None:
    """`to_qdq` with zero points that are not shared: constants and parameters can be changed afterwards.

    None where more than those follows from the parameters.
    """
    if plan.rest is not None or backend.weight_storage != "integer" or not all(_is_plain(graph, item) for item in plan):
        return None
    result, _, writer = _written(graph, plan, qparams, backend, share_zero_points=False)
    if writer.scaled_columns:
        return None
    return QdqParts(result, writer.constants, writer.written_parameters(), saturating(graph, plan, qparams))


def saturating(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, bool]:
    """Activation behind a Relu or Clip -> whether its quantizer saturates at the same values."""
    return {
        item.tensor: saturates_as(graph, node, qparams[item.tensor])
        for item in plan
        if item.role == "activation" and (node := graph.producer(item.tensor)) is not None and can_be_absorbed(node)
    }


def _is_plain(graph: Graph, placement: Placement) -> bool:
    """Whether a quantizer is numbers of a constant, or a pair that its scale and zero point say all about."""
    spec = placement.spec
    plain = spec.format.at_rest is None and spec.format.in_onnx and spec.evenly_spaced
    return plain and (graph.is_constant(placement.tensor) or (spec.rounding == "half_even" and not is_narrower(spec)))


def _written(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, *, share_zero_points: bool = True
) -> tuple[Graph, list[str], QdqWriter]:
    """The new graph before anything of it becomes half precision, with what had to change."""
    check_names(graph, plan, qparams)
    result = graph.copy()
    result.keep_given_names()
    before = result.opset
    notes = result.raise_opset(max(backend.limits.min_opset, required_opset(graph, plan)))
    if result.opset != before:
        notes.insert(0, f"opset raised from {before} to {result.opset}: the quantized types need it")
    if backend.limits.max_opset is not None and result.opset > backend.limits.max_opset:
        raise UnsupportedError(
            f"the model has opset {result.opset}, {backend.name} takes at most {backend.limits.max_opset}; "
            "export it with a lower opset"
        )
    writer = QdqWriter(result, plan, qparams, backend, share_zero_points=share_zero_points)
    with collector_paused():
        for placement in plan:
            writer.write(placement, plan.leader(placement.tensor))
        result.remove(writer.absorbed)
        result.remove_unused_constants()
        if backend.runs_in_onnxruntime:
            guard_float_layers(result)
    return result, notes, writer


def required_opset(graph: Graph, plan: QuantPlan) -> int:
    """The lowest opset whose QuantizeLinear can say what the plan says."""
    needed = 10 if plan.rest is None else opset_for(plan.rest)
    for placement in plan:
        spec = placement.spec
        own = spec.format.opset_of(spec, constant=graph.is_constant(placement.tensor))
        needed = max(needed, own, 11 if is_narrower(spec) else 10)
        if isinstance(spec.granularity, PerChannel):
            needed = max(needed, 13)
        elif isinstance(spec.scale_granularity, PerBlock):
            needed = max(needed, 21)
        if graph.dtype(placement.tensor) in _HALVES:
            needed = max(needed, 19)
    return needed


def check_names(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> None:
    for placement in plan:
        if not graph.has_tensor(placement.tensor):
            raise SpecError(
                f"the plan quantizes tensor '{placement.tensor}', which the model does not have; "
                "was it made for another model?"
            )
        held = qparams[placement.tensor]
        if held.spec != placement.spec:
            raise SpecError(
                f"tensor '{placement.tensor}': the plan says {placement.spec}, the parameters are for {held.spec}"
            )
        for edge in placement.edges or ():
            if not graph.has_node(edge.node):
                raise SpecError(
                    f"the plan has tensor '{placement.tensor}' quantized for node '{edge.node}', "
                    "which the model does not have"
                )


class QdqWriter:
    """Writes one placement after the other into a graph; equal parameters share their initializers.

    Without `share_zero_points` each leader has one of its own, so that it can be changed.
    """

    def __init__(
        self,
        graph: Graph,
        plan: QuantPlan,
        qparams: QParamsTable,
        backend: Backend,
        *,
        share_zero_points: bool = True,
    ) -> None:
        self.graph = graph
        self.readers = readers_of(graph, plan)
        self.qparams = qparams
        self.backend = backend
        self.notes: list[str] = []
        self.absorbed: list[Node] = []
        self.constants: dict[str, str] = {}
        self.scaled_columns = False
        self._rounds_otherwise: str | None = None
        self._shared: dict[tuple[str, np.dtype[Any], int], tuple[str, str | None]] = {}
        self._share_zero_points = share_zero_points
        self._zero_points: dict[tuple[np.dtype[Any], tuple[int, ...], bytes, int, str | None], str] = {}

    def write(self, placement: Placement, leader: str) -> None:
        tensor = placement.tensor
        parameters = self.qparams[tensor]
        if placement.edges == ():
            return  # only lends its parameters to others
        form = placement.spec.format
        if form.at_rest is not None and self.graph.is_constant(tensor):
            codes = write_block_constant(self.graph, placement, parameters)
            codes = replace_by_values(self.graph, placement, self.qparams, "quantized") if codes is None else codes
            self.graph.origins.tensor_became(tensor, codes.name)
        elif not form.in_onnx and form.onnx_type is None and self.graph.is_constant(tensor):
            made = replace_by_values(self.graph, placement, self.qparams, "quantized")
            self.graph.origins.tensor_became(tensor, made.name)
        elif not form.in_onnx:
            write_operators(self.graph, placement, parameters)
        elif self.graph.is_constant(tensor) and (self.backend.weight_storage == "integer" or placement.role == "bias"):
            self._write_integer_constant(placement, parameters)
        else:
            self.write_pair(placement, parameters, leader)

    def written_parameters(self) -> dict[str, list[tuple[str, str | None]]]:
        """Leader -> the names of its scale and its zero point, in each scope that reads them."""
        found: dict[str, list[tuple[str, str | None]]] = {}
        for (leader, _, _), names in self._shared.items():
            found.setdefault(leader, []).append(names)
        return found

    def remarks(self) -> list[str]:
        """What was worth saying on the way."""
        if self._rounds_otherwise is None:
            return self.notes
        return [
            f"QuantizeLinear rounds halves to even, {self.backend.name} rounds them {self._rounds_otherwise}: "
            "'onnxq simulate' writes a model with the chip's rounding",
            *self.notes,
        ]

    def _write_integer_constant(self, placement: Placement, parameters: QParams) -> None:
        tensor, spec = placement.tensor, placement.spec
        uses = uses_of(self.graph, placement)
        original = self.graph.tensor(tensor)
        stored = spec.format.onnx_storage
        fixed = self.qparams.integer_weights.get(tensor)
        source = self.graph

        def compute() -> np.ndarray:
            return quantized_numbers(source, original, parameters, fixed)

        def pieces() -> Iterator[np.ndarray]:
            for numbers in quantize_by_rows(_as_float32(source.values(original)), parameters):
                yield numbers.view(stored) if numbers.dtype.itemsize == stored.itemsize else numbers.astype(stored)

        shape = tuple(original.shape)
        readers = self.graph.consumers(original) if uses is None else uses
        scopes = {id(scope): scope for scope in (self.graph.scope_of(use.node) for use in readers)}
        home = next(iter(scopes.values())) if len(scopes) == 1 else self.graph.home_of(original)
        values = DeferredValues(shape, stored, compute, None if fixed is not None else pieces)
        integers = self.graph.add_constant(f"{tensor}_quantized", values, scope=home)
        self.constants[tensor] = integers.name
        others = []
        for use in readers:
            if looks_up(use, spec, shape, stored, self.graph.dtype(original)):
                self._look_up(use.node, integers, placement, parameters)
            else:
                others.append(use)
        if others or not readers:
            self._dequantize(integers, original, tensor, parameters, others, home)
        self.graph.origins.tensor_became(tensor, integers.name)

    def _look_up(self, node: Node, integers: Any, placement: Placement, parameters: QParams) -> None:
        scope, real = self.graph.scope_of(node), self.graph.dtype(placement.tensor)
        looked_up, found = look_up_integers(self.graph, node, integers)
        if isinstance(placement.spec.granularity, PerChannel):
            self.scaled_columns = True
            scale_columns(self.graph, looked_up, found, parameters, scope)
            return
        scale, zero = self._parameters(placement.tensor, parameters, real, scope)
        inputs = [looked_up, scale] + ([zero] if zero is not None else [])
        self.graph.add_node("DequantizeLinear", inputs, [found], name=f"{found.name}_DequantizeLinear", scope=scope)

    def write_pair(self, placement: Placement, parameters: QParams, leader: str) -> None:
        tensor, spec = placement.tensor, placement.spec
        if spec.rounding != "half_even" and self.backend.rounding_in_files == "half_even":
            self._rounds_otherwise = spec.rounding
        elif spec.rounding != "half_even":
            raise UnsupportedError(
                f"tensor '{tensor}' is to be rounded {spec.rounding}, but QuantizeLinear rounds half_even. "
                "Weights can keep their rounding as stored integers (weight_storage = integer); use half_even elsewhere"
            )
        uses = uses_of(self.graph, placement)
        quantized = source = self.graph.tensor(tensor)
        kind = self.graph.dtype(source)
        shape = source.shape
        if placement.role == "activation" and self.backend.absorb_activations and uses is None:
            source = self._absorb(tensor, parameters, source)
        scope = self.graph.home_of(source)
        scale, zero = self._parameters(leader, parameters, kind, scope)
        attrs = _axis_attributes(spec, None if shape is None else tuple(shape))
        typed = attrs if zero is not None else {**attrs, "output_dtype": spec.format.onnx_storage}
        readers = uses
        if readers is None and source is quantized:
            readers = self.readers[tensor]
        elif readers is None:
            readers = [use for use in self.graph.consumers(source) if use.node is not self.absorbed[-1]]
        guarded = spec.format.guarded and self.backend.float8_pairs == "guarded"
        begin = clip_to_range(self.graph, source, parameters, kind, scope)
        if guarded:
            begin = guard(self.graph, begin, f"{tensor}_QuantizeLinear", scope)
        inputs = [begin, scale] + ([zero] if zero is not None else [])
        stored = self.graph.add_variable(f"{tensor}_QuantizeLinear", spec.format.onnx_storage, shape)
        self.graph.add_node(
            "QuantizeLinear", inputs, [stored], attrs=typed, name=f"{tensor}_QuantizeLinear", scope=scope
        )
        self._dequantize(
            stored, source, leader, parameters, readers, scope, outputs_too=uses is None, name=tensor, guarded=guarded
        )

    def _dequantize(
        self,
        stored: Any,
        source: Any,
        leader: str,
        parameters: QParams,
        readers: list[Use],
        home: Any,
        *,
        outputs_too: bool = False,
        name: str | None = None,
        guarded: bool = False,
    ) -> None:
        """Let the readers of `source` read the dequantized `stored`.

        Each scope with readers gets a DequantizeLinear of its own: no integer kernel is made across scopes.
        """
        groups: dict[int, tuple[Any, list[Use]]] = {}
        if not readers or (outputs_too and self.graph.is_output(source)):
            groups[id(home)] = (home, [])
        for use in readers:
            scope = self.graph.scope_of(use.node)
            groups.setdefault(id(scope), (scope, []))[1].append(use)
        label = f"{name or leader}_DequantizeLinear"
        shape = None if source.shape is None else tuple(source.shape)
        attrs = _axis_attributes(parameters.spec, shape)
        for scope, uses in groups.values():
            scale, zero = self._parameters(leader, parameters, self.graph.dtype(source), scope)
            inputs = [stored, scale] + ([zero] if zero is not None else [])
            real = self.graph.add_variable(label, source.dtype, shape)
            self.graph.add_node("DequantizeLinear", inputs, [real], attrs=attrs, name=label, scope=scope)
            if guarded:
                real = guard(self.graph, real, label, scope)
            self.graph.redirect(source, real, uses=uses)
            if outputs_too and scope is home:
                self.graph.take_over_outputs(source, real)

    def _absorb(self, tensor: str, parameters: QParams, source: Any) -> Any:
        maker = self.graph.producer(tensor)
        if maker is not None and any(read.name in self.qparams for read in maker.inputs[:1]):
            return source  # it computes with quantized values of its own
        freed = absorb_activation(self.graph, tensor, parameters)
        if freed is None:
            return source
        self.absorbed.append(freed.node)
        text = f"'{freed.node.name}' dropped: the quantizer of '{tensor}' saturates at the same values"
        self.notes.append(Note("absorbed", text))
        return freed.source

    def _parameters(self, leader: str, parameters: QParams, kind: Any, scope: Any) -> tuple[str, str | None]:
        """Names of the scale and zero-point initializers; tied tensors use those of their leader.

        They lie in the scope of their reader: onnxruntime's optimizer looks for them nowhere else.
        """
        real = np.dtype(np.float32) if kind is None else np.dtype(kind)
        key = (leader, real, id(scope))
        if key not in self._shared:
            values = parameters.scale.astype(real, copy=False)
            scale = self.graph.add_constant(f"{leader}_scale", values, scope=scope).name
            zero = (
                self._zero_point(leader, parameters, scope) if self._needs_zero_point(leader, parameters.spec) else None
            )
            self._shared[key] = (scale, zero)
        return self._shared[key]

    def _zero_point(self, leader: str, parameters: QParams, scope: Any) -> str:
        """An initializer with these zero points; equal ones are one, since most are all 0."""
        values = parameters.zero_point.astype(parameters.spec.format.onnx_storage)
        own = None if self._share_zero_points else leader
        key = (values.dtype, values.shape, values.tobytes(), id(scope), own)
        if key not in self._zero_points:
            hint = f"zero_point_{values.dtype}"
            self._zero_points[key] = self.graph.add_constant(hint, values, scope=scope).name
        return self._zero_points[key]

    def _needs_zero_point(self, leader: str, spec: QuantSpec) -> bool:
        """A zero point also tells the type; from opset 21 on `output_dtype` can, where all zero points are 0.

        onnxruntime 1.31 refuses some models of opset 21 with signed zero points in front of a MatMul: it rewrites them
        to unsigned ones and forgets the type that it noted before. Elsewhere it needs them: QLinearAdd without one is
        taken for unsigned.
        """
        in_blocks = isinstance(spec.granularity, PerBlock) and spec.symmetric
        if spec.format.bias_only or (in_blocks and self.graph.is_constant(leader)):
            return False  # the type is that of the stored numbers, and as many zeros as scales would be stored
        if not self.backend.limits.zero_point_zero or self.graph.opset < 21 or self.graph.is_constant(leader):
            return True
        producer = self.graph.producer(leader)
        readers = {use.node.op for use in self.graph.consumers(leader)}
        return bool(readers - {"MatMul", "Gemm"}) or (producer is not None and producer.op == "Add")


def _axis_attributes(spec: QuantSpec, shape: tuple[Any, ...] | None) -> dict[str, int]:
    granularity = spec.granularity
    if isinstance(granularity, PerChannel):
        return {"axis": granularity.axis if shape is None else granularity.axis % len(shape)}
    if isinstance(granularity, PerBlock):
        return {"axis": granularity.axis, "block_size": granularity.size}
    return {}


def _as_float32(values: np.ndarray) -> np.ndarray:
    return values if values.dtype == np.float32 else values.astype(np.float32)


def write_qdq(request: EmitRequest) -> Emitted:
    """Write `<name>.onnx`: the model with Q/DQ nodes (and `<name>.onnx.data` for large models)."""
    result, notes = to_qdq(*request.quantized, request.backend)
    return Emitted(tuple(result.save(request.path(".onnx"))), tuple(notes))


EMITTERS.add("qdq", Emitter(write_qdq, files=(".onnx",)))
