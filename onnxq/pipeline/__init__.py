"""Between parameters and files: a calibrated model written and checked, and the report of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxq.session.session import Calibrated


def calibrate_model(model: Any, *, statistics: str | Path | None = None, **arguments: Any) -> Calibrated:
    """What `onnxq.session.session.open_session(model, ...).calibrated()` does now, for one version."""
    from onnxq.session.session import open_session

    new = "onnxq.session.session.open_session(model, ...).calibrated(); plan and parameters are in its `state`"
    warnings.warn(f"onnxq.pipeline.calibrate_model is now {new}", DeprecationWarning, stacklevel=2)
    return open_session(model, **arguments).calibrated(None if statistics is None else Path(statistics))
