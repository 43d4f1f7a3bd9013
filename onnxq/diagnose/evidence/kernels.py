"""Integer kernels of this machine that saturate: what onnxruntime computes against what the file says.

Only for onnxruntime as the target: on processors without VNNI its kernels add pairs of products in 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from onnxq.diagnose.causes import SaturatingKernel
from onnxq.emit import emit
from onnxq.emit.saturation import with_unsigned_weights
from onnxq.graph import Graph
from onnxq.ptq.method import State
from onnxq.runtime.feeds import Feed
from onnxq.types import Backend
from onnxq.verify import CheckSamples, OutputCheck, VerifyReport, verify

MARGIN_DB = 6.0
"""Errors of kernels this far below those of quantization add less than a quarter to them."""


def saturating_kernels(report: VerifyReport) -> list[SaturatingKernel]:
    """Outputs that the kernels of this machine change by nearly as much as quantization does, or by more."""
    return [
        SaturatingKernel(check.name, check.sqnr_db, check.kernel_db)
        for check in report.outputs
        if check.sqnr_db is not None and check.kernel_db is not None and check.kernel_margin_db < MARGIN_DB
    ]


def with_kernels_db(report: VerifyReport) -> float:
    """The worst output as this machine computes it: both errors together."""
    return min((_both(check) for check in report.outputs if check.sqnr_db is not None), default=math.inf)


def _both(check: OutputCheck) -> float:
    parts = [10.0 ** (-value / 10.0) for value in (check.sqnr_db, check.kernel_db) if value is not None]
    return -10.0 * math.log10(sum(parts)) if sum(parts) > 0 else math.inf


def written_and_checked(
    original: Graph, state: State, backend: Backend, samples: Sequence[Feed], folder: Path, *, portable: bool
) -> VerifyReport:
    """The file of a state as onnxruntime runs it here; `portable` stores weights as no kernel saturates on."""
    plan, qparams = state.plan, state.qparams
    if portable:
        plan, qparams = with_unsigned_weights(state.graph, plan, qparams)
    written = emit(state.graph, plan, qparams, backend, folder, "portable" if portable else "model")
    path = next(file for file in written.files if file.suffix == ".onnx")
    return verify(original, path, plan, backend, CheckSamples(samples, len(samples)))
