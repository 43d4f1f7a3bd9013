"""The quantize table of tpu-mlir: in which precision each operator runs.

    # op_name  quantize_mode
    y_Conv INT8
    z_Softmax F32

Every operator of the plan has a row, so that nothing depends on the default given to model_deploy. A mode that tpu-mlir
does not know ends its run; names that it does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.sophgo_modes import operators
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.types import Backend, QParamsTable, QuantPlan

MODES = (
    *("INT8", "UINT8", "INT4", "BF16", "F16", "F32", "W8F16", "W8BF16", "W4F16", "W4BF16", "F8", "F8E4M3", "F8E5M2"),
    *("W4F8E4M3", "W4F8E5M2", "W4INT8", "INT8F16DYN", "INT8BF16DYN", "INT4F16DYN", "INT4BF16DYN"),
    *("F8E4M3F16DYN", "F8E4M3BF16DYN", "F4F16DYN", "F4BF16DYN"),
)
"""What tpu-mlir 1.30 understands."""

_ENDINGS = {
    "": "_q_table_from_sophgo_mq_sophgo_tpu",
    "_nlp": "_q_table_from_sophgo_mq_Academic_NLP",
    "_nlp_float": "_q_table_from_sophgo_mq_Academic_NLP_Float",
}
FLOAT_MODES = ("F32", "F16", "BF16")
"""What operators that are not quantized may run in; one emitter each."""


def emitter_name(kind: str, in_float: str) -> str:
    """The emitter for a kind of file ("", "_nlp", "_nlp_float") and the mode of operators that stay float."""
    return f"sophgo_q_table{kind}_{in_float.lower()}"


def read_modes(text: str) -> dict[str, str]:
    """Operator -> mode, as tpu-mlir reads a table."""
    rows = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {fields[0]: fields[1] for fields in rows}


def _wanted(graph: Graph, plan: QuantPlan, in_float: str) -> dict[str, str]:
    return {name: operator.mode for operator in operators(graph, plan, in_float) for name in operator.names}


def _writer(ending: str, in_float: str) -> Callable[..., Emitted]:
    def write(
        graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Emitted:
        path = folder / f"{name}{ending}"
        lines = ["# qtable from sophgo_mq", "# op_name  quantize_mode"]
        lines += [f"{operator} {mode}" for operator, mode in _wanted(graph, plan, in_float).items()]
        text = "\n".join(lines) + "\n"
        replace_file(path, lambda stream: stream.write(text.encode("utf-8")))
        return Emitted((path,))

    write.__doc__ = f"Write `<name>{ending}`: operator -> mode for tpu-mlir; what stays float runs in {in_float}."
    return write


def _checker(ending: str, in_float: str) -> Callable[..., Iterator[str]]:
    def check(
        graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
    ) -> Iterator[str]:
        path = folder / f"{name}{ending}"
        read = read_modes(path.read_text(encoding="utf-8"))
        for operator, mode in _wanted(graph, plan, in_float).items():
            if read.get(operator) != mode:
                yield f"{path.name}: operator '{operator}' has mode {read.get(operator)}, it should be {mode}"
        for operator, mode in read.items():
            if mode not in MODES:
                yield f"{path.name}: operator '{operator}' has mode {mode}, which tpu-mlir does not know"

    return check


for _kind, _ending in _ENDINGS.items():
    for _mode in FLOAT_MODES:
        EMITTERS.add(emitter_name(_kind, _mode), _writer(_ending, _mode))
        READ_BACKS.add(emitter_name(_kind, _mode), _checker(_ending, _mode))
