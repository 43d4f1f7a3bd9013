"""Does a written model compute what the trained net computes?

Both add up the same products, but not in the same order, so a value next to the boundary of two steps may fall to the
other side in the file. That is one step of one quantizer, once in many thousand values; what follows it moves by as
much. Anything larger is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from onnxq.graph import Graph
from onnxq.numerics import sqnr_db
from onnxq.qat.evaluate import evaluating
from onnxq.qat.net import QatNet
from onnxq.qat.switches import switched_plan
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import make_session, run_session
from onnxq.torchnet.values import to_numpy
from onnxq.types import PerTensor, QParamsTable, QuantPlan

LEAST_SQNR_DB = 25.0
"""A file whose outputs are further from those of the net is wrong, unless no value is off by more than one step: with
2 bits a step is much."""


ROUNDING = 0.01
"""Part of a step by which two neighbouring numbers of a 16-bit format differ from one step in float32."""


UNREST_DRAWS = 3
"""Disturbed runs of a net; where steps that fall to the other side grow on their way, one run tells little."""

BOTH_ROUND_DB = 3.0
"""A file and the net each have their own rounding: twice the power of what disturbs the net alone."""

FLOAT32_ROUNDING = 2.0**-23
"""Error of a sum in float32, as a part of the largest sum: what another order of the same products can do."""


@dataclass(frozen=True)
class Agreement:
    """One output of the file against the net's.

    step      one step of the last quantizer before the output, 1 where it has none (`has_step`)
    largest   the largest difference, in steps
    within    the share of values that differ by one step at most
    sqnr_db   of the differences
    limit_db  where the file is wrong: LEAST_SQNR_DB, or what float32 rounding of both alone does if that is more
    """

    output: str
    step: float
    largest: float
    within: float
    sqnr_db: float
    has_step: bool = True
    limit_db: float = LEAST_SQNR_DB

    def to_json(self) -> dict[str, float | str]:
        return {**vars(self), "sqnr_db": str(self.sqnr_db) if np.isinf(self.sqnr_db) else self.sqnr_db}


def agreement(net: QatNet, model: Path, feeds: Iterable[Feed], qparams: QParamsTable) -> list[Agreement]:
    """Each floating-point output of a model file against the net's in eval mode, over some samples.

    Tensors that the net computes and the file does not give out are not compared.
    """
    session = make_session(model, optimize="none")
    names = [name for name in net.output_names if name in net.graph.output_names]
    if not names:
        return []
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
    kept = list(feeds)
    with evaluating(net), torch.no_grad():
        for feed in kept:
            ours = net.run(feed)
            theirs = run_session(session, names, feed, str(model))
            for name, other in zip(names, theirs, strict=True):
                if isinstance(ours[name], torch.Tensor) and ours[name].is_floating_point():
                    found[name].append((to_numpy(ours[name]), other))
    compared = [_compared(name, pairs, net, qparams) for name, pairs in found.items() if pairs]
    if not disagreements(compared):
        return compared
    own = own_unrest(net, kept, {name: [ours for ours, _ in pairs] for name, pairs in found.items() if pairs})
    return [replace(one, limit_db=min(LEAST_SQNR_DB, own[one.output] - BOTH_ROUND_DB)) for one in compared]


def own_unrest(net: QatNet, feeds: Sequence[Feed], outputs: Mapping[str, Sequence[np.ndarray]]) -> dict[str, float]:
    """The least SQNR of the net against itself, with errors of float32 rounding before each quantizer of an activation.

    A deep network can carry one step that fell to the other side on to its outputs and make it larger. Such a net is
    no measure for a file.
    """
    generator = torch.Generator().manual_seed(0)

    def disturb(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        x, *rest = arguments
        noise = torch.randn(x.shape, generator=generator).to(x)
        return (x + FLOAT32_ROUNDING * x.abs().amax() * noise if x.numel() else x, *rest)

    activations = [module for name, module in net.fake_quantizers.items() if not net.graph.is_constant(name)]
    hooks = [module.register_forward_pre_hook(disturb) for module in activations]
    least = dict.fromkeys(outputs, np.inf)
    try:
        with evaluating(net), torch.no_grad():
            for _ in range(UNREST_DRAWS):
                disturbed: dict[str, list[np.ndarray]] = {name: [] for name in outputs}
                for feed in feeds:
                    found = net.run(feed)
                    for name, values in disturbed.items():
                        values.append(to_numpy(found[name]))
                for name, values in disturbed.items():
                    least[name] = min(least[name], sqnr_db(_joined(outputs[name]), _joined(values)))
    finally:
        for hook in hooks:
            hook.remove()
    return least


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays]).astype(np.float64)


def disagreements(found: Sequence[Agreement]) -> list[str]:
    """What is wrong with a file, in words; empty if nothing is."""
    return [
        f"output '{one.output}' of the written model is not what the trained net computes: {one.sqnr_db:.1f} dB, "
        f"up to {one.largest:.1f} steps apart"
        for one in found
        if not one.sqnr_db >= one.limit_db and not (one.has_step and one.within == 1.0)
    ]


def _compared(
    name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]], net: QatNet, qparams: QParamsTable
) -> Agreement:
    ours = _joined([one for one, _ in pairs])
    theirs = _joined([other for _, other in pairs])
    step = last_step(net.prepared.graph, switched_plan(net).active, qparams, name)
    has_step = step is not None
    step = 1.0 if step is None else step
    difference = np.abs(ours - theirs) / step
    within = float(np.mean(difference <= 1.0 + ROUNDING)) if difference.size else 1.0
    return Agreement(name, step, float(difference.max(initial=0.0)), within, sqnr_db(ours, theirs), has_step)


def last_step(graph: Graph, plan: QuantPlan, qparams: QParamsTable, output: str) -> float | None:
    """The largest step of the quantizers that a value meets last on its way to an output; None if there is none.

    Formats without a scale have no step, nor have those whose steps grow with the values (fp8, nnie8).
    """
    steps: list[float] = []
    seen: set[str] = set()
    pending = [output]
    while pending:
        name = pending.pop()
        if name in seen or not name or (graph.is_constant(name) and name != output):
            continue
        seen.add(name)
        if name in plan and plan[name].edges != () and isinstance(plan[name].spec.granularity, PerTensor):
            if plan[name].spec.evenly_spaced:
                steps.append(float(qparams[name].scale))
            continue
        maker = graph.producer(name)
        if maker is not None:
            pending.extend(tensor.name for tensor in maker.inputs)
    return max(steps, default=None)
