"""The calibration table of tpu-mlir: ranges of activations, thresholds of int4 operators, scales of weights.

    # op_name    threshold    min    max
    x 3.8994217 -3.9301258 3.8994217
    #int4_th                              int4 operators read these thresholds instead
    #int4_op                              and are listed here
    #asym_op                              asymmetric inputs
    #weight_scale
    y_Conv_weight 4 0.0034799 ... 4 0 0 0 0

Its reader drops a row with an exponent, a plus sign or a blank at the end without a word, and it takes a table for
float8 only when the remark at the top holds "mqbench-fp8". Numbers are plain decimals with at least seven digits behind
the point, more where the number is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.sophgo_modes import operators
from onnxq.emit.sophgo_names import names_of
from onnxq.emit.sophgo_ranges import ranges, steps
from onnxq.emit.tables import differs, rows
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.types import Backend, QParamsTable, QuantPlan, QuantSpec

FILES = {
    "sophgo_cali_table": "_cali_table_from_sophgo_mq_sophgo_tpu",
    "sophgo_cali_table_nlp": "_cali_table_from_sophgo_mq_Academic_NLP",
    "sophgo_float_cali_table": "_float_cali_table_from_sophgo_mq_sophgo_tpu",
    "sophgo_float_cali_table_nlp": "_float_cali_table_from_sophgo_mq_Academic_NLP",
}
"""Emitter -> what stands behind the model's name."""

_WORK_MODE = "# work_mode:{} #Automatically generated, do not modify, work_mode choice:[{}]"
_INT_MODES = ("QAT_all_int8", "int4_and_int8_mix", "int4_and_int8_mix_no_fc")
_PRECISION = 2e-7


def decimal(value: float) -> str:
    """A plain decimal: seven digits behind the point, and nine that count."""
    fixed = f"{value:.7f}"
    if value == 0 or abs(value) >= 100:
        return fixed
    digits = 8 - int(np.floor(np.log10(abs(value))))
    return f"{value:.{max(digits, 7)}f}"


def table_text(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> str:
    """The whole file."""
    weights = _weight_rows(graph, plan, qparams)
    found = list(ranges(graph, plan, qparams))
    narrow = [item for item in found if item.spec.dtype.endswith("int4")]
    is_float8 = any(
        row.qparams.spec.dtype.startswith("fp8")
        for role in ("activation", "weight")
        for row in rows(graph, plan, qparams, role=role)
    )
    lines = [_first_line(is_float8=is_float8, mixed=bool(narrow)), "# op_name    threshold    min    max"]
    for item in found:
        lines += [f"{name} {_numbers(item.threshold, item.low, item.high)}" for name in names_of(graph, item.tensor)]
    lines.append("#int4_th")
    for item in narrow:
        low = 0.0 if not item.spec.signed else -item.threshold * 8 / 7
        lines += [f"{name} {_numbers(item.threshold, low, item.threshold)}" for name in names_of(graph, item.tensor)]
    four_bits = [
        name for operator in operators(graph, plan, "F32") if operator.mode == "INT4" for name in operator.names
    ]
    lines += ["#int4_op", *four_bits] if four_bits else []
    lines.append("#weight_scale_fp8" if is_float8 else "#weight_scale")
    ending = "_weight_fp8" if is_float8 else "_weight"
    for name, (scale, zero) in weights.items():
        count = len(scale)
        numbers = " ".join(decimal(value) for value in scale)
        lines.append(f"{name}{ending} {count} {numbers} {count} {' '.join(str(value) for value in zero)}")
    return "\n".join(lines) + "\n"


def _first_line(*, is_float8: bool, mixed: bool) -> str:
    if is_float8:
        return _WORK_MODE.format("mqbench-fp8", "mqbench-fp8")
    return _WORK_MODE.format(_INT_MODES[1] if mixed else _INT_MODES[0], ", ".join(_INT_MODES))


def _numbers(*values: float) -> str:
    return " ".join(decimal(value) for value in values)


def _weight_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, tuple[list[float], list[int]]]:
    """Operator name -> scales and zero points of its weight; formats without a scale have no row."""
    found = {}
    for operator in operators(graph, plan, "F32"):
        if operator.weight is not None and qparams[operator.weight].spec.dtype not in ("fp16", "bf16"):
            parameters = qparams[operator.weight]
            values = parameters.scale.reshape(-1).astype(np.float64).tolist()
            zeros = parameters.zero_point.reshape(-1).tolist()
            found.update(dict.fromkeys(operator.names, (values, zeros)))
    return found


