"""A model that runs in onnxruntime and computes what the target computes, in float32 between the quantizers.

1. `Backend.simulations` replace operators that the chip computes in its own way;
2. constants become the float values of their quantized numbers, whatever their grid and rounding;
3. activations pass through float operators that are bit for bit `onnxq.numerics.fake_quantize`, whatever the bits, the
   rounding and the grid; QuantizeLinear and DequantizeLinear stand only for formats that operators cannot say (fp8).

Integers never pass through QuantizeLinear in the file. Around a layer onnxruntime would take the pair as a request to
compute the layer in integers: it quantizes the float weights again with scales of its own, and its 8-bit kernels
saturate on some processors. The same file would then compute something else with every optimization level.

What is half precision in the file is float32 here, and rounded to half precision at the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.arithmetic import write_operators
from onnxq.emit.narrow import is_narrower
from onnxq.emit.qdq import QdqWriter, check_names
from onnxq.emit.quantized_values import replace_by_values
from onnxq.emit.simulations import SIMULATIONS
from onnxq.graph import Graph, collector_paused
from onnxq.half import round_to_half
from onnxq.types import Backend, Placement, QParams, QParamsTable, QuantPlan
from onnxq.types.backend import check_backend

_OPSET = 13
"""The lowest opset in which all operators that are used here exist in their present form."""


def simulate(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, *, pairs: bool = False
) -> tuple[Graph, list[str]]:
    """The simulated model, and a line for each thing that was changed on the way; the arguments stay as they are.

    With `pairs`, quantizers of 8 bits are QuantizeLinear and DequantizeLinear: two operators in the place of six, for
    sessions that leave such pairs alone (`onnxq.runtime.session.KEEP_PAIRS`). They compute the same numbers.
    """
    check_backend(backend)
    made = _simulated(graph, plan, qparams, backend, pairs=pairs)
    return made.graph, made.notes


@dataclass(frozen=True)
class Simulated:
    """A simulated model, and where its parameters stand.

    constants   quantized constant -> the constant with the values of its numbers
    scales      leader of activations -> names of scale and zero point of its pairs
    in_pairs    every quantizer of activations is such a pair
    """

    graph: Graph
    notes: list[str]
    constants: Mapping[str, str]
    scales: Mapping[str, list[tuple[str, str | None]]]
    in_pairs: bool


def simulate_in_pairs(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Simulated:
    """`simulate` with `pairs`, whose zero points are not shared: constants and parameters can be changed afterwards."""
    return _simulated(graph, plan, qparams, backend, pairs=True, share_zero_points=False)


def _simulated(
    graph: Graph,
    plan: QuantPlan,
    qparams: QParamsTable,
    backend: Backend,
    *,
    pairs: bool,
    share_zero_points: bool = True,
) -> Simulated:
    check_names(graph, plan, qparams)
    result = graph.copy()
    result.keep_given_names()
    others = (placement.spec.format for placement in plan if not placement.spec.format.in_operators)
    notes = result.raise_opset(max(backend.limits.min_opset, _OPSET, *(form.opset for form in others)))
    with collector_paused():
        for name in backend.simulations:
            notes += SIMULATIONS.get(name)(result, plan, qparams)
        writer = _Simulator(result, plan, qparams, backend, pairs, share_zero_points)
        for placement in plan:
            if placement.edges != ():  # otherwise it only lends its parameters to others
                writer.write(placement, plan.leader(placement.tensor))
        if backend.simulations:
            result.remove_dead()  # what a simulation has put another operator in the place of
        result.remove_unused_constants()
    if plan.rest is not None:
        round_to_half(result, plan.rest)
    return Simulated(result, notes, writer.constants, writer.scales(), writer.in_pairs)


class _Simulator:
    """Writes one placement after the other."""

    def __init__(
        self,
        graph: Graph,
        plan: QuantPlan,
        qparams: QParamsTable,
        backend: Backend,
        pairs: bool,
        share_zero_points: bool,
    ) -> None:
        self.graph = graph
        self.constants: dict[str, str] = {}
        self.in_pairs = True
        self._pairs = pairs
        self.qparams = qparams
        self._qdq = QdqWriter(
            graph,
            plan,
            qparams,
            backend.replace(absorb_activations=False, weight_storage="float", float8_pairs="guarded"),
            share_zero_points=share_zero_points,
        )

    def scales(self) -> dict[str, list[tuple[str, str | None]]]:
        return self._qdq.written_parameters()

    def write(self, placement: Placement, leader: str) -> None:
        parameters = self.qparams[placement.tensor]
        if self.graph.is_constant(placement.tensor):
            made = replace_by_values(self.graph, placement, self.qparams, "simulated")
            self.constants[placement.tensor] = made.name
        elif not (self._pairs and self._is_plain(placement, parameters)):
            self.in_pairs = False
            self._write_other(placement, parameters, leader)
        else:
            self._qdq.write_pair(placement, parameters, leader)

    def _write_other(self, placement: Placement, parameters: QParams, leader: str) -> None:
        if placement.spec.format.in_operators:
            write_operators(self.graph, placement, parameters, self._qdq.readers.get(placement.tensor))
        else:
            self._qdq.write_pair(placement, parameters, leader)

    def _is_plain(self, placement: Placement, parameters: QParams) -> bool:
        """Whether QuantizeLinear of 8 bits says all about a quantizer, and with the same bits.

        Scales of channels are left to operators: where a chip moves them to another axis, their shapes say so.
        """
        spec = parameters.spec
        plain = (
            parameters.scale.ndim == 0
            and spec.evenly_spaced
            and spec.bits == 8
            and spec.rounding == "half_even"
            and not is_narrower(spec)
        )
        return plain and self.graph.dtype(placement.tensor) == np.float32


def write_simulated(request: EmitRequest) -> Emitted:
    """Write `<name>.onnx`: float operators that compute what the target computes; it runs in onnxruntime."""
    result, notes = simulate(*request.quantized, request.backend)
    return Emitted(tuple(result.save(request.path(".onnx"))), tuple(notes))


EMITTERS.add("simulate", Emitter(write_simulated, files=(".onnx",)))
