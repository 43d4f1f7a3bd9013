"""What this machine's kernels make of a file for onnxruntime, and other ways to write the weights where they saturate.

x86 processors without VNNI saturate on some models (`onnxq.emit.saturation`): the checks of a written file see it, and
weights whose sums fit, or unsigned ones, are tried instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from onnxq.emit import Emitted
from onnxq.emit.saturation import with_fitting_weights, with_unsigned_weights
from onnxq.errors import SpecError, UnsupportedError
from onnxq.graph import Graph
from onnxq.session.prepare import Prepared
from onnxq.types import QParamsTable, QuantPlan
from onnxq.verify import FULL_OPTIMIZATION_NODES, OutputCheck, VerifyReport, sums_are_exact

KERNEL_MARGIN_DB = 6.0
"""Kernel errors this far below the error of quantization add less than a quarter to it, and are left alone."""

_SATURATES = "this processor's int8 kernels saturate on this model (it lacks VNNI), so weights"
FITTING = f"{_SATURATES} have scales at which what these kernels add in 16 bits fits, or are unsigned"
UNSIGNED = f"{_SATURATES} are stored as uint8 with zero point 128: the same numbers, exact on every processor"
UNTRIED_FITTING = (
    "this processor's kernels add 8-bit products in 16 bits (it lacks VNNI), so weights have scales at which that "
    "fits; portable = true stores weights that are exact everywhere, and slower"
)
WayOut = tuple[str, Callable[[Graph, QuantPlan, QParamsTable], tuple[QuantPlan, QParamsTable]]]
WAYS_OUT: tuple[WayOut, ...] = ((FITTING, with_fitting_weights), (UNSIGNED, with_unsigned_weights))
"""What is tried where kernels saturate, the fastest first; the first that costs no accuracy is taken."""


_LAYERS = ("Conv", "Gemm", "MatMul", "LSTM")


class Attempt(NamedTuple):
    """One way to write a plan, and how it turned out."""

    plan: QuantPlan
    qparams: QParamsTable
    emitted: Emitted
    checks: VerifyReport


def without_saturation(
    graph: Graph,
    first: Attempt,
    ways: Sequence[WayOut],
    write: Callable[[QuantPlan, QParamsTable], Emitted],
    check: Callable[[Emitted, QuantPlan, QParamsTable], VerifyReport],
) -> tuple[Attempt, list[str]]:
    """The first way to write the weights that kernels do not saturate on, with its remark; else what there was."""
    for remark, change in ways:
        try:
            plan, qparams = change(graph, first.plan, first.qparams)
            emitted = write(plan, qparams)
        except (SpecError, UnsupportedError):
            continue  # the user's format, or how weights are stored, leaves no room for this way
        checks = check(emitted, plan, qparams)
        if _helps(checks, first.checks, at_all=change is ways[-1][1]):
            return Attempt(plan, qparams, emitted, checks), [remark]
    write(first.plan, first.qparams)  # the kernels differ for another reason, so the weights stay as they were
    return first, []


def _helps(tried: VerifyReport, before: VerifyReport, *, at_all: bool) -> bool:
    """Whether other weights make the kernels right at a price of at most 1 dB (or half a percent) in any output.

    With `at_all`, kernels that are merely better count too, by as much as would be worth a look: they round otherwise
    on the way with any weights, which is no reason for slower ones.
    """
    less = _kernel_noise(before.kernel_margin_db) - _kernel_noise(tried.kernel_margin_db)
    right = less >= _kernel_noise(KERNEL_MARGIN_DB) if at_all else tried.kernel_margin_db >= KERNEL_MARGIN_DB
    if tried.failures or not right:
        return False
    for new, old in zip(tried.outputs, before.outputs, strict=True):
        if new.sqnr_db is not None and old.sqnr_db is not None and new.sqnr_db < old.sqnr_db - 1.0:
            return False
        if new.agreement is not None and old.agreement is not None and new.agreement < old.agreement - 0.005:
            return False
        if any(value < old.parts_db.get(part, value) - 1.0 for part, value in new.parts_db.items()):
            return False
    return True


def _kernel_noise(margin_db: float) -> float:
    """The error of kernels as a share of that of quantization."""
    return float(10 ** (-margin_db / 10))


def may_saturate(checks: VerifyReport, prepared: Prepared) -> bool:
    """Whether the kernels that onnxruntime uses here lose noticeably more than the file says.

    Where sums are exact, they only round otherwise on the way, and no other way to write the weights changes that.
    """
    if not prepared.backend.runs_in_onnxruntime or prepared.config.portable:
        return False
    return checks.kernel_margin_db < KERNEL_MARGIN_DB and not sums_are_exact()


def wants_unsigned(prepared: Prepared, plan: QuantPlan, *, measured: bool) -> bool:
    """Whether weights are unsigned from the start: asked for, or not safe here in a file too large to be tried out."""
    if not prepared.backend.runs_in_onnxruntime:
        return False
    written = len(prepared.graph.nodes()) + sum(2 if placement.observe or placement.tie else 1 for placement in plan)
    too_large = measured and written > FULL_OPTIMIZATION_NODES
    return prepared.config.portable or (too_large and not sums_are_exact())


def wants_fitting(prepared: Prepared) -> bool:
    """Whether weights have scales at which nothing saturates from the start.

    A file of integer operators has no other form that tells what these kernels should have computed.
    """
    backend = prepared.backend
    return backend.runs_in_onnxruntime and backend.integer_operators and not sums_are_exact()


def kernel_warnings(checks: VerifyReport, plan: QuantPlan, prepared: Prepared) -> list[str]:
    """What onnxruntime does not do here as the plan says: integer kernels that it did not make, or that saturate."""
    if not prepared.backend.runs_in_onnxruntime or checks.kernels is None:
        return []
    layers = [name for name in plan.quantized if prepared.graph.node(name).op in _LAYERS]
    made = sum(count for op, count in checks.kernels.integer.items() if any(kind in op for kind in _LAYERS))
    missing = len(layers) - made
    few = [f"onnxruntime runs {missing} of {len(layers)} quantized layers in float: see kernels in the report"]
    return (few if missing > 0 else []) + [
        f"output '{check.name}': onnxruntime's fused kernels on this machine differ from what the file says by more "
        f"than the quantization does ({_kernel_difference(check)})"
        for check in checks.outputs
        if check.kernel_margin_db < 0
    ]


def _kernel_difference(check: OutputCheck) -> str:
    if check.kernel_db is not None:
        return f"{check.kernel_db:.1f} dB"
    return f"{100 * (check.kernel_agreement or 0.0):.1f} % equal values"
