"""The JSON schema of the configuration, for editors and for whoever checks a file without onnxq."""

from __future__ import annotations

from typing import Any

from onnxq.config.settings import Config
from onnxq.types.spec import ROUNDINGS


def config_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a configuration; a file that it accepts has no unknown key and no wrong type."""
    schema = Config.model_json_schema()
    schema["properties"]["$schema"] = {"type": "string", "description": "where this schema is, for editors"}
    rounding = schema["$defs"]["QuantizerSettings"]["properties"]["rounding"]
    rounding["anyOf"] = [{"enum": list(ROUNDINGS)}, {"type": "null"}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onnxq configuration",
        **{key: value for key, value in schema.items() if key != "title"},
    }
