"""Kinds of evidence, one file each: functions from a case to findings with the changes that take them away."""

from onnxq.diagnose.evidence.biases import biases
from onnxq.diagnose.evidence.case import Case, Evidence, Look, tensors_of
from onnxq.diagnose.evidence.channels import channels
from onnxq.diagnose.evidence.masks import masks
from onnxq.diagnose.evidence.operators import operators
from onnxq.diagnose.evidence.outliers import outliers
from onnxq.diagnose.evidence.ties import ties

EVIDENCE: tuple[Look, ...] = (outliers, masks, ties, channels, biases, operators)

__all__ = ["EVIDENCE", "Case", "Evidence", "Look", "tensors_of"]
