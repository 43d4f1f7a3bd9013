"""The report of a run: plain values for report.json, with nothing left out that the run decided or noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxq.config import Config
from onnxq.files import json_number
from onnxq.graph.caches import caches
from onnxq.json_file import JsonObject
from onnxq.pipeline.coverage import Coverage
from onnxq.pipeline.explanation import DIAGNOSE
from onnxq.pipeline.vendor_steps import shapes_text, vendor_steps
from onnxq.pipeline.written import Written
from onnxq.session.session import Calibrated
from onnxq.types import Backend
from onnxq.types.note import by_kind
from onnxq.version import versions

Report = JsonObject

SIMULATED_MARGIN_DB = 3.0
"""A chip that loses this much more than the written model says is worth a warning."""


def build_report(
    ready: Calibrated,
    written: Written,
    *,
    notes: Sequence[str],
    files: Sequence[Path],
    seconds: Mapping[str, float],
    warn_below_db: float | None,
) -> Report:
    """One dictionary of JSON values; infinities are written as the string "inf".

    Outputs below `warn_below_db` get a warning; None gives none. `notes` are those of all stages.
    """
    prepared, checks, explanation = ready.session.prepared, written.checks, written.explanation
    backend, config, simulated = prepared.backend, prepared.config, written.simulated
    hint = f": for the cause, {DIAGNOSE}" if explanation is None else ""
    in_file = {result.name: result.sqnr_db for result in checks.results}
    below = [result for result in checks.results if warn_below_db is not None and result.sqnr_db < warn_below_db]
    handed_on = frozenset(caches(prepared.graph).values())
    low = [f"{result.title} has only {result.sqnr_db:.1f} dB{hint}" for result in below if result.name not in handed_on]
    if cached := [result for result in below if result.name in handed_on]:
        worst = min(cached, key=lambda result: result.sqnr_db)
        low.append(
            f"{worst.title} has only {worst.sqnr_db:.1f} dB, the least of {len(cached)} keys and values below "
            f"{warn_below_db:g} dB: the metrics of 'onnxq evaluate' (cross_entropy, kl) say what that costs the text"
        )
    low += [f"{result.title} is silent: it has one value everywhere" for result in checks.results if result.silent]
    low += [f"{result.title} is silent on the chip, as simulated" for result in simulated if result.silent]
    low += [
        f"{result.title}: {result.sqnr_db:.1f} dB on the chip, as simulated; {in_file[result.name]:.1f} dB in the "
        "written model"
        for result in simulated
        if result.name in in_file and result.sqnr_db < in_file[result.name] - SIMULATED_MARGIN_DB
    ]
    why = [] if explanation is None else explanation.lines
    unfulfilled = config.translation.unfulfilled if config.translation else ()
    told = [*ready.warnings, *written.warnings, *unfulfilled, *low, *why]
    remarks = [*notes, *(config.translation.idle if config.translation else ())]
    return {
        "backend": backend.name,
        "model": None if ready.session.original.path is None else str(ready.session.original.path),
        "coverage": Coverage.of(written.plan).to_json(),
        **({} if written.plan.rest is None else {"rest": written.plan.rest.to_json()}),
        "simulated_sqnr_db": {result.name: json_number(result.sqnr_db) for result in simulated},
        "sqnr_db": {name: json_number(value) for name, value in checks.sqnr_db.items()},
        "warnings": told,
        "notes": remarks,
        "kinds": by_kind([*told, *remarks]),
        "calibration_samples": ready.samples,
        "checks": checks.to_json(),
        "kernels": _kernels(written, backend),
        "speed": None if written.speed is None else written.speed.to_json(),
        "files": [str(path) for path in files],
        "vendor_steps": vendor_steps(backend, config.name, {path.name for path in files}, shapes_text(prepared.graph)),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "versions": versions(),
        "passes": [
            {"name": p.name, "changed": list(p.changed), "declined": list(p.declined), "seconds": round(p.seconds, 4)}
            for p in prepared.passes
        ],
        "config": resolved_config(backend, config),
        **({} if explanation is None or explanation.diagnosis is None else {"diagnosis": explanation.diagnosis}),
        **({} if prepared.tuning is None else {"tuning": prepared.tuning.to_json()}),
        **_translated(config),
    }


def _kernels(written: Written, backend: Backend) -> JsonObject | None:
    """What onnxruntime runs, as its own target: kernels by operator, and each node that it converts to float for."""
    found = written.checks.kernels
    if found is None or not backend.runs_in_onnxruntime:
        return None
    why = {
        **dict.fromkeys((*written.plan.quantized, *written.plan.fused), f"onnxruntime {NO_KERNEL}"),
        **written.plan.left_float,
    }
    converted = {name: {"op": op, "why": why.get(name, MADE)} for name, op in found.converted.items()}
    return {**found.to_json(), "converted": converted}


NO_KERNEL = "made no integer kernel of it, although it has quantizers"
MADE = "onnxruntime's optimizer made it of float nodes"


def _translated(config: Config) -> JsonObject:
    """What each key of another tool's configuration has become."""
    if config.translation is None:
        return {}
    rows = [row.to_json() for row in config.translation.rows]
    return {"translated": {"from": config.translation.tool, "keys": rows}}


def resolved_config(backend: Backend, config: Config) -> JsonObject:
    """What the run used after the backend's defaults and the caller's changes."""
    scheme = backend.scheme
    formats = {"activation": scheme.activation, "weight": scheme.weight, "bias": scheme.bias}
    return {
        "backend": backend.name,
        "formats": {role: None if spec is None else spec.to_json() for role, spec in formats.items()},
        "observer": backend.activation_observer,
        "weight_observer": backend.weight_observer,
        "weight_storage": backend.weight_storage,
        "passes": list(backend.passes),
        "given": config.model_dump(mode="json", exclude_defaults=True),
        "skip": list(config.skip),
        "verify_samples": config.verify_samples,
        "minimum_sqnr_db": config.minimum_sqnr_db,
    }
