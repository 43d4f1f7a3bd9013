"""extra_quantizer_dict: what is only observed, what is left float, what is quantized besides; and the other keys."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.errors import ConfigError
from tests.targets.sophgo.sophgo_plans import (
    FIRST_RESULT,
    SECOND,
    THIRD,
    TRANSFORMER,
    became,
    config,
    modes,
    planned,
    quantized,
    table,
    translated,
    weights,
)

OBSERVED = "extra_quantizer_dict.module_only_enable_observer"
FIRST_WEIGHT = "features.0.0.weight_fake_quant"


def quantizer(**lists: Any) -> dict[str, Any]:
    return config(quantizer=lists)


def test_a_weight_that_is_only_observed_stays_float(tmp_path: Path) -> None:
    plain = quantized(config(), tmp_path / "plain")
    watched = quantized(quantizer(module_only_enable_observer=[FIRST_WEIGHT]), tmp_path / "watched")
    name = next(item.tensor for item in weights(plain.plan) if item.tensor.startswith("features.0.0"))
    assert not plain.plan[name].observe_only
    assert watched.plan[name].observe_only
    assert name in watched.qparams  # its range is known all the same
    stored = onnxq.load(watched.model).values(name)
    steps = stored / watched.qparams[name].scale.reshape(-1, 1, 1, 1)
    assert stored.dtype == np.float32
    assert np.abs(steps - np.round(steps)).max() > 0.1  # the weights as they were, not those of the grid


def test_a_layer_whose_weight_is_only_observed_does_not_run_in_integers(tmp_path: Path) -> None:
    result = quantized(quantizer(module_only_enable_observer=[FIRST_WEIGHT]), tmp_path)
    assert modes(result)["/features/features.0/features.0.2/Relu_output_0_Relu"] == "F32"
    assert modes(result)["/relu/Relu_output_0_Relu"] == "INT8"


def test_an_activation_that_is_only_observed_stays_float(tmp_path: Path) -> None:
    result = quantized(quantizer(module_only_enable_observer=["layer1_conv1_post_act_fake_quantizer"]), tmp_path)
    assert result.plan[FIRST_RESULT].observe_only
    assert f"{FIRST_RESULT}_Relu" in table(result, "cali_table")


def test_an_excluded_module_keeps_a_float_weight_and_has_no_quantizer_in_front() -> None:
    plan = planned(quantizer(exclude_module_name=["layer3.conv3"]))
    assert THIRD in plan.left_float
    assert "/layer3/relu_1/Relu_output_0" not in plan.placements or not any(
        edge.node == THIRD for edge in plan["/layer3/relu_1/Relu_output_0"].edges or ()
    )
    assert THIRD not in {edge.node for item in weights(plan) for edge in item.edges or ()}
    assert SECOND in plan.quantized


def test_an_excluded_module_is_float_in_the_table(tmp_path: Path) -> None:
    assert (
        modes(quantized(quantizer(exclude_module_name=["layer3.conv3"]), tmp_path))["/layer3/conv3/Conv_output_0_Conv"]
        == "F32"
    )


@pytest.mark.parametrize("function", ["torch.nn.functional.sigmoid", "onnx.Sigmoid"])
def test_an_excluded_function_is_left_float(function: str) -> None:
    assert "/Sigmoid" in planned(config()).quantized
    assert "/Sigmoid" in planned(quantizer(exclude_function_type=[function])).left_float


def test_an_excluded_function_may_be_the_function_itself() -> None:
    plan = planned(quantizer(exclude_function_type=[operator.add]))
    assert "/layer1/layer1.0/Add" in plan.left_float


def test_an_excluded_node_is_left_float() -> None:
    plan = planned(quantizer(exclude_node_name=["add_1"]))
    assert "/layer1/layer1.1/Add" in plan.left_float
    assert "/layer1/layer1.0/Add" in plan.quantized


@pytest.mark.parametrize(
    ("key", "item", "node"),
    [
        ("additional_node_name", "tanh", "/Tanh"),
        ("additional_function_type", "torch.tanh", "/Tanh"),
        ("additional_function_type", "torch.softmax", "/encoder.0/attention/Softmax"),
        ("additional_module_type", "torch.nn.LayerNorm", "/encoder.0/norm1/LayerNormalization"),
    ],
)
def test_what_is_added_is_quantized(key: str, item: str, node: str) -> None:
    given = config(quant={"strategy": "Transformer"}, quantizer={key: (item,)})
    plain = config(quant={"strategy": "Transformer"})
    assert node not in planned(plain, TRANSFORMER).quantized
    assert node in planned(given, TRANSFORMER).quantized


def test_every_item_of_a_list_has_a_row() -> None:
    translation = translated(quantizer(exclude_module_name=["layer3.conv3", "fc"], exclude_function_type=[]))
    rows = [row for row in translation.rows if row.key == "extra_quantizer_dict.exclude_module_name"]
    assert [row.value for row in rows] == ["'layer3.conv3'", "'fc'"]
    assert became(translation, "extra_quantizer_dict.exclude_function_type") == "no effect: the list is empty"


def test_weight_only_has_no_activations_to_observe() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    lists = {"module_only_enable_observer": ["layer1_conv1_post_act_fake_quantizer"]}
    assert became(translated(config(quant=quant, quantizer=lists)), OBSERVED).startswith("no effect")


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"exclude_modul_name": []}, "Did you mean 'exclude_module_name'"),
        ({"exclude_module_name": ["layer3.con3"]}, "Did you mean 'layer3.conv3'"),
        ({"exclude_function_type": ["torch.nn.functional.sigmoit"]}, "Did you mean 'torch.nn.functional.sigmoid'"),
        ({"module_only_enable_observer": ["features.0.1.weight_fake_quantt"]}, "features.0."),
        ({"module_only_enable_observer": [3]}, "holds names of quantizers"),
        ({"module_only_enable_observer": ["layer1.conv1.bias_fake_quant"]}, "Name 'layer1.conv1.weight_fake_quant'"),
        ({"module_only_enable_observer": ["bn1.weight_fake_quant"]}, "have no weight that is quantized"),
        ({"module_only_enable_observer": ["relu.weight_fake_quant"]}, "have no weight that is quantized"),
        ({"module_only_enable_observer": {"a": 1}}, "must be a list"),
        ({"academic_mode": True}, "unknown key 'academic_mode'"),
    ],
)
def test_what_is_wrong_is_named(lists: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(quantizer(**lists))
    assert message in str(failure.value)


# ---- what Sophgo-mq has from MQBench -----------------------------------------------------------------------------


def test_an_attribute_to_preserve_becomes_an_output(tmp_path: Path) -> None:
    result = quantized({**config(), "preserve_attr": {"": ["layer2"]}}, tmp_path)
    assert len(onnxq.load(result.model).output_names) == 2


def test_a_concrete_argument_fixes_an_input(tmp_path: Path) -> None:
    given = {**config(), "concrete_args": {"image": {"shape": [1, 3, 32, 32]}}}
    result = quantized(given, tmp_path)
    assert onnxq.load(result.model).shape("image") == (1, 3, 32, 32)


def test_a_chain_to_fuse_has_no_quantizer_inside() -> None:
    chain = {("torch.nn.functional.sigmoid", "torch.nn.Conv2d"): None}
    given = {**config(), "extra_fuse_dict": {"additional_fusion_pattern": chain}}
    assert "/gate/Conv_output_0" in planned(config()).placements
    assert "/gate/Conv_output_0" not in planned(given).placements


@pytest.mark.parametrize("value", [None, {}])
def test_nothing_to_preserve_says_so(value: object) -> None:
    assert became(translated({**config(), "preserve_attr": value}), "preserve_attr") == "no effect: it is empty"


def test_a_leaf_module_says_that_it_has_no_effect() -> None:
    assert became(translated({**config(), "leaf_module": []}), "leaf_module").startswith("no effect")
