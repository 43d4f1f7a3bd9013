"""Why a quantized model loses accuracy, and what fixes it: causes that are proven, remedies that were tried."""

from onnxq.diagnose.diagnosis import Diagnosis
from onnxq.diagnose.run import AUTOMATIC, THOROUGH, Budget, diagnose

__all__ = ["AUTOMATIC", "THOROUGH", "Budget", "Diagnosis", "diagnose"]
