"""plan + data -> QParamsTable: what each tensor's scale and zero point are."""

from onnxq.calibrate.calibrate import calibrate
from onnxq.calibrate.report import Calibration, CalibrationReport

__all__ = ["Calibration", "CalibrationReport", "calibrate"]
