"""Configuration files: three languages, one meaning; wrong keys and values are errors with the nearest right one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from onnxq.config import Config, config_schema, read_config
from onnxq.config.assignments import Assignment
from onnxq.errors import ConfigError

TOML = """
backend = "tensorrt"
skip = ["stem.conv", "op:Gemm"]
verify_samples = 4

[weight]
bits = 6
per_channel = false

[op.Conv]
weight = {observer = "mse"}
activation.fake_quantizer = {name = "pact", alpha = 4}

[node."layer1.*".output]
dtype = "int8"

[tensor.x]
observe_only = true
"""


@pytest.fixture
def values() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(TOML)


def test_three_languages_say_the_same(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(TOML)
    (tmp_path / "c.json").write_text(json.dumps(values, indent=2))
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    read = [read_config(tmp_path / f"c.{kind}") for kind in ("toml", "json", "yaml")]
    dumped = [config.model_dump() for config in (*read, read_config(values))]
    assert dumped[0] == dumped[1] == dumped[2] == dumped[3]
    assert read[0].op["Conv"].activation.fake_quantizer == "pact:alpha=4"


@pytest.mark.parametrize("kind", ["toml", "json", "yaml"])
def test_every_value_knows_its_line(kind: str, values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / f"c.{kind}"
    path.write_text(
        TOML if kind == "toml" else json.dumps(values, indent=2) if kind == "json" else yaml.safe_dump(values)
    )
    config = read_config(path)
    lines = path.read_text().splitlines()
    for keys, word in (
        (("weight", "bits"), "bits"),
        (("op", "Conv", "weight", "observer"), "mse"),
        (("node", "layer1.*", "output", "dtype"), "dtype"),
        (("tensor", "x", "observe_only"), "observe_only"),
        (("skip", "op:Gemm"), "op:Gemm"),
    ):
        source = config.source(*keys)
        assert source.startswith(f"{path}:")
        assert word in lines[int(source.rpartition(":")[2]) - 1]


def test_options_are_named_as_options(tmp_path: Path) -> None:
    given = [Assignment(("observer",), "mse", "--observer"), Assignment(("minimum_sqnr_db",), 3.0, "--min-sqnr")]
    config = read_config({"observer": "minmax"}, assignments=given)
    assert (config.observer, config.minimum_sqnr_db) == ("mse", 3.0)
    assert config.source("observer") == "--observer"
    assert config.source("minimum_sqnr_db") == "--min-sqnr"


def test_settings_survive_being_read_again() -> None:
    config = read_config({"op": {"Conv": {"weight": {"bits": 4}}}})
    again = read_config(config, samples=3)
    assert again.op == config.op
    assert again.source("op", "Conv", "weight", "bits") == "op.Conv.weight.bits"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "top key": ({"obsever": "mse"}, "unknown key 'obsever'. Did you mean 'observer'"),
    "global table": ({"weight": {"bit": 4}}, "unknown key 'weight.bit'. Did you mean 'bits'"),
    "op table": ({"op": {"Conv": {"wieght": {}}}}, "unknown key 'op.Conv.wieght'. Did you mean 'weight'"),
    "op part": (
        {"op": {"Conv": {"weight": {"symetric": True}}}},
        "'op.Conv.weight.symetric'. Did you mean 'symmetric'",
    ),
    "node part": ({"node": {"a": {"bias": {"skipp": True}}}}, "'node.a.bias.skipp'. Did you mean 'skip'"),
    "tensor": ({"tensor": {"a": {"shared": "x"}}}, "'tensor.a.shared'. Did you mean 'share'"),
    "inputs": ({"inputs": {"x": {"shap": [1]}}}, "'inputs.x.shap'. Did you mean 'shape'"),
    "observer": (
        {"op": {"Conv": {"weight": {"observer": "percentle"}}}},
        "unknown observer 'percentle'. Did you mean 'percentile'",
    ),
    "observer argument": ({"activation": {"observer": {"name": "ema_minmax", "decy": 1}}}, "Did you mean 'decay'"),
    "short observer": ({"observer": "minmx"}, "unknown observer 'minmx'. Did you mean 'minmax'"),
    "fake-quantizer": ({"weight": {"fake_quantizer": "lsqq"}}, "'lsqq'. Did you mean 'lsq'"),
    "bits": ({"weight": {"bits": 0}}, "'weight.bits': must be 1 or more (got 0)"),
    "bits text": ({"weight": {"bits": "8"}}, "'weight.bits'"),
    "contradiction": ({"weight": {"bits": 4, "dtype": "int8"}}, "dtype int8 and bits 4 contradict"),
    "fake-quantizer and format": (
        {"weight": {"fake_quantizer": "e4m3", "dtype": "int8"}},
        "fake_quantizer e4m3 needs dtype = 'fp8_e4m3'",
    ),
    "skip and observe": ({"tensor": {"a": {"skip": True, "observe_only": True}}}, "contradict"),
    "name": ({"name": "../model"}, "plain name"),
    "residual": ({"residual": "none"}, "'residual'"),
}


@pytest.mark.parametrize(("values", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_named_with_the_nearest_right_word(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(values)
    assert message in str(caught.value)


def test_the_schema_takes_what_onnxq_takes_and_refuses_what_it_refuses(values: dict[str, Any]) -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(json.dumps(values)))
    for key in ("top key", "global table", "op table", "op part", "node part", "tensor", "inputs", "bits", "residual"):
        assert not validator.is_valid(WRONG[key][0]), key


def test_every_key_of_the_configuration_has_a_description() -> None:
    def missing(model: type[BaseModel]) -> list[str]:
        return [f"{model.__name__}.{name}" for name, field in model.model_fields.items() if not field.description]

    from onnxq.config import InputSettings, NodeSettings, QuantizerSettings

    assert [name for model in (Config, NodeSettings, QuantizerSettings, InputSettings) for name in missing(model)] == []
