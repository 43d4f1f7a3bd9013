"""Configuration: TOML, YAML, JSON, a dict or keyword arguments become one typed value; unknown keys are errors."""

from onnxq.config.documents import read_document
from onnxq.config.quantizers import InputSettings, NodeSettings, QuantizerSettings
from onnxq.config.read import ConfigSource, read_config
from onnxq.config.resolve import override_set, resolve
from onnxq.config.resolved import resolved_settings
from onnxq.config.schema import config_schema
from onnxq.config.settings import Config
from onnxq.moved import renamed_in

__all__ = [
    "Config",
    "ConfigSource",
    "InputSettings",
    "NodeSettings",
    "QuantizerSettings",
    "config_schema",
    "override_set",
    "read_config",
    "read_document",
    "resolve",
    "resolved_settings",
]

__getattr__ = renamed_in(__name__, {"controls": "override_set"})
