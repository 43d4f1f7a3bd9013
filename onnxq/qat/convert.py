"""From a trained net back to the three values that every emitter takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from onnxq.calibrate import complete
from onnxq.calibrate.precision import fitted
from onnxq.calibrate.remarks import widened_notes
from onnxq.errors import CheckFailed
from onnxq.graph import Graph, collector_paused
from onnxq.qat.net import QatNet
from onnxq.qat.switches import switch_notes, switched_plan
from onnxq.refine import refine
from onnxq.torchnet.values import Value, to_numpy
from onnxq.types import QParamsTable, QuantPlan
from onnxq.types.fake_quantizers import read_fake_quantizer


class Converted(NamedTuple):
    """The float graph with trained weights, the plan, the trained parameters."""

    graph: Graph
    plan: QuantPlan
    qparams: QParamsTable


def convert(net: QatNet) -> Converted:
    """What training has found, as `onnxq.emit` takes it; batch norms that were trained apart are folded.

    Fake-quantizers that are switched off are quantizers in the plan that are only observed.
    The target's refinements and the limits of biases hold after training too. Where they change a scale, the net gets
    the new one, so that it goes on computing what the files will compute; `net.notes` says so.
    """
    for module in net.fake_quantizers.values():
        module.catch_up()
    plan = switched_plan(net)
    graph = trained_graph(net)
    table = QParamsTable()
    before = net.calibrated.state.qparams
    for name, placement in plan.placements.items():
        if name in net.fake_quantizers and placement.derive is None:
            kind = read_fake_quantizer(placement.fake_quantizer).name
            found = net.fake_quantizers[name].to_qparams()
            table.put(name, fitted(graph, name, found), f"trained ({kind})")
        else:
            table.put(name, before[name], *before.origins[name])
    widened = complete(graph, plan, table)
    refined = refine(graph, plan, table, net.prepared.backend)
    notes = widened_notes(graph, widened)
    notes += [*refined.notes, *refined.warnings, *switch_notes(net)]
    if _follow(net, refined.qparams, notes):
        _put_values(graph, net)  # some kinds settle on values that depend on the scale
    return Converted(graph, plan, refined.qparams)


def trained_graph(net: QatNet) -> Graph:
    """The prepared float graph with the present weights."""
    graph = net.prepared.graph.copy()
    _put_values(graph, net)
    return graph


def _put_values(graph: Graph, net: QatNet) -> None:
    """Set the constants that training has changed; the others stay as the file has them."""
    with collector_paused(), torch.no_grad():
        for name, values in trained_values(net).items():
            held = graph.values(name)
            values = values.astype(held.dtype, copy=False)
            if values.dtype.kind == "f" and np.isfinite(held).all() and not np.isfinite(values).all():
                raise CheckFailed(
                    f"'{name}' has NaN or infinite values: training has diverged. Train with a lower learning rate"
                )
            if values.tobytes() != held.tobytes():
                graph.set_values(name, values)


def trained_values(net: QatNet) -> dict[str, np.ndarray]:
    """Constant of the prepared graph -> its present values, as they are to be written."""
    graph = net.prepared.graph
    computed = {folded: name for name, folded in net.unfolded.renamed.items()}
    values = net.constant_values(list(computed))
    found: dict[str, Value] = {name: values[folded] for folded, name in computed.items()}
    for name in net.constant_names():
        if name not in found and graph.has_tensor(name) and graph.is_constant(name):
            found[name] = net.value(name)
    for name in net.trained_constants():
        if name in found:
            module = net.fake_quantizer(name)
            found[name] = module.export_values(found[name]) if module.quantizing else module.transform(found[name])
    return {name: to_numpy(value) for name, value in found.items()}


def _follow(net: QatNet, qparams: QParamsTable, notes: list[str]) -> bool:
    """Give the net the parameters that will be written where they are not its own; returns whether there are any."""
    changed = False
    for name, module in net.fake_quantizers.items():
        if net.plan[name].derive is not None or module.to_qparams() == qparams[name]:
            continue
        module.set_qparams(qparams[name])
        changed = True
        notes.append(f"the scale of '{name}' was changed after training, as the target demands")
    net.notes.extend(note for note in notes if note not in net.notes)
    return changed
