"""The quantize table of tpu-mlir: in which precision each operator runs.

    # op_name  quantize_mode
    y_Conv INT8
    z_Softmax F32

Every operator of the plan has a row, so that nothing depends on the default given to model_deploy. A mode that tpu-mlir
does not know ends its run; names that it does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter, ReadBack, Write
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.targets.sophgo.float8 import refuse_float8
from onnxq.targets.sophgo.modes import Operator, float_mode, float_result, mode_of, mode_of_unit, operators
from onnxq.targets.sophgo.names import LAYERS
from onnxq.types import QParamsTable, QuantPlan
from onnxq.types.note import Note

FILES = {
    "sophgo_q_table": "_q_table_from_sophgo_mq_sophgo_tpu",
    "sophgo_q_table_nlp": "_q_table_from_sophgo_mq_Academic_NLP",
    "sophgo_q_table_nlp_float": "_q_table_from_sophgo_mq_Academic_NLP_Float",
}
"""Emitter -> what stands behind the model's name."""

_FORMATS = {
    "INT8": (("int8", "uint8"), "int8"),
    "INT4": (("int4", "uint4"), "int4"),
    "W4INT8": (("int8", "uint8"), "int4"),
    "F8E4M3": (("fp8_e4m3",), "fp8_e4m3"),
    "F8E5M2": (("fp8_e5m2",), "fp8_e5m2"),
    "F16": (("fp16",), "fp16"),
    "BF16": (("bf16",), "bf16"),
}
"""Mode of a quantized operator -> formats that it reads, and the format of its weight."""


def read_modes(text: str) -> dict[str, str]:
    """Operator -> mode, as tpu-mlir reads a table."""
    rows = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {fields[0]: fields[1] for fields in rows}


def _writer(ending: str) -> Write:
    def write(request: EmitRequest) -> Emitted:
        path = request.path(ending)
        graph, plan, other = request.graph, request.plan, float_mode(request.backend)
        refuse_float8(graph, plan)
        modes: dict[str, str] = {}
        for operator in operators(graph, plan):
            modes |= dict.fromkeys(operator.names, mode_of(graph, plan, operator, other))
        lines = ["# qtable from sophgo_mq", "# op_name  quantize_mode"]
        text = "\n".join([*lines, *(f"{operator} {mode}" for operator, mode in modes.items())]) + "\n"
        replace_file(path, lambda stream: stream.write(text.encode("utf-8")))
        return Emitted((path,), tuple(_notes(graph, plan, other)))

    write.__doc__ = f"Write `<name>{ending}`: operator -> mode for tpu-mlir."
    return write


def _notes(graph: Graph, plan: QuantPlan, in_float: str) -> Iterator[Note]:
    """A line for every node that is quantized in the plan and runs in float, because its result is read as float."""
    for operator in operators(graph, plan):
        node = operator.node
        result = float_result(graph, plan, node) if node.name in plan.quantized else None
        if result is not None and mode_of(graph, plan, operator, "") == "":
            text = f"node '{node.name}' ({node.op}) runs in {in_float}: its result '{result}' is read as float"
            yield Note("runs_in_float", text)


def _checker(ending: str) -> ReadBack:
    def check(request: EmitRequest) -> Iterator[str]:
        path = request.path(ending)
        read = read_modes(path.read_text(encoding="utf-8"))
        for operator in operators(request.graph, request.plan):
            for known in operator.names:
                mode = read.pop(known, None)
                wrong = _wrong(*request.quantized, operator, mode, float_mode(request.backend))
                if wrong:
                    yield f"{path.name}: operator '{known}' has mode {mode}, but {wrong}"
        for known in read:
            yield f"{path.name}: operator '{known}' belongs to nothing in the model"

    return check


def _wrong(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, operator: Operator, mode: str | None, in_float: str
) -> str | None:
    """What speaks against a mode: the formats that the operator reads and holds."""
    node = operator.node
    as_one = mode_of_unit(graph, plan, node) is not None
    if mode is None:
        return "every operator needs one"
    if node.name not in plan.quantized and not as_one:
        return None if mode == in_float else f"it stays float and runs in {in_float}"

    def formats(tensors: Any) -> set[str]:
        return {qparams[t.name].spec.dtype for t in tensors if t.name in plan and not graph.is_constant(t)}

    found = formats(node.outputs) if as_one else formats(node.inputs)
    stored = None if operator.weight is None else qparams[operator.weight].spec
    if stored is not None and not found:
        return None if mode == f"W{stored.bits}{in_float}" else f"its weight alone is quantized, to {stored.dtype}"
    read_as_float = float_result(graph, plan, node)
    if read_as_float is not None:
        return None if mode == in_float else f"its result '{read_as_float}' is read as float, so it runs in {in_float}"
    reads, weight = _FORMATS.get(mode, ((), ""))
    if mode == "INT8" and node.op not in LAYERS:
        reads = (*reads, "int4", "uint4")  # what moves 4-bit values does so in 8 bits
    if not (found or formats(node.outputs)) & set(reads):
        return f"its formats are {', '.join(sorted(found)) or 'float'}"
    return None if stored is None or stored.dtype == weight else f"its weight is {stored.dtype}"


for _name, _ending in FILES.items():
    EMITTERS.add(_name, Emitter(_writer(_ending), (_ending,), read_back=_checker(_ending), observed="precision"))
