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

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter, Write
from onnxq.emit.tables import rows
from onnxq.errors import UnsupportedError
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.targets.sophgo.cali_table_check import checker
from onnxq.targets.sophgo.float8 import is_float8
from onnxq.targets.sophgo.four_bits import refuse_four_bits
from onnxq.targets.sophgo.modes import four_bit_operators, operators
from onnxq.targets.sophgo.names import MATRICES, names_of, scale_count
from onnxq.targets.sophgo.ranges import Row, ranges
from onnxq.types import Backend, QParamsTable, QuantPlan

FILES = {
    "sophgo_cali_table": "_cali_table_from_sophgo_mq_sophgo_tpu",
    "sophgo_cali_table_nlp": "_cali_table_from_sophgo_mq_Academic_NLP",
    "sophgo_float_cali_table": "_float_cali_table_from_sophgo_mq_sophgo_tpu",
    "sophgo_float_cali_table_nlp": "_float_cali_table_from_sophgo_mq_Academic_NLP",
}
"""Emitter -> what stands behind the model's name."""

_WORK_MODE = "# work_mode:{} #Automatically generated, do not modify, work_mode choice:[{}]"
_INT_MODES = ("QAT_all_int8", "int4_and_int8_mix", "int4_and_int8_mix_no_fc")


def decimal(value: float) -> str:
    """A plain decimal: seven digits behind the point, and nine that count."""
    fixed = f"{value:.7f}"
    if value == 0 or abs(value) >= 100:
        return fixed
    digits = 8 - int(np.floor(np.log10(abs(value))))
    return f"{value:.{max(digits, 7)}f}"


def table_text(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> str:
    """The whole file."""
    weights = _weight_rows(graph, plan, qparams)
    if backend.scheme.activation is not None:
        _refuse_channels_of_matrices(graph, plan, qparams)
        refuse_four_bits(graph, plan)
    found = list(ranges(graph, plan, qparams, backend))
    narrow = [item for item in found if item.spec.bits == 4]
    in_float8 = any(
        is_float8(row.qparams.spec)
        for role in ("activation", "weight")
        for row in rows(graph, plan, qparams, role=role)
    )
    lines = [_first_line(in_float8=in_float8, mixed=bool(narrow)), "# op_name    threshold    min    max"]
    for item in found:
        lines += [f"{name} {_numbers(item.in_eight_bits)}" for name in names_of(graph, item.tensor)]
    lines.append("#int4_th")
    for item in narrow:
        lines += [f"{name} {_numbers(item.own)}" for name in names_of(graph, item.tensor)]
    four_bits = [name for operator in four_bit_operators(graph, plan) for name in operator.names]
    lines += ["#int4_op", *four_bits] if four_bits else []
    lines.append("#weight_scale_fp8" if in_float8 else "#weight_scale")
    ending = "_weight_fp8" if in_float8 else "_weight"
    for name, (scale, zero) in weights.items():
        count = len(scale)
        numbers = " ".join(decimal(value) for value in scale)
        lines.append(f"{name}{ending} {count} {numbers} {count} {' '.join(str(value) for value in zero)}")
    return "\n".join(lines) + "\n"


def _first_line(*, in_float8: bool, mixed: bool) -> str:
    if in_float8:
        return _WORK_MODE.format("mqbench-fp8", "mqbench-fp8")
    return _WORK_MODE.format(_INT_MODES[1] if mixed else _INT_MODES[0], ", ".join(_INT_MODES))


def _numbers(row: Row) -> str:
    return " ".join(decimal(value) for value in row)


def _weight_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, tuple[list[float], list[int]]]:
    """Operator name -> scales and zero points of its weight; formats without a scale have no row."""
    found = {}
    for operator in operators(graph, plan):
        if operator.weight is not None and qparams[operator.weight].spec.dtype not in ("fp16", "bf16"):
            parameters = qparams[operator.weight]
            values = parameters.scale.reshape(-1).astype(np.float64).tolist()
            zeros = parameters.zero_point.reshape(-1).tolist()
            copies = scale_count(graph, operator.node, len(values)) // len(values)
            found.update(dict.fromkeys(operator.names, (values * copies, zeros * copies)))
    return found


def _refuse_channels_of_matrices(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> None:
    for operator in operators(graph, plan):
        node, weight = operator.node, operator.weight
        if weight is not None and node.op in MATRICES and qparams[weight].scale.size > 1:
            raise UnsupportedError(
                f"weight '{weight}' of {node.op} '{node.name}' has {qparams[weight].scale.size} scales, and tpu-mlir "
                "takes the first of them for the whole matrix. Set per_channel = false there"
            )


def _writer(ending: str) -> Write:
    def write(request: EmitRequest) -> Emitted:
        path = request.path(ending)
        text = table_text(*request.quantized, request.backend)
        replace_file(path, lambda stream: stream.write(text.encode("utf-8")))
        return Emitted((path,))

    write.__doc__ = f"Write `<name>{ending}`: ranges and weight scales for tpu-mlir's model_deploy."
    return write


for _name, _ending in FILES.items():
    EMITTERS.add(_name, Emitter(_writer(_ending), (_ending,), read_back=checker(_ending), observed="range"))
