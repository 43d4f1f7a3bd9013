"""Configurations of other tools, read as they are: each becomes settings of onnxq, and a line for every key says which.

onnxq.compat.mqbench   MQBench's `extra_config` and its flow (prepare_by_platform ... convert_deploy)
onnxq.targets.sophgo.dialect    Sophgo-mq's `prepare_custom_config_dict`
onnxq.targets.amd.dialect     a quantize strategy of Vitis AI
"""

from onnxq.compat.translation import Translator
from onnxq.types.translation import Row, Translation

__all__ = ["Row", "Translation", "Translator"]
