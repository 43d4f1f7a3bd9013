"""What differs between two runs: settings, plan, parameters, accuracy, methods, files, speed and versions."""

from onnxq.diff.runs import RunDiff, diff_runs

__all__ = ["RunDiff", "diff_runs"]
