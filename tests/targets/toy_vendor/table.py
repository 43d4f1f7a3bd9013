"""The table of shifts, and how it is read back."""

import json

from onnxq.emit import EMITTERS, Emitted, Emitter

from .shifts import shift_of

END = ".shifts.json"


def write(graph, plan, qparams, backend, folder, name):
    """Write `<name>.shifts.json`: tensor -> shift."""
    path = folder / f"{name}{END}"
    path.write_text(json.dumps({tensor: shift_of(qparams[tensor].scale) for tensor in plan.placements}))
    return Emitted((path,))


def check(graph, plan, qparams, backend, folder, name):
    shifts = json.loads((folder / f"{name}{END}").read_text())
    for tensor in plan.placements:
        if shifts.get(tensor) != shift_of(qparams[tensor].scale):
            yield f"{name}{END}: tensor '{tensor}' has shift {shifts.get(tensor)}"


EMITTERS.add("shifty_table", Emitter(write, files=(END,), read_back=check))
