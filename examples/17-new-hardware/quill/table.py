"""The table that the chip's compiler reads, and how it is read back.

quill 1
activation NAME REGISTER
weight NAME REGISTER,REGISTER,... CODES IN HEX
"""

import numpy as np

from onnxq.emit import EMITTERS, Emitted, Emitter
from onnxq.emit.tables import lines_of, missing_and_extra, rows_of, without_spaces
from onnxq.numerics import dequantize, fake_quantize, quantize

from .scale_register import UNIT, register_of

END = ".quill"


def lines(request):
    yield "quill 1"
    for row in rows_of(*request.quantized, "activation", "weight"):
        registers = ",".join(map(str, np.ravel(register_of(row.qparams.scale))))
        codes = ""
        if row.role == "weight":
            codes = " " + quantize(request.graph.values(row.tensor).astype(np.float32), row.qparams).tobytes().hex()
        yield f"{row.role} {without_spaces(row.tensor, 'tensor')} {registers}{codes}"


def write_table(request):
    path = request.path(END)
    path.write_text("\n".join(lines(request)) + "\n", encoding="utf-8")
    return Emitted((path,))


def read_table(request):
    """A line for every entry whose numbers, read as the chip reads them, are not those of the parameters."""
    path = request.path(END)
    head, *entries = lines_of(path) or [""]
    if head != "quill 1":
        yield f"{path.name}: the first line is '{head}'"
    found = {tuple(line.split(" ")[:2]): line.split(" ")[2:] for line in entries}
    wanted = {(row.role, row.tensor): row for row in rows_of(*request.quantized, "activation", "weight")}
    yield from missing_and_extra(path.name, [" ".join(key) for key in found], [" ".join(key) for key in wanted])
    if len(entries) != len(found):
        yield f"{path.name}: an entry stands there twice"
    for key in found.keys() & wanted.keys():
        try:
            same = computes_the_same(found[key], request.graph, wanted[key])
        except ValueError as error:  # no numbers, or not as many as the tensor has
            yield f"{path.name}: '{' '.join(key)}': {error}"
        else:
            if not same:
                yield f"{path.name}: '{' '.join(key)}' has other numbers than the parameters"


def computes_the_same(fields, graph, row):
    """Whether registers count the scale in units, and codes are the weight: both from the text alone."""
    registers, *codes = fields
    scale = np.array([int(number) for number in registers.split(",")], np.float64) * UNIT
    if not np.array_equal(scale, np.ravel(row.qparams.scale)):
        return False
    if row.role == "activation":
        return not codes
    weight = graph.values(row.tensor).astype(np.float32)
    held = np.frombuffer(bytes.fromhex("".join(codes)), np.uint8).reshape(weight.shape)
    return np.array_equal(dequantize(held, row.qparams), fake_quantize(weight, row.qparams))


EMITTERS.add("quill_table", Emitter(write_table, files=(END,), read_back=read_table))
