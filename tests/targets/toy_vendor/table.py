"""The table of shifts, and how it is read back."""

import json

from onnxq.emit import EMITTERS, Emitted, Emitter

from .shifts import shift_of

END = ".shifts.json"


def write(request):
    """Write `<name>.shifts.json`: tensor -> shift."""
    path = request.path(END)
    path.write_text(json.dumps({tensor: shift_of(request.qparams[tensor].scale) for tensor in request.plan.placements}))
    return Emitted((path,))


def check(request):
    shifts = json.loads(request.path(END).read_text())
    for tensor in request.plan.placements:
        if shifts.get(tensor) != shift_of(request.qparams[tensor].scale):
            yield f"{request.name}{END}: tensor '{tensor}' has shift {shifts.get(tensor)}"


EMITTERS.add("shifty_table", Emitter(write, files=(END,), read_back=check))
