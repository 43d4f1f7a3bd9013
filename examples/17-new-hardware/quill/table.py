"""The table that the chip's compiler reads, and how it is read back.

quill 1
activation NAME REGISTER
weight NAME REGISTER,REGISTER,... CODES IN HEX
"""

import numpy as np

from onnxq.emit import EMITTERS, Emitted, Emitter
from onnxq.emit.tables import rows_of
from onnxq.numerics import quantize

from .scale_register import register_of

END = ".quill"


def lines(request):
    yield "quill 1"
    for row in rows_of(*request.quantized, "activation", "weight"):
        registers = ",".join(map(str, np.ravel(register_of(row.qparams.scale))))
        codes = ""
        if row.role == "weight":
            codes = " " + quantize(request.graph.values(row.tensor).astype(np.float32), row.qparams).tobytes().hex()
        yield f"{row.role} {row.tensor} {registers}{codes}"


def write_table(request):
    path = request.path(END)
    path.write_text("\n".join(lines(request)) + "\n", encoding="utf-8")
    return Emitted((path,))


def read_table(request):
    """A line for every entry that is not as the parameters say."""
    written = request.path(END).read_text(encoding="utf-8").splitlines()
    wanted = list(lines(request))
    if len(written) != len(wanted):
        yield f"{request.name}{END} has {len(written)} lines instead of {len(wanted)}"
    for has, should in zip(written, wanted, strict=False):
        if has != should:
            yield f"{request.name}{END}: '{has[:60]}' instead of '{should[:60]}'"


EMITTERS.add("quill_table", Emitter(write_table, files=(END,), read_back=read_table))