class Table:
    """A calibration table as tpu-mlir reads it."""

    def __init__(self, text: str) -> None:
        self.thresholds: dict[str, tuple[float, float, float]] = {}
        self.int4: dict[str, tuple[float, float, float]] = {}
        self.weights: dict[str, list[float]] = {}
        self.is_float8 = False
        self.dropped: list[str] = []
        block = "activations"
        for line in text.splitlines():
            if line.startswith("#"):
                block = self._block(line) or block
            elif block == "weights":
                name, count, *numbers = line.split()
                self.weights[name] = [float(number) for number in numbers[: int(count)]]
            elif block != "names":
                self._threshold(line, self.int4 if block == "int4" else self.thresholds)

    def _block(self, line: str) -> str | None:
        self.is_float8 = self.is_float8 or "mqbench-fp8" in line or "#tpu-mlir-fp8" in line
        for mark, block in (("#weight_scale", "weights"), ("#int4_th", "int4"), ("asym_op", "names")):
            if mark in line:
                return block
        return "names" if "int4_op" in line else None

    def _threshold(self, line: str, into: dict[str, tuple[float, float, float]]) -> None:
        """A row counts only when it is a name and three plain decimals with nothing behind them."""
        fields = line.split()
        plain = all(set(field) <= set("-0123456789.e") for field in fields[1:])
        if len(fields) != 4 or not plain or line != line.strip():
            self.dropped.append(line)
            return
        into[fields[0]] = (float(fields[1]), float(fields[2]), float(fields[3]))


def _writer(ending: str) -> Callable[..., Emitted]:
    def write(
        graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Emitted:
        path = folder / f"{name}{ending}"
        text = table_text(graph, plan, qparams)
        replace_file(path, lambda stream: stream.write(text.encode("utf-8")))
        return Emitted((path,))

    write.__doc__ = f"Write `<name>{ending}`: ranges and weight scales for tpu-mlir's model_deploy."
    return write


def _checker(ending: str) -> Callable[..., Iterator[str]]:
    def check(
        graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Iterator[str]:
        path = folder / f"{name}{ending}"
        table = Table(path.read_text(encoding="utf-8"))
        for line in table.dropped:
            yield f"{path.name}: tpu-mlir would drop the row '{line}'"
        for row in rows(graph, plan, qparams):
            if row.qparams.spec.bits <= 8:
                for known in names_of(graph, row.tensor):
                    yield from _compare_range(table, known, row.tensor, row.qparams.scale, row.qparams.spec, path.name)
        written = _weight_rows(graph, plan, qparams)
        ending_of_row = "_weight_fp8" if table.is_float8 else "_weight"
        for operator, (scale, _) in written.items():
            if differs(table.weights.get(operator + ending_of_row, []), scale, _PRECISION):
                yield f"{path.name}: the weight scales of '{operator}' are not those of the parameters"

    return check


def _compare_range(
    table: Table, name: str, tensor: str, scale: np.ndarray, spec: QuantSpec, file: str
) -> Iterator[str]:
    block = table.int4 if spec.dtype.endswith("int4") else table.thresholds
    if name not in block:
        yield f"{file}: there is no row '{name}' for tensor '{tensor}'"
        return
    threshold, low, high = block[name]
    read = (high - low) / (spec.qmax - spec.qmin) if not spec.symmetric else threshold / steps(spec)
    unsigned = low == 0
    if differs(read, scale, _PRECISION) or (spec.symmetric and unsigned == spec.signed):
        yield f"{file}: the row '{name}' gives the scale {read:g}, the parameters of '{tensor}' say {float(scale):g}"


for _name, _ending in FILES.items():
    EMITTERS.add(_name, _writer(_ending))
    READ_BACKS.add(_name, _checker(_ending))
