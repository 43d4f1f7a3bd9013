"""Which nodes may compute in half precision, judged on the graph and on data.

A node stays float32 where ONNX has no half precision for it, where a value that it reads or makes comes near the
largest number (calibration does not show every value, so that a factor of MARGIN is kept free), where it adds up more
terms than the type has digits for, where a constant is lost (an epsilon of 1e-12 becomes 0), and where rounding its
inputs costs far more than rounding alone: the difference of two nearly equal numbers, the exponential of a large one.
The last is measured: the model is run with everything rounded that would be half precision, and each tensor is compared
with the one in float32. What is float32 for that reason changes the others, so that this is done until nothing new is
found. Without data all that depends on ranges stays float32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node, bodies
from onnxq.half.convert import round_to_half
from onnxq.half.kinds import HalfKind, fits, half_kind, opset_for
from onnxq.half.ports import QUANTIZERS, TYPELESS, half_ports, is_float32
from onnxq.half.sums import BY_DATA, RECURRENT, adds_up, sum_bound, terms_of
from onnxq.match import resolve
from onnxq.numerics import SqnrAccumulator
from onnxq.observers import OBSERVERS
from onnxq.runtime.collect import Engine, collect
from onnxq.runtime.feeds import Feed
from onnxq.runtime.tap import Tap, memory_groups
from onnxq.types import QParamsTable, QuantPlan
from onnxq.types.reason import Reason
from onnxq.types.rest import HalfRest, RestPlan

MARGIN = 4.0
LOST_DB = 10.0
"""A node whose result is this much worse than the worst of what it reads has lost something."""
SAMPLES, ROUNDS = 8, 5
MOVING = (
    *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split", "Concat", "Gather"),
    *("Expand", "Tile", "Pad", "DepthToSpace", "SpaceToDepth", "MaxPool"),
)
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def judge_rest(
    graph: Graph,
    plan: QuantPlan,
    qparams: QParamsTable,
    wish: HalfRest,
    samples: Iterable[Feed] | None,
    *,
    keep: Iterable[str] = (),
    engine: Engine | None = None,
) -> RestPlan:
    """What of a float graph with a plan computes in half precision; `keep` are patterns of nodes that do not.

    The graph's shapes must be inferred, and all of it be float32.
    """
    judge = _Judge(graph, plan, qparams, wish, keep)
    if samples is None:
        judge.without_data()
    else:
        seen = list(islice(samples, SAMPLES))
        judge.by_ranges(_largest(graph, judge.tensors(), samples, engine), _shapes(graph, judge.summing(), seen))
        judge.by_loss(seen, engine or Engine())
    judge.join_units()
    judge.join_islands()
    return judge.found()


class _Judge:
    def __init__(
        self, graph: Graph, plan: QuantPlan, qparams: QParamsTable, wish: HalfRest, keep: Iterable[str]
    ) -> None:
        self.graph, self.plan, self.qparams, self.wish = graph, plan, qparams, wish
        self.kind = half_kind(wish.dtype)
        self.opset = max(graph.opset, opset_for(wish))
        self.quantized = {one.tensor for one in plan if one.edges != ()}
        self.half: dict[str, Node] = {}
        self.float32: dict[str, Reason] = {}
        nodes = {str(node.name): node for node in graph.nodes() if graph.scope_of(node) is graph.gs}
        kept = resolve(keep, {name: str(node.op) for name, node in nodes.items()}, "node")
        quantized = () if wish.scales else {*plan.quantized, *plan.fused}
        for name, node in nodes.items():
            if name in quantized or not self._computes_floats(node):
                continue
            reason = _kept(kept[name]) if name in kept else self._in_kernel(name, quantized) or self._static(node)
            if reason is None:
                self.half[name] = node
            else:
                self.float32[name] = reason

    def found(self) -> RestPlan:
        return RestPlan(self.wish.dtype, self.wish.scales, tuple(self.half), dict(self.float32))

    def tensors(self) -> list[str]:
        """Computed float32 tensors that a node reads or makes which may be half precision."""
        names = (str(tensor.name) for node in self.half.values() for tensor in self._floats(node))
        return list(dict.fromkeys(name for name in names if not self.graph.is_constant(name)))

    def summing(self) -> list[str]:
        return list(dict.fromkeys(str(node.inputs[0].name) for node in self.half.values() if adds_up(node)))

    # ---- from the graph alone --------------------------------------------------------------------------------------

    def _floats(self, node: Node) -> list[Any]:
        return [tensor for tensor in (*node.inputs, *node.outputs) if is_float32(self.graph, tensor)]

    def _computes_floats(self, node: Node) -> bool:
        if node.op in (*QUANTIZERS, *TYPELESS, "Constant") or not self._floats(node):
            return False
        return node.op != "Cast" or is_float32(self.graph, node.outputs[0])

    def _in_kernel(self, name: str, quantized: Collection[str]) -> Reason | None:
        """What one kernel computes together with a quantized layer: a Cast between would take the two apart."""
        unit = self.graph.units.of(name)
        leader = None if unit is None else next((other for other in unit.nodes if other in quantized), None)
        return None if leader is None else Reason("half_island", f"in one kernel with '{leader}', which is quantized")

    def _static(self, node: Node) -> Reason | None:
        kind = self.kind
        if bodies(node):
            return Reason("control_flow", f"{node.op}: its bodies compute in float32")
        if node.op in RECURRENT:
            return Reason("half_sum", f"the state of {node.op} is carried from step to step")
        if half_ports(self.graph, node, kind, self.opset) is None:
            domain = f"{node.domain}." if node.domain else ""
            return Reason("half_operator", f"ONNX defines no {kind.name} for {domain}{node.op}")
        if any(self.graph.is_output(made) and made not in self.graph.gs.outputs for made in node.outputs):
            return Reason("control_flow", "a body returns its result")
        return next(self._constants(node), None) or next(self._scales(node), None)

    def _constants(self, node: Node) -> Iterator[Reason]:
        """Constants that the type cannot hold; weights that are quantized come from their integers."""
        kind = self.kind
        exact = not any(is_float32(self.graph, made) for made in node.outputs)
        for tensor in node.inputs:
            if not is_float32(self.graph, tensor) or not self.graph.is_constant(tensor):
                continue
            if self.wish.scales and tensor.name in self.quantized:
                continue
            values = self.graph.values(tensor)
            finite = np.abs(values[np.isfinite(values)]).astype(np.float64)
            if finite.size and finite.max() > kind.largest:
                yield Reason("half_range", f"constant '{tensor.name}' reaches {finite.max():.3g}, {_end(kind)}")
            elif finite.size and not _survives(values, kind, exact):
                size = finite[finite > 0].min() if (finite > 0).any() else 0.0
                yield Reason("half_loss", f"constant '{tensor.name}' loses digits in {kind.name} (down to {size:.3g})")

    def _scales(self, node: Node) -> Iterator[Reason]:
        for tensor in (*node.inputs, *node.outputs) if self.wish.scales else ():
            if tensor.name in self.quantized:
                held = self.qparams[tensor.name]
                if not fits(held, self.kind):
                    size = float(held.scale.max())
                    yield Reason(
                        "half_range", f"the scale of '{tensor.name}' is {size:.3g}, too small for {self.kind.name}"
                    )

    # ---- from data -------------------------------------------------------------------------------------------------

    def without_data(self) -> None:
        for name, node in list(self.half.items()):
            if node.op in BY_DATA:
                self._keep(name, Reason("half_range", f"{node.op}, whose range no data has shown"))

    def by_ranges(self, largest: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]]) -> None:
        limit = self.kind.largest / MARGIN
        for name, node in list(self.half.items()):
            sizes = [(largest.get(str(tensor.name), 0.0), str(tensor.name)) for tensor in self._floats(node)]
            size, tensor = max(sizes, default=(0.0, ""))
            if size > limit:
                self._keep(name, Reason("half_range", f"'{tensor}' reaches {size:.3g}, {_end(self.kind)}"))
            elif adds_up(node):
                self._by_sum(name, node, largest.get(str(node.inputs[0].name), 0.0), shapes)

    def _by_sum(self, name: str, node: Node, size: float, shapes: Mapping[str, tuple[int, ...]]) -> None:
        source = str(node.inputs[0].name)
        shape = shapes.get(source) or self.graph.shape(source)
        terms = None if shape is None else terms_of(self.graph, node, shape)
        if terms is None:
            self._keep(name, Reason("half_sum", f"{node.op} adds up a number of terms that is not known"))
        elif terms > self.kind.terms:
            text = f"{node.op} adds up {terms} terms, {self.kind.name} has digits for {self.kind.terms}"
            self._keep(name, Reason("half_sum", text))
        elif sum_bound(node, size, terms) > self.kind.largest:
            bound = sum_bound(node, size, terms)
            self._keep(name, Reason("half_range", f"the sum of {terms} terms can reach {bound:.3g}, {_end(self.kind)}"))

    def by_loss(self, feeds: list[Feed], engine: Engine) -> None:
        """Keep what loses in a run with everything rounded, and what hands it the numbers that it loses on."""
        for _ in range(ROUNDS):
            quality = _quality(self.graph, self.found(), self.tensors(), feeds, engine)
            lost = dict(self._lost(quality))
            for name, reason in lost.items():
                if name in self.half:
                    self._keep(name, reason)
            if not lost:
                return

    def _lost(self, quality: Mapping[str, float]) -> Iterator[tuple[str, Reason]]:
        for node in self.graph.nodes():
            made = [quality[str(t.name)] for t in node.outputs if str(t.name) in quality]
            if not made or min(made) >= self.kind.low_db:
                continue
            read = [quality[str(t.name)] for t in node.inputs if str(t.name) in quality]
            if read and min(made) > min(read) - LOST_DB:
                continue  # what comes is as bad
            text = f"its result has {min(made):.0f} dB in {self.kind.name}, less than what it reads"
            if node.name in self.half:
                yield str(node.name), Reason("half_loss", text)
                continue
            for tensor in node.inputs:
                maker = self.graph.producer(tensor) if tensor.name else None
                if maker is not None and maker.name in self.half:
                    why = f"node '{node.name}' loses accuracy on its rounded result ({min(made):.0f} dB)"
                    yield str(maker.name), Reason("half_loss", why)

    # ---- what stands between ---------------------------------------------------------------------------------------

    def join_units(self) -> None:
        """A norm or an activation in several nodes is float32 as a whole: Casts inside would cost too much."""
        for unit in self.graph.units.all():
            members = [self.graph.node(name) for name in unit.nodes if self.graph.has_node(name)]
            blamed = next((name for name in unit.nodes if name in self.float32), None)
            if blamed is None or any(node.op in WEIGHTED for node in members):
                continue
            for name in unit.nodes:
                if name in self.half:
                    why = self.float32[blamed]
                    self._keep(name, Reason(why.code, f"part of the {unit.kind} of '{blamed}': {why}"))

    def join_islands(self) -> None:
        """A cheap node, or a chain that only moves values, is float32 where nothing around it is half precision."""
        changed = True
        while changed:
            changed = False
            for region in self._regions():
                moves = all(self.half[name].op in MOVING for name in region)
                alone = len(region) == 1 and self.half[region[0]].op not in WEIGHTED
                if (moves or alone) and self._stands_apart(region):
                    changed = True
                    for name in region:
                        self._keep(name, Reason("half_island", "only float32 nodes stand around it"))

    def _regions(self) -> list[list[str]]:
        """Nodes of half precision that hand each other tensors without a quantizer in between."""
        found, seen = [], set[str]()
        for start in self.half:
            if start in seen:
                continue
            region, pending = [], [start]
            seen.add(start)
            while pending:
                region.append(pending.pop())
                for name in self._neighbours(region[-1]):
                    if name in self.half and name not in seen:
                        seen.add(name)
                        pending.append(name)
            found.append(region)
        return found

    def _neighbours(self, name: str) -> Iterator[str]:
        node = self.half[name]
        for tensor in self._floats(node):
            if str(tensor.name) in self.quantized or self.graph.is_constant(tensor):
                continue
            maker = self.graph.producer(tensor)
            if maker is not None:
                yield str(maker.name)
            yield from (str(use.node.name) for use in self.graph.consumers(tensor))

    def _stands_apart(self, region: list[str]) -> bool:
        """Whether no quantizer stands at a region that would take its type, and somebody in float32 does."""
        tensors = [tensor for name in region for tensor in self._floats(self.half[name])]
        if self.wish.scales and any(str(tensor.name) in self.quantized for tensor in tensors):
            return False
        return any(not self.graph.is_constant(tensor) for tensor in tensors)

    def _keep(self, name: str, reason: Reason) -> None:
        del self.half[name]
        self.float32[name] = reason


def _kept(pattern: str) -> Reason:
    return Reason("half_kept", f"kept in float32: '{pattern}'")


def _end(kind: HalfKind) -> str:
    return f"{kind.name} ends at {kind.largest:.5g}"


def _survives(values: np.ndarray, kind: HalfKind, exact: bool) -> bool:
    with np.errstate(over="ignore"):
        rounded = values.astype(kind.dtype).astype(np.float32)
    if exact:
        return np.array_equal(rounded, values, equal_nan=True)
    quality = SqnrAccumulator()
    quality.add(values, rounded)
    return quality.value >= kind.low_db


def _largest(graph: Graph, tensors: list[str], samples: Iterable[Feed], engine: Engine | None) -> dict[str, float]:
    """The largest magnitude of each tensor over all samples; infinity for one that no run could return."""
    observer = OBSERVERS.get("minmax")()
    statistics = {name: [observer.new_statistic()] for name in tensors}
    report = collect(graph, samples, statistics, engine=engine)
    found = {}
    for name, (statistic,) in statistics.items():
        seen = statistic.rows > 0 and bool((statistic.count > 0).all())
        ends = (abs(float(statistic.minimum.min())), abs(float(statistic.maximum.max()))) if seen else (0.0,)
        found[name] = np.inf if name in report.unreachable else max(ends)
    return found


def _shapes(graph: Graph, tensors: list[str], feeds: list[Feed]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in the sample where it has most elements."""
    found: dict[str, tuple[int, ...]] = {}
    tap = Tap(graph, [name for name in tensors if not graph.is_constant(name)], optimize="basic")
    for number, feed in enumerate(feeds):
        for name, array in tap.run(feed, f"sample {number}").items():
            if np.prod(array.shape) >= np.prod(found.get(name, ())):
                found[name] = tuple(array.shape)
    return found


def _quality(graph: Graph, rest: RestPlan, tensors: list[str], feeds: list[Feed], engine: Engine) -> dict[str, float]:
    """The SQNR of each tensor in a run with everything rounded, against the one in float32."""
    rounded = graph.copy()
    round_to_half(rounded, replace(rest, scales=False))
    shared = [name for name in tensors if rounded.has_tensor(name) and name not in graph.input_names]
    sums = {name: SqnrAccumulator() for name in shared}
    for group in memory_groups(graph, shared, feeds[0], engine.bytes_of_a_run() // 2):
        floats, halves = Tap(graph, group, optimize="basic"), Tap(rounded, group, optimize="basic")
        for number, feed in enumerate(feeds):
            expected, measured = floats.run(feed, f"sample {number}"), halves.run(feed, f"sample {number}")
            for name in group:
                if expected[name].shape == measured[name].shape:
                    sums[name].add(expected[name], measured[name])
    return {name: total.value for name, total in sums.items() if total.compared}
