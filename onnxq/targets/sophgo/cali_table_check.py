"""Reads a calibration table as tpu-mlir does, and finds where the chip would not compute with the parameters.

Numbers are turned into scales by tpu-mlir's rules and compared with the parameters; which rows there may be is told by
the graph. Only ranges that follow from others are compared with the formulas that made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from onnxq.emit import EmitRequest, ReadBack
from onnxq.emit.tables import Row, differs, rows
from onnxq.graph import Graph
from onnxq.numerics import float_max
from onnxq.targets.sophgo.float8 import is_float8
from onnxq.targets.sophgo.names import LAYERS, names_of, operator_names, scale_count, weight_uses
from onnxq.targets.sophgo.ranges import behind_relu, has_unsigned, ranges
from onnxq.types import Backend, QParamsTable, QuantPlan

_PRECISION = 2e-7
_MARKS = (("#weight_scale", "weights"), ("#int4_th", "int4"), ("asym_op", "asymmetric"), ("int4_op", "four_bits"))

Numbers = tuple[float, float, float]


class Table:
    """A calibration table as tpu-mlir reads it."""

    def __init__(self, text: str) -> None:
        self.thresholds: dict[str, Numbers] = {}
        self.int4: dict[str, Numbers] = {}
        self.weights: dict[str, list[float]] = {}
        self.four_bits: set[str] = set()
        self.is_float8 = False
        self.wrong: list[str] = []
        block = "thresholds"
        for line in text.splitlines():
            if line.startswith("#"):
                self.is_float8 = self.is_float8 or "mqbench-fp8" in line or "#tpu-mlir-fp8" in line
                block = next((name for mark, name in _MARKS if mark in line), block)
            elif block == "weights":
                self._weight(line)
            elif block == "four_bits":
                self.four_bits.add(line)
            elif block != "asymmetric":
                self._threshold(line, self.int4 if block == "int4" else self.thresholds)

    def _threshold(self, line: str, into: dict[str, Numbers]) -> None:
        """A row counts only when it is a name and three plain decimals with nothing behind them."""
        fields = line.split()
        plain = all(set(field) <= set("-0123456789.e") for field in fields[1:])
        if len(fields) != 4 or not plain or line != line.strip():
            self.wrong.append(f"tpu-mlir would drop the row '{line}'")
            return
        if fields[0] in into:
            self.wrong.append(f"there are two rows '{fields[0]}'")
        into[fields[0]] = (float(fields[1]), float(fields[2]), float(fields[3]))

    def _weight(self, line: str) -> None:
        name, count, *numbers = line.split()
        scales, zeros = numbers[: int(count)], numbers[int(count) :]
        if zeros[:1] != [count] or len(zeros) != int(count) + 1 or set(zeros[1:]) != {"0"}:
            self.wrong.append(f"the row '{name}' does not hold {count} scales and {count} zero points of 0")
        if name in self.weights:
            self.wrong.append(f"there are two rows '{name}'")
        self.weights[name] = [float(number) for number in scales]


def problems(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, table: Table) -> Iterator[str]:
    """A line for everything in a table that is not as it should be."""
    yield from table.wrong
    known = {row.tensor: row for row in rows(graph, plan, qparams) if row.qparams.spec.bits <= 8}
    for row in known.values():
        cut = has_unsigned(backend) and behind_relu(graph, plan, row.tensor)
        for name in names_of(graph, row.tensor):
            yield from _compare(table, name, row, cut=cut, unsigned=has_unsigned(backend))
    allowed: set[str] = set()
    for item in ranges(graph, plan, qparams, backend):
        names = names_of(graph, item.tensor)
        allowed.update(names)
        if item.tensor not in known:
            for name in names:
                if differs(table.thresholds.get(name, ()), item.in_eight_bits, _PRECISION):
                    yield f"the row '{name}' is {table.thresholds.get(name)}, it should be {tuple(item.in_eight_bits)}"
    yield from _extra("row", table.thresholds, allowed)
    yield from _extra("4-bit row", table.int4, allowed)
    yield from _check_four_bits(graph, plan, qparams, table)
    yield from _check_weights(graph, plan, qparams, table)


def _compare(table: Table, name: str, row: Row, *, cut: bool, unsigned: bool) -> Iterator[str]:
    spec, scale = row.qparams.spec, float(row.qparams.scale)
    if name not in table.thresholds or (spec.bits == 4 and name not in table.int4):
        yield f"there is no row '{name}' for tensor '{row.tensor}'"
        return
    threshold, low, high = table.thresholds[name]
    signed = (low < 0 and not cut) or not unsigned
    if not spec.evenly_spaced:
        read = threshold / float_max(spec.dtype)
    elif spec.symmetric:
        read = threshold / (127 if signed else 255)
    else:
        read = (high - low) / 255
        zero_point = round(-128 - low / read)
        if zero_point != int(row.qparams.zero_point):
            yield f"the row '{name}' gives the zero point {zero_point}, '{row.tensor}' has {row.qparams.zero_point}"
    bounds = (float(row.low), float(row.high))
    if spec.bits == 4:
        bounds = (-threshold * 128 / 127 if spec.signed else 0.0, threshold)
        yield from _compare_four_bits(table, name, row, step=read)
    elif differs(read, scale, _PRECISION):
        yield f"the row '{name}' gives the scale {read:g}, the parameters of '{row.tensor}' say {scale:g}"
    if differs(
        (threshold, low, high), (max(-bounds[0], bounds[1]) if not spec.symmetric else bounds[1], *bounds), 1e-6
    ):
        yield f"the row '{name}' ends at {threshold:g} and goes from {low:g} to {high:g}, it should be {bounds}"
    if spec.evenly_spaced and spec.symmetric and signed != spec.signed:
        yield f"the row '{name}' makes '{row.tensor}' {'signed' if signed else 'unsigned'}, it is {spec.dtype}"


def _compare_four_bits(table: Table, name: str, row: Row, *, step: float) -> Iterator[str]:
    """Scales of a 4-bit tensor, made by a 4-bit operator or out of 8 bits; those must not round to something else."""
    scale = float(row.qparams.scale)
    threshold, low, high = table.int4[name]
    for read in (threshold / (7 if low < 0 else 15), (high - low) / 15):
        if differs(read, scale, _PRECISION):
            yield f"the 4-bit row '{name}' gives the scale {read:g}, the parameters of '{row.tensor}' say {scale:g}"
    parts = scale / step
    if round(parts) % 2 == 0 or differs(parts, round(parts), 4 * _PRECISION):
        yield f"the row '{name}' has {parts:g} steps for one of 4 bits, which rounds otherwise than the parameters"
    if table.thresholds[name][0] < float(row.high) * (1 - _PRECISION):
        yield f"the row '{name}' ends at {table.thresholds[name][0]:g}, '{row.tensor}' at {float(row.high):g}"


def _check_four_bits(graph: Graph, plan: QuantPlan, qparams: QParamsTable, table: Table) -> Iterator[str]:
    """The list of 4-bit operators: the layers that read a tensor of 4 bits."""
    wanted: set[str] = set()
    for node in graph.nodes():
        read = [str(t.name) for t in node.inputs if t.name in plan and not graph.is_constant(t)]
        if node.op in LAYERS and node.name in plan.quantized and any(qparams[name].spec.bits == 4 for name in read):
            wanted.update(operator_names(graph, node, plan.fused))
    for name in sorted(wanted - table.four_bits):
        yield f"operator '{name}' reads 4 bits and is not in the list of such operators"
    yield from _extra("4-bit operator", table.four_bits, wanted)


def _check_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable, table: Table) -> Iterator[str]:
    held = [
        row
        for row in rows(graph, plan, qparams, role="weight")
        if row.qparams.spec.dtype not in ("fp16", "bf16") and weight_uses(graph, row.tensor)
    ]
    quantized = [*held, *rows(graph, plan, qparams)]
    if table.is_float8 != any(is_float8(row.qparams.spec) for row in quantized):
        yield f"tpu-mlir would {'' if table.is_float8 else 'not '}take it for a table of float8"
    ending = "_weight_fp8" if table.is_float8 else "_weight"
    wanted: set[str] = set()
    for row in held:
        for node in weight_uses(graph, row.tensor):
            for name in (f"{name}{ending}" for name in operator_names(graph, node, plan.fused)):
                wanted.add(name)
                read = table.weights.get(name, [])
                scales = row.qparams.scale.reshape(-1)
                count = scale_count(graph, node, scales.size)
                if len(read) != count:
                    yield f"the row '{name}' has {len(read)} scales, tpu-mlir reads {count}"
                elif differs(read, np.resize(scales, count), _PRECISION):
                    yield f"the weight scales '{name}' are not those of '{row.tensor}'"
    yield from _extra("weight row", table.weights, wanted)


def _extra(what: str, read: Iterable[str], wanted: set[str]) -> Iterator[str]:
    for name in read:
        if name not in wanted:
            yield f"the {what} '{name}' belongs to nothing in the model"


def checker(ending: str) -> ReadBack:
    """The read-back of a table whose file's name ends so."""

    def check(request: EmitRequest) -> Iterator[str]:
        path = request.path(ending)
        table = Table(path.read_text(encoding="utf-8"))
        for problem in problems(*request.quantized, request.backend, table):
            yield f"{path.name}: {problem}"

    return check
