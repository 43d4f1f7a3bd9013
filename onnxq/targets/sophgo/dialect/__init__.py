"""Sophgo-mq's `prepare_custom_config_dict` read as it is, and its flow on an ONNX file (docs/migrating-from-sophgo.md).

prepared = prepare_by_platform("model.onnx", {"quant_dict": {"chip": "BM1688", "strategy": "CNN"}})
enable_calibration(prepared)
for batch in batches:
    prepared(batch)
enable_quantization(prepared)
convert_deploy(prepared, "CNN", {"input": [1, 3, 224, 224]}, output_path="out", model_name="resnet18")
"""

from onnxq.compat.mqbench.flow import (
    disable_all,
    enable_calibration,
    enable_calibration_quantization,
    enable_calibration_woquantization,
    enable_quantization,
)
from onnxq.compat.mqbench.prepared import PreparedModel
from onnxq.targets.sophgo.dialect.flow import convert_deploy, prepare_by_platform
from onnxq.targets.sophgo.dialect.translate import translate

__all__ = [
    "PreparedModel",
    "convert_deploy",
    "disable_all",
    "enable_calibration",
    "enable_calibration_quantization",
    "enable_calibration_woquantization",
    "enable_quantization",
    "prepare_by_platform",
    "translate",
]
