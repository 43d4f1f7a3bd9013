"""plan + data -> QParamsTable: what each tensor's scale and zero point are."""

from onnxq.calibrate.calibrate import calibrate, complete
from onnxq.calibrate.gather import Gathered, activation_leaders, gather
from onnxq.calibrate.merge import merge_statistics
from onnxq.calibrate.report import Calibration, CalibrationReport
from onnxq.calibrate.resume import gather_into, gathered_from
from onnxq.calibrate.shared import gather_shared
from onnxq.calibrate.statistics_file import StatisticsFile, read_statistics, write_statistics

__all__ = [
    "Calibration",
    "CalibrationReport",
    "Gathered",
    "StatisticsFile",
    "activation_leaders",
    "calibrate",
    "complete",
    "gather",
    "gather_into",
    "gather_shared",
    "gathered_from",
    "merge_statistics",
    "read_statistics",
    "write_statistics",
]
