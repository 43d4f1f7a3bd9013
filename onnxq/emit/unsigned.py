"""Signed weights rewritten as unsigned ones: q + 128 with zero point 128 stands for the same numbers.

onnxruntime multiplies uint8 activations by int8 weights with an instruction that adds two products in 16 bits on x86
processors without VNNI: 255 * 127 * 2 does not fit and saturates. Its uint8 x uint8 kernels are exact everywhere.
"""

from __future__ import annotations

from dataclasses import replace

from onnxq.types import QParams, QParamsTable, QuantPlan, QuantSpec


def with_unsigned_weights(plan: QuantPlan, qparams: QParamsTable) -> tuple[QuantPlan, QParamsTable]:
    """The same plan and parameters with every symmetric int8 weight as asymmetric uint8; neither argument changes."""
    new_plan = replace(plan, placements=dict(plan.placements))
    table = QParamsTable(dict(qparams.entries), dict(qparams.integer_weights), dict(qparams.provenance))
    for name, placement in plan.placements.items():
        if placement.role != "weight" or placement.spec.dtype != "int8":
            continue
        spec = _unsigned(placement.spec)
        new_plan.placements[name] = replace(placement, spec=spec)
        table.entries[name] = QParams(spec, qparams[name].scale, qparams[name].zero_point + 128)
        if name in table.integer_weights:
            table.integer_weights[name] = (table.integer_weights[name].astype("int16") + 128).astype("uint8")
    return new_plan, table


def _unsigned(spec: QuantSpec) -> QuantSpec:
    low, high = spec.qmin + 128, spec.qmax + 128
    return spec.replace(
        dtype="uint8",
        symmetric=False,
        narrow_range=False,
        quant_min=None if low == 0 else low,
        quant_max=None if high == 255 else high,
    )
