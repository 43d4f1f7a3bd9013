"""How a run tells what it does: reports of stages, the share that is done, the time that is left, and a bar of both."""

from onnxq.progress.report import Clock, Progress, silent
from onnxq.progress.time_limit import OutOfTime, TimeLimit
from onnxq.progress.tracker import Tracker, tracked

__all__ = ["Clock", "OutOfTime", "Progress", "TimeLimit", "Tracker", "silent", "tracked"]
