"""Configurations of other tools, read as they are: each becomes settings of onnxq, and a line for every key says which.

MQBench is in onnxq.compat.mqbench, with its flow (prepare_by_platform ... convert_deploy); the tool of a vendor is in
the vendor's folder, `onnxq/targets/<vendor>/dialect/`. onnxq.compat.read knows them by `onnxq.types.dialect.DIALECTS`.
"""

from onnxq.compat.translation import Translator
from onnxq.types.translation import Row, Translation

__all__ = ["Row", "Translation", "Translator"]
