"""Sophgo's chips, by way of tpu-mlir."""

from __future__ import annotations

from onnxq.types.dialect import DIALECTS, Dialect, TorchClasses

DIALECTS.add(
    "sophgo",
    Dialect(
        "Sophgo",
        module="onnxq.targets.sophgo.dialect",
        variables=("prepare_custom_config_dict", "extra_config"),
        summary="Sophgo-mq's prepare_custom_config_dict (.py, .json, .yaml).",
        example="custom_config.py -b sophgo_bm1684x",
        classes=TorchClasses("sophgo_mq", "_sophgo", newer=("tpu_mq", "_tpu")),
    ),
)
