"""quant_dict: chip, quantmode, strategy and the rest become a backend with options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxq.errors import ConfigError
from onnxq.targets import get_backend
from onnxq.targets.sophgo.dialect.target import CHIPS
from tests.targets.sophgo.sophgo_plans import (
    TRANSFORMER,
    activations,
    became,
    config,
    modes,
    planned,
    quantized,
    translated,
)


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_is_a_backend_in_any_case(chip: str) -> None:
    for spelled in (chip, chip.lower(), chip.upper()):
        assert get_backend(translated(config(spelled)).backend).name.partition(":")[0] == CHIPS[chip]


def test_the_chip_decides_about_formats() -> None:
    for chip, dtypes in (("BM1688", {"int8", "uint8"}), ("CV181X", {"int8"}), ("Academic", {"fp8_e4m3"})):
        assert {item.spec.dtype for item in activations(planned(config(chip)))} == dtypes


def test_the_quantmode_decides_whether_activations_are_quantized() -> None:
    both = config(quant={"quantmode": "weight_activation", "strategy": "Transformer"})
    alone = config(quant={"quantmode": "weight_only", "strategy": "Transformer"})
    assert activations(planned(both, TRANSFORMER))
    assert not activations(planned(alone, TRANSFORMER))


def test_the_strategy_decides_which_operators_are_quantized() -> None:
    def operators(strategy: str) -> set[str]:
        return set(planned(config(quant={"strategy": strategy})).quantized)

    assert "/layer1/layer1.0/Add" in operators("CNN")
    assert "/layer1/layer1.0/Add" not in operators("Transformer")
    assert "/layer1/conv1/Conv" in operators("Transformer")


def test_mixed_precision_quantizes_layers_and_runs_the_rest_in_bf16(tmp_path: Path) -> None:
    result = quantized(config(quant={"bf16_mix_prec": True}), tmp_path)
    found = modes(result)
    assert found["/layer1/relu/Relu_output_0_Relu"] == "INT8"
    assert found["/layer1/layer1.0/relu_1/Relu_output_0_Relu"] == "BF16"  # Add + Relu
    assert found["/Sigmoid_output_0_Sigmoid"] == "BF16"


def test_mixed_precision_of_a_transformer_leaves_products_of_computed_matrices(tmp_path: Path) -> None:
    given = config(quant={"bf16_mix_prec": True, "strategy": "Transformer"})
    plan = planned(given, TRANSFORMER)
    assert "/encoder.0/attention/MatMul" in plan.left_float
    assert "/encoder.0/linear1/MatMul" in plan.quantized


def test_mixed_precision_that_is_off_changes_nothing() -> None:
    translation = translated(config(quant={"bf16_mix_prec": False}))
    assert translation.config == translated(config()).config
    assert became(translation, "quant_dict.bf16_mix_prec").startswith("no effect")


def test_the_model_name_is_that_of_the_files(tmp_path: Path) -> None:
    result = quantized(config(quant={"model_name": "resnet18"}), tmp_path)
    assert result.model.name == "resnet18.onnx"


@pytest.mark.parametrize("key", ["use_tpu_mlir_fwd", "not_dynamic_update_param"])
def test_keys_about_training_say_that_they_have_no_effect(key: str) -> None:
    assert became(translated(config(quant={key: True})), f"quant_dict.{key}").startswith("no effect")


@pytest.mark.parametrize(
    ("quant", "message"),
    [
        ({"chip": "BM1864X"}, "quant_dict.chip cannot be 'BM1864X'. Did you mean 'BM1684X'"),
        ({"chip": 1688}, "Known: BM1688"),
        ({"quantmode": "weights_only"}, "Did you mean 'weight_only'"),
        ({"strategy": "CNNs"}, "Did you mean 'CNN'"),
        ({"stratgy": "CNN"}, "Did you mean 'strategy'"),
        ({"bf16_mix_prec": "yes"}, "must be True or False"),
        ({"model_name": ""}, "model_name must be a text"),
        ({"quantmode": "weight_only", "strategy": "CNN"}, "Use strategy 'Transformer'"),
        ({"quantmode": "weight_only", "strategy": "Transformer", "bf16_mix_prec": True}, "Leave bf16_mix_prec out"),
    ],
)
def test_what_is_wrong_in_quant_dict_is_named(quant: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(config(quant=quant))
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "quant_dict is missing"),
        ({"quant_dict": {"strategy": "CNN"}}, "quant_dict.chip is missing"),
        ({"quant_dict": "BM1688"}, "quant_dict must hold keys and values"),
        ({"quant_dict": {"chip": "BM1688"}, "extra_qconfig_dic": {}}, "Did you mean 'extra_qconfig_dict'"),
        ({"quant_dict": {"chip": "BM1688"}, "extra_quantizer_dict": []}, "must hold keys and values"),
    ],
)
def test_what_is_wrong_in_the_dictionary_itself_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(given)
    assert message in str(failure.value)
