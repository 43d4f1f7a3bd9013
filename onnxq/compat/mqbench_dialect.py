"""MQBench among the tools whose configurations are read; a module of its own, so that to know of it costs nothing."""

from __future__ import annotations

from onnxq.types.dialect import DIALECTS, Dialect

DIALECTS.add(
    "mqbench",
    Dialect(
        "MQBench",
        module="onnxq.compat.mqbench",
        variables=("extra_config", "prepare_custom_config_dict"),
        summary="MQBench's extra_config (.py, .json, .yaml); -b takes MQBench's names.",
        target="a name of MQBench (Tensorrt, SNPE ...) or of onnxq",
        example="extra_config.yaml -b Tensorrt",
    ),
)
