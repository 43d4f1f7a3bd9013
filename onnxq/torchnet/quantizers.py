"""The fake-quantizers of a plan, and between which tensors and uses they sit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onnxq.torchnet.fake_quantize import DerivedBias, FakeQuantize, make_fake_quantizer
from onnxq.torchnet.program import Quantizer
from onnxq.types import Placement, QParamsTable, QuantPlan


def fake_quantizers(
    plan: QuantPlan,
    qparams: QParamsTable,
    tensors: Iterable[str] | None = None,
    kind: Callable[[Placement], Placement] = lambda placement: placement,
) -> dict[str, FakeQuantize]:
    """A module for each placement that has parameters of its own; derived biases after what they derive from.

    tensors  those that need one, with what they are tied to or derive from; None means all of the plan
    kind     what is made of a placement before its module is: another fake-quantizer than the plan's
    """
    wanted = list(plan.placements) if tensors is None else [name for name in tensors if name in plan]
    derived = [name for name in dict.fromkeys(map(plan.leader, wanted)) if plan[name].derive is not None]
    sources = [source for name in derived for source in plan[name].derive or ()]
    modules: dict[str, FakeQuantize] = {}
    for name in dict.fromkeys(map(plan.leader, [*wanted, *sources])):
        if plan[name].derive is None:
            modules[name] = make_fake_quantizer(kind(plan[name]), qparams[name])
    for name in derived:
        modules[name] = _derived(plan[name], plan, qparams, modules)
    return modules


def quantizer(placement: Placement, function: Callable[[Any], Any]) -> Quantizer:
    """The function of a placement, for the uses that see it quantized."""
    return Quantizer(function, None if placement.edges is None else frozenset(placement.edges))


def _derived(
    placement: Placement, plan: QuantPlan, qparams: QParamsTable, modules: Mapping[str, FakeQuantize]
) -> DerivedBias:
    assert placement.derive is not None
    input, weight = (modules[plan.leader(name)] for name in placement.derive)
    return DerivedBias(placement, input, weight, qparams[placement.tensor].spec)
