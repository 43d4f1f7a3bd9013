"""train_with_bn and freeze_bn_delay: settings of `onnxq qat`, which calibration alone does not ask for."""

from __future__ import annotations

from typing import Any

from onnxq.targets.amd.dialect.run import Run
from onnxq.types.translation import Outcome, no_effect


def train_batch_norms(run: Run, key: str, value: Any) -> str | Outcome:
    """Batch norms in training: apart from their layer, whose weight is quantized as if folded, or folded before."""
    run.translator.train("batch_norms", "live" if value else "folded", key)
    if not value:
        return "batch_norms = folded in training (`onnxq qat`)"
    return "batch_norms = live in training (`onnxq qat`): they learn their statistics, and the files have them folded"


def freeze_batch_norms(run: Run, key: str, value: Any) -> str | Outcome:
    """The step of the optimizer at which statistics stop to follow the batches."""
    if not run.switches.get("train_with_bn"):
        return no_effect("train_with_bn is not true, so batch norms have no statistics to freeze")
    if value < 0:
        run.translator.train("batch_norm_freeze", None, key)
        return "batch_norm_freeze = never in training (`onnxq qat`)"
    run.translator.train("batch_norm_steps", value, key)
    return f"batch_norm_steps = {value} in training (`onnxq qat`)"
