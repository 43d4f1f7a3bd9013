"""MQBench's `extra_config` read as it is, and its flow on an ONNX file (docs/migrating-from-mqbench.md).

prepared = prepare_by_platform("model.onnx", BackendType.Tensorrt, extra_config)
enable_calibration(prepared)
for batch in batches:
    prepared(batch)
enable_quantization(prepared)
convert_deploy(prepared, BackendType.Tensorrt, {"input": [1, 3, 224, 224]}, output_path="out")
"""

from onnxq.compat.mqbench.flow import (
    convert_deploy,
    disable_all,
    enable_calibration,
    enable_calibration_quantization,
    enable_calibration_woquantization,
    enable_quantization,
    prepare_by_platform,
)
from onnxq.compat.mqbench.prepared import PreparedModel
from onnxq.compat.mqbench.targets import BackendType
from onnxq.compat.mqbench.translate import translate

__all__ = [
    "BackendType",
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
