"""The JSON schema of the configuration, for editors and for whoever checks a file without onnxq."""

from __future__ import annotations

from typing import Any

from onnxq.config.settings import Config
from onnxq.types.number_format import number_formats
from onnxq.types.spec import ROUNDINGS


def config_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a configuration; a file that it accepts has no unknown key and no wrong type."""
    schema = Config.model_json_schema()
    schema["properties"]["$schema"] = {"type": "string", "description": "where this schema is, for editors"}
    fields = schema["$defs"]["QuantizerSettings"]["properties"]
    for key, known in (("rounding", ROUNDINGS), ("dtype", tuple(number_formats())), ("bits", (*range(1, 17), 32))):
        fields[key]["anyOf"] = [{"enum": list(known)}, {"type": "null"}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onnxq configuration",
        **{key: value for key, value in schema.items() if key != "title"},
    }
