"""What is promised of the configuration as a whole: every field at every level, every width, and who decided."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.config import Config, read_config
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import PerChannel, Placement, QuantPlan
from tests.networks.exported import exported
from tests.products import each_once

RESNET = "resnet_torchscript"
NODE = "/layer1/conv1/Conv"
TENSORS = {
    "weight": "layer1.conv1.weight",
    "activation": "/maxpool/MaxPool_output_0",
    "output": "/layer1/relu/Relu_output_0",
    "bias": "layer1.conv1.bias",
}
BACKENDS = {"weight": "academic", "activation": "academic", "output": "snpe", "bias": "qnn"}


def planned(config: dict[str, Any], backend: str) -> QuantPlan:
    return make_plan(prepare(exported(RESNET), backend, config))


def at(level: str, part: str, values: dict[str, Any]) -> dict[str, Any]:
    """A configuration that says something about one part of a convolution, or about its tensor, on a level."""
    tensor = TENSORS[part]
    return {
        "all": {"activation" if part == "output" else part: values},
        "operator": {"op": {"Conv": {part: values}}},
        "node": {"node": {NODE: {part: values}}},
        "node glob": {"node": {"/layer1/conv?/*": {part: values}}},
        "node regex": {"node": {r"re:/layer1/conv\d/.*": {part: values}}},
        "tensor": {"tensor": {tensor: values}},
        "tensor glob": {"tensor": {f"{tensor[:-1]}?": values}},
        "tensor regex": {"tensor": {f"re:{tensor[:-1]}.": values}},
    }[level]


LEVELS = ("all", "operator", "node", "node glob", "node regex", "tensor", "tensor glob", "tensor regex")
COMMON: list[dict[str, Any]] = [
    {"bits": 6},
    {"dtype": "int7"},
    {"power_of_two": True},
    {"observer": {"name": "percentile", "percentile": 99.5}},
    {"fake_quantizer": "lsq"},
    {"minimum_scale": 0.5},
]
FIELDS: dict[str, list[dict[str, Any]]] = {
    "weight": [*COMMON, {"symmetric": False}, {"per_channel": False}, {"narrow_range": True}, {"rounding": "floor"}],
    "activation": [*COMMON, {"symmetric": False}, {"per_channel": True}, {"narrow_range": True}],
    "output": [
        {"bits": 6},
        {"dtype": "uint7"},
        {"symmetric": True},
        *COMMON[2:],
    ],
    # A bias of 32 bits has the scale of input and weight; any other has settings of its own.
    "bias": [{"bits": 8, **field} for field in COMMON if "dtype" not in field] + [{"dtype": "int16"}],
}


def value_of(placement: Placement, field: str) -> Any:
    if field == "per_channel":
        return isinstance(placement.spec.granularity, PerChannel)
    return getattr(placement.spec, field) if hasattr(placement.spec, field) else getattr(placement, field)


PARTS_AND_FIELDS = [(part, values) for part, several in FIELDS.items() for values in several]


@pytest.mark.parametrize(("part_and_field", "level"), each_once(PARTS_AND_FIELDS, LEVELS), ids=str)
def test_a_field_of_any_part_can_be_set_on_any_level(part_and_field: tuple[str, dict[str, Any]], level: str) -> None:
    """tests/place/test_overrides.py has every pair of field, level and part on a small network."""
    part, values = part_and_field
    field = list(values)[-1]
    before = planned({}, BACKENDS[part])[TENSORS[part]]
    after = planned(at(level, part, values), BACKENDS[part])[TENSORS[part]]
    wanted = "percentile:percentile=99.5" if field == "observer" else values[field]
    assert value_of(after, field) == wanted
    assert value_of(before, field) != wanted
    assert field in dict(after.set_by)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("part", TENSORS)
def test_a_quantizer_of_any_part_can_be_left_out_or_only_observe_on_any_level(part: str, level: str) -> None:
    backend = BACKENDS[part]
    skipped = planned(at(level, part, {"skip": True}), backend)
    placement = skipped.placements.get(TENSORS[part])
    assert placement is None or all(edge.node != NODE for edge in placement.edges or ())
    assert planned(at(level, part, {"observe_only": True}), backend)[TENSORS[part]].observe_only


@pytest.mark.parametrize(
    ("config", "backend"),
    [
        ({"force": ["/Sigmoid"]}, "tensorrt"),
        ({"force": ["op:Sigmoid"]}, "tensorrt"),
        ({"op": {"Sigmoid": {"force": True}}}, "tensorrt"),
        ({"node": {"/Sigmoid": {"force": True}}}, "tensorrt"),
        ({"node": {"/Sig*": {"force": True}}}, "tensorrt"),
        ({"node": {"re:/Sig.*": {"force": True}}}, "tensorrt"),
    ],
)
def test_a_node_is_forced_on_every_level_that_has_nodes(config: dict[str, Any], backend: str) -> None:
    assert "/Sigmoid" in planned({}, backend).left_float
    assert "/Sigmoid" in planned(config, backend).quantized


@pytest.mark.parametrize(
    "config",
    [
        {"skip": [NODE]},
        {"skip": ["/layer1/conv?/*"]},
        {"skip": [r"re:/layer1/conv\d/.*"]},
        {"skip": ["op:Conv"]},
        {"op": {"Conv": {"skip": True}}},
        {"node": {NODE: {"skip": True}}},
        {"op": {"Conv": {"observe_only": True}}},
        {"node": {NODE: {"observe_only": True}}},
    ],
)
def test_a_node_is_left_float_or_observed_on_every_level_that_has_nodes(config: dict[str, Any]) -> None:
    assert NODE in planned({}, "tensorrt").quantized
    assert NODE in planned(config, "tensorrt").left_float


@pytest.mark.parametrize(
    "config",
    [
        {"tensor": {TENSORS["activation"]: {"share": "one"}, "/layer3/relu/Relu_output_0": {"share": "one"}}},
        {"node": {NODE: {"activation": {"share": "one"}}, "/layer3/conv2/Conv": {"activation": {"share": "one"}}}},
    ],
)
def test_quantizers_are_shared_by_tensors_and_by_parts_of_nodes(config: dict[str, Any]) -> None:
    first, second = TENSORS["activation"], "/layer3/relu/Relu_output_0"
    plain, plan = planned({}, "academic"), planned(config, "academic")
    assert plain.leader(first) != plain.leader(second)
    assert plan.leader(first) == plan.leader(second)


@pytest.mark.parametrize("table", ["input", "output"])
@pytest.mark.parametrize("values", FIELDS["output"], ids=lambda values: list(values)[-1])
def test_inputs_and_outputs_of_the_model_have_every_field_too(table: str, values: dict[str, Any]) -> None:
    tensor, field = {"input": "image", "output": "logits"}[table], next(iter(values))
    before, after = (planned(config, "snpe") for config in ({}, {table: values}))
    wanted = "percentile:percentile=99.5" if field == "observer" else values[field]
    assert value_of(after[tensor], field) == wanted != value_of(before[tensor], field)
    changed = {item.tensor for item in before if value_of(item, field) != value_of(after[item.tensor], field)}
    assert {name for name in changed if before[name].role != "bias"} == {tensor}


# ---- every width -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(1, 17))
def test_every_width_can_be_planned_for_weights_activations_and_inputs(bits: int) -> None:
    plan = planned({"weight": {"bits": bits}, "activation": {"bits": bits}, "input": {"bits": bits}}, "academic")
    assert plan[TENSORS["weight"]].spec.dtype == plan[TENSORS["activation"]].spec.dtype == f"int{bits}"
    assert plan["image"].spec.dtype == f"int{bits}"


@pytest.mark.parametrize("bits", range(3, 17))
def test_biases_and_results_have_every_width_that_their_targets_store(bits: int) -> None:
    assert planned({"bias": {"bits": bits}}, "onnxruntime")[TENSORS["bias"]].spec.dtype == f"int{bits}"
    if bits >= 5:  # what is stored as four bits, the target takes for weights alone
        assert planned({"output": {"bits": bits}}, "qnn")["logits"].spec.dtype == f"uint{bits}"


def test_more_bits_are_more_exact_in_the_written_model(tmp_path: Path) -> None:
    data = [{"image": image[None]} for image in load_data().calibration[:8]]

    def decibels(bits: int) -> float:
        parts = {"weight": {"bits": bits}, "activation": {"bits": 16}}
        config = {"op": {"Conv": parts, "Gemm": parts}, "minimum_sqnr_db": -100.0, "effort": 0}  # both ends too
        result = onnxq.quantize(model_path(), backend="academic", config=config, data=data, out=tmp_path / str(bits))
        return float(result.report["sqnr_db"]["logits"])

    measured = [decibels(bits) for bits in (1, 3, 6, 9, 12)]
    assert measured == sorted(measured)
    assert np.all(np.diff(measured[1:]) > 12)  # about 6 dB a bit


# ---- the order of the pipeline -----------------------------------------------------------------------------------


def test_keys_stand_in_the_order_of_the_pipeline() -> None:
    order = list(Config.model_fields)
    stages = (
        "inputs",
        "passes",
        "skip",
        "weight",
        "op",
        "node",
        "tensor",
        "data",
        "skip_refinements",
        "name",
        "strict",
    )
    assert [order.index(key) for key in stages] == sorted(order.index(key) for key in stages)


def test_the_written_configuration_keeps_that_order(tmp_path: Path) -> None:
    data = [{"image": image[None]} for image in load_data().calibration[:4]]
    config = {"verify_samples": 2, "node": {"stem.conv": {"skip": True}}, "skip_passes": ["remove_dropout"]}
    onnxq.quantize(model_path(), backend="tensorrt", config=config, data=data, out=tmp_path / "out")
    written = list(json.loads((tmp_path / "out" / "config.json").read_text()))
    assert written == [key for key in Config.model_fields if key in written]


# ---- who decided -------------------------------------------------------------------------------------------------

SETTINGS = """\
backend = "tensorrt"
skip = ["head.conv"]
force = ["global_pool"]
observer = "mse"
[weight]
bits = 4
[op.Gemm.weight]
dtype = "int8"
[node."residual*".output]
observer = "kl"
[node."stem.conv".weight]
observe_only = true
[tensor.image]
observer = "fixed:0,1"
[tensor."residual1.relu.out"]
share = "both"
[node."pointwise.conv".activation]
skip = true
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("head.conv", 'skip = ["head.conv"]'),
        ("global_pool", 'force = ["global_pool"]'),
        ("stem.relu.out", 'observer = "mse"'),
        ("residual1.conv.weight", "bits = 4"),
        ("classifier.weight", 'dtype = "int8"'),
        ("residual1.relu.out", 'observer = "kl"'),
        ("residual1.relu.out", 'share = "both"'),
        ("stem.conv.weight", "observe_only = true"),
        ("stem.conv", "observe_only = true"),
        ("image", 'observer = "fixed:0,1"'),
        ("depthwise.clip.out", "skip = true"),
        ("pointwise.conv", "skip = true"),
    ],
)
def test_explain_names_the_line_that_decided(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text(SETTINGS)
    model = str(model_path())
    for command in (
        ["place", model, "-c", "settings.toml", "-o", "plan.json"],
        ["explain", "plan.json", name, "--model", model],
    ):
        result = CliRunner().invoke(app, command, prog_name="onnxq")
        assert result.exit_code == 0, result.output
    number = SETTINGS.splitlines().index(line) + 1
    assert re.search(rf"settings\.toml:{number}\b", result.stdout), result.stdout


# ---- typed and strict --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"verify_samples": "3"}, "'verify_samples': must be a whole number (got '3')"),
        ({"verify_samples": 0}, "'verify_samples': must be 1 or more (got 0)"),
        ({"minimum_sqnr_db": "20"}, "'minimum_sqnr_db': must be a number (got '20')"),
        ({"weight": {"minimum_scale": "0.1"}}, "'weight.minimum_scale': must be a number (got '0.1')"),
        ({"weight": {"minimum_scale": True}}, "'weight.minimum_scale': must be a number (got True)"),
        ({"samples": True}, "'samples': must be a whole number (got True)"),
        ({"weight": {"bits": 33}}, "'weight.bits': must be 32 or less (got 33)"),
        ({"residual": "bth"}, "'residual': must be 'both' or 'skip' (got 'bth')"),
        ({"backend": ""}, "'backend': must not be empty (got '')"),
        ({"provider": ""}, "'provider': must not be empty (got '')"),
        ({"memory_limit": True}, "'memory_limit': must be text or a whole number (got True)"),
        ({"inputs": {"x": {"shape": [True]}}}, "'inputs.x.shape': a size is a whole number or text (got [True])"),
    ],
)
def test_a_value_of_the_wrong_type_is_not_guessed_at(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(config)
    assert str(caught.value) == f"configuration: {message}"


@pytest.mark.parametrize("value", [20, 20.5])
def test_whole_numbers_are_numbers(value: float) -> None:
    assert read_config({"minimum_sqnr_db": value}).minimum_sqnr_db == value


@pytest.mark.parametrize(
    ("suffix", "text", "place"),
    [
        ("yaml", "samples: 4\nweight: {bits: 4}\nweight: {bits: 8}\n", "settings.yaml:3: "),
        ("yaml", "weight:\n  bits: 4\n  bits: 8\n", "settings.yaml:3: "),
        ("json", '{"weight": {"bits": 4}, "weight": {"bits": 8}}', "settings.json "),
        ("toml", "samples = 1\nsamples = 2\n", "settings.toml "),
    ],
)
def test_a_key_that_stands_twice_is_an_error(suffix: str, text: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / f"settings.{suffix}"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert f"{place}cannot be read" in str(caught.value)


def test_yaml_may_merge_a_table_and_replace_keys_of_it(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("weight: &base {bits: 4, observer: mse}\nactivation:\n  <<: *base\n  bits: 8\n")
    read = read_config(path)
    assert (read.activation.bits, read.activation.observer) == (8, "mse")
