"""object_type, module_name, int4_op, int8_op, f16_op: settings for types of modules and for single ones."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import pytest

import onnxq
from onnxq.compat import Translation
from onnxq.demo import model_path
from onnxq.errors import ConfigError
from onnxq.targets.sophgo.dialect import translate
from onnxq.types import PerChannel, PerTensor
from tests.targets.sophgo.sophgo_plans import (
    FIRST,
    FIRST_RESULT,
    RESNET_DYNAMO,
    SECOND,
    THIRD,
    TRANSFORMER,
    activations,
    became,
    config,
    modes,
    planned,
    quantized,
    table,
    translated,
    weight_of,
    weights,
)

ACTIVATION = {"mode": "activation", "bit": "8", "afakequantize": "LearnableFakeQuantize", "aobserver": "MinMaxObserver"}
WEIGHT = {"mode": "weight", "bit": "8", "wfakequantize": "FixedFakeQuantize", "wobserver": "MinMaxObserver"}
LAYER2 = "extra_qconfig_dict.module_name['layer2.conv2']"
W4A8 = {"w_qscheme": {"bit": 4}, "a_qscheme": {"bit": 8}}


def module(name: str, **entry: Any) -> dict[str, Any]:
    return {"module_name": {name: entry}}


def of_type(name: object, **entry: Any) -> dict[str, Any]:
    return {"object_type": {name: entry}}


class ConvReLU2d_sophgo:  # noqa: N801 - as Sophgo-mq calls it
    """Stands for the class of Sophgo-mq."""


ConvReLU2d_sophgo.__module__ = "sophgo_mq.nn.intrinsic.qat.modules.conv_fused_sophgo_tpu"


def test_a_type_changes_the_weights_of_its_layers_alone() -> None:
    plan = planned(config(**of_type("qnniqat.ConvReLU2d_sophgo", mode="weight", wobserver="MSEObserver")))
    assert weight_of(plan, FIRST).observer == "mse"  # Conv and Relu
    assert weight_of(plan, SECOND).observer == "minmax"  # Conv and BatchNormalization
    assert {item.observer for item in activations(plan)} <= {"minmax", "fixed:0.0,1.0"}


def test_a_type_may_be_the_class_itself() -> None:
    by_class = translated(config(**of_type(ConvReLU2d_sophgo, mode="weight", wobserver="MSEObserver")))
    by_name = translated(config(**of_type("qnniqat.ConvReLU2d_sophgo", mode="weight", wobserver="MSEObserver")))
    assert by_class.config == by_name.config


def test_types_with_batch_normalization_are_told_apart() -> None:
    plan = planned(config(**of_type("qnniqat.ConvBnReLU2d_sophgo", mode="weight", wobserver="MSEObserver")))
    found = {edge.node for item in weights(plan) if item.observer == "mse" for edge in item.edges or ()}
    assert "/features/features.0/features.0.0/Conv" in found
    assert not {FIRST, SECOND, THIRD} & found


def test_the_activation_of_a_module_is_its_result_behind_the_relu() -> None:
    plan = planned(config(**module("layer1.conv1", mode="activation", aobserver="MSEObserver")))
    assert plan[FIRST_RESULT].observer == "mse"
    assert [item.tensor for item in activations(plan) if item.observer == "mse"] == [FIRST_RESULT]


def test_the_activation_of_a_module_is_its_result_behind_the_batch_normalization() -> None:
    plan = planned(config(**module("layer2.conv2", mode="activation", aobserver="MSEObserver")))
    found = [item for item in activations(plan) if item.observer == "mse"]
    assert [item.why for item in found] == [f"output of Conv '{SECOND}'"]


def test_the_activation_of_a_linear_layer_is_behind_its_bias() -> None:
    given = config(
        quant={"strategy": "Transformer"}, **module("encoder.0.linear1", mode="activation", aobserver="MSEObserver")
    )
    found = [item.tensor for item in activations(planned(given, TRANSFORMER)) if item.observer == "mse"]
    assert found == ["/encoder.0/linear1/Add_output_0"]


@pytest.mark.parametrize("name", ["layer1.conv1", "layer1_conv1", "layer1_conv1_post_act_fake_quantizer"])
def test_a_module_is_found_by_its_path_and_by_its_names_in_a_traced_graph(name: str) -> None:
    plan = planned(config(**module(name, mode="activation", aobserver="MSEObserver")))
    assert plan[FIRST_RESULT].observer == "mse"


@pytest.mark.parametrize("name", ["image", "image_post_act_fake_quantizer"])
def test_an_input_of_the_model_is_an_activation_of_its_own(name: str) -> None:
    given = config(**module(name, mode="activation", bit=8, aobserver="MSEObserver"))
    found = [item.tensor for item in activations(planned(given)) if item.observer == "mse"]
    assert found == ["image"]
    key = f"extra_qconfig_dict.module_name['{name}'].aobserver"
    assert became(translated(given), key) == "input image: observer = mse"


def test_a_module_changes_its_weight_alone() -> None:
    plan = planned(config(**module("layer2.conv2", mode="weight", wobserver="MSEObserver")))
    assert weight_of(plan, SECOND).observer == "mse"
    assert [item.observer for item in weights(plan)].count("mse") == 1


def test_fake_quantizers_of_entries_are_in_the_plan() -> None:
    given = config(
        module_name={
            "layer1.conv1": {"mode": "activation", "afakequantize": "LearnableFakeQuantize"},
            "layer2.conv2": {"mode": "weight", "wfakequantize": "AdaRoundFakeQuantize"},
        }
    )
    plan = planned(given)
    assert plan[FIRST_RESULT].fake_quantizer == "lsq_plus"
    assert weight_of(plan, SECOND).fake_quantizer == "adaround"
    assert weight_of(plan, FIRST).fake_quantizer == "fixed"


def test_a_fake_quantizer_has_the_format_that_it_needs() -> None:
    plan = planned(config(**module("layer2.conv2", mode="weight", wfakequantize="TqtFakeQuantize")))
    assert weight_of(plan, SECOND).spec.power_of_two
    assert not weight_of(plan, FIRST).spec.power_of_two


@pytest.mark.parametrize("bit", [8, "8"])
def test_bits_of_a_weight_are_taken_as_a_number_or_as_text(bit: object) -> None:
    plan = planned(config(**W4A8, **module("layer2.conv2", mode="weight", bit=bit)))
    assert weight_of(plan, SECOND).spec.dtype == "int8"
    assert weight_of(plan, FIRST).spec.dtype == "int4"


def test_a_layer_with_weights_of_four_bits_among_those_with_eight(tmp_path: Path) -> None:
    result = quantized(config(**module("layer2.conv2", mode="weight", bit=4)), tmp_path)
    found = modes(result)
    assert found["/layer2/bn2/BatchNormalization_output_0_Conv"] == "W4INT8"
    assert found["/layer1/relu/Relu_output_0_Relu"] == "INT8"


def test_weights_alone_of_four_and_eight_bits_stand_side_by_side(tmp_path: Path) -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    given = config(quant=quant, **module("encoder.0.linear1", mode="weight", bit=4))
    found = set(modes(quantized(given, tmp_path, TRANSFORMER)).values())
    assert {"W4F16", "W8F16"} <= found


def test_weights_alone_of_four_bits_need_a_chip_that_has_them() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    with pytest.raises(ConfigError, match=r"CV183X has no weights of 4 bits\. Use 8"):
        translated(config("CV183X", quant=quant, **module("encoder.0.linear1", mode="weight", bit=4)), TRANSFORMER)


def test_scales_for_each_channel_of_one_module() -> None:
    given = config(**module("layer2.conv2", mode="weight", wperchannel=False))
    assert weight_of(planned(given), SECOND).spec.granularity == PerTensor()
    assert isinstance(weight_of(planned(given), FIRST).spec.granularity, PerChannel)


def test_a_matrix_has_one_scale_for_all_channels() -> None:
    with pytest.raises(ConfigError, match="one scale for the matrix of a linear layer: /fc/Gemm"):
        translated(config(**module("fc", mode="weight", wperchannel=True)))


def test_weights_alone_of_a_matrix_have_channels() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    given = config(quant=quant, w_qscheme={"bit": 8}, **module("encoder.0.linear1", mode="weight", wperchannel=True))
    plan = planned(given, TRANSFORMER)
    assert sum(isinstance(item.spec.granularity, PerChannel) for item in weights(plan)) == 1


def test_a_module_wins_over_its_type_and_the_type_over_the_rest() -> None:
    plan = planned(
        config(
            w_observer="MSEObserver",
            object_type={"torch.nn.Conv2d": {"mode": "weight", "wobserver": "ClipStdObserver"}},
            module_name={"layer2.conv2": {"mode": "weight", "wobserver": "MinMaxObserver"}},
        )
    )
    assert weight_of(plan, SECOND).observer == "minmax"
    assert weight_of(plan, FIRST).observer == "clip_std"
    assert weight_of(plan, "/fc/Gemm").observer == "mse"


def test_a_module_wins_whatever_stands_first() -> None:
    entries = {
        "module_name": {"layer2.conv2": {"mode": "weight", "wobserver": "MinMaxObserver"}},
        "object_type": {"torch.nn.Conv2d": {"mode": "weight", "wobserver": "ClipStdObserver"}},
    }
    assert weight_of(planned(config(**entries)), SECOND).observer == "minmax"


def test_pairs_are_taken_like_a_dictionary() -> None:
    entry = {"mode": "weight", "wobserver": "MSEObserver"}
    assert (
        translated(config(module_name=[("layer2.conv2", entry)])).config
        == translated(config(module_name={"layer2.conv2": entry})).config
    )


def test_a_type_that_the_model_does_not_have_says_so() -> None:
    translation = translated(config(**of_type("torch.nn.ConvTranspose2d", mode="weight", wobserver="MSEObserver")))
    key = "extra_qconfig_dict.object_type['torch.nn.ConvTranspose2d'].wobserver"
    assert became(translation, key) == "no effect: the model has nothing of this type"


def test_a_type_with_folded_batch_normalization_is_found_too() -> None:
    given = config(**of_type("qnniqat.ConvBnReLU2d_sophgo", mode="weight", wobserver="MSEObserver"))
    assert "mse" in {item.observer for item in weights(planned(given, RESNET_DYNAMO))}


def test_activations_of_a_type_that_is_no_layer() -> None:
    plan = planned(config(**of_type("torch.nn.AdaptiveAvgPool2d", mode="activation", aobserver="MSEObserver")))
    assert plan["/avgpool/GlobalAveragePool_output_0"].observer == "mse"


def test_every_key_of_an_entry_has_a_row() -> None:
    translation = translated(config(**module("layer2.conv2", **WEIGHT, wperchannel=True)))
    assert {row.key.removeprefix(f"{LAYER2}.") for row in translation.rows if row.key.startswith(LAYER2)} == {
        *WEIGHT,
        "wperchannel",
    }


def test_weight_only_leaves_entries_about_activations_without_effect() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    translation = translated(config(quant=quant, **module("layer1.conv1", **ACTIVATION)))
    assert "node" not in translation.config
    assert became(translation, "extra_qconfig_dict.module_name['layer1.conv1'].bit").startswith("no effect")


@pytest.mark.parametrize(
    ("chip", "qconfig", "message"),
    [
        ("BM1688", module("layer2.conv", **WEIGHT), "Did you mean 'layer2.conv2'"),
        ("BM1688", of_type("qnniqat.ConvReLu2d_sophgo", **WEIGHT), "ConvReLU2d_sophgo"),
        ("BM1688", {"object_types": {}}, "Did you mean 'object_type'"),
        ("BM1688", {"object_type": ["torch.nn.Conv2d"]}, "must hold an entry for each module or type"),
        ("BM1688", module("layer2.conv2", mode="weights"), "Did you mean 'weight'"),
        ("BM1688", module("layer2.conv2", bit=8), "mode says what the entry is about"),
        ("BM1688", module("layer2.conv2", **WEIGHT, aobserver="MinMaxObserver"), "set mode to 'activation'"),
        ("BM1688", module("layer1.conv1", **ACTIVATION, wperchannel=True), "set mode to 'weight'"),
        ("BM1688", module("layer2.conv2", mode="weight", wobsrver="MinMaxObserver"), "Did you mean 'wobserver'"),
        ("BM1688", module("layer2.conv2", mode="weight", wobserver="MinMaxObsever"), "Did you mean 'MinMaxObserver'"),
        ("BM1688", module("layer2.conv2", mode="weight", wfakequantize="FixedFakeQuant"), "FixedFakeQuantize"),
        ("BM1688", module("layer2.conv2", mode="weight", bit="seven"), "Known: 8 and 4"),
        ("BM1688", module("layer2.conv2", mode="weight", bit=True), "Known: 8 and 4"),
        ("BM1688", module("layer2.conv2", mode="weight", bit=16), "the model is INT8"),
        ("BM1688", module("layer2.conv2", mode="weight", wperchannel="no"), "must be True or False"),
        ("BM1688", module("layer1_conv1_post_act_fake_quantizer", **WEIGHT), "is the quantizer of an activation"),
        ("BM1688", module("layer1.conv1.weight_fake_quant", **ACTIVATION), "is the quantizer of a weight"),
        ("BM1688", module("relu", **WEIGHT), "mode is 'weight': these nodes have no weight"),
        ("BM1688", {"module_name": {operator.add: WEIGHT}}, "given by its path"),
        ("BM1688", {"module_name": {"layer2.conv2": "int8"}}, "must hold keys and values"),
        ("BM1688", module("layer1.conv1", mode="activation", bit=4), "Name the layers in int4_op"),
        (
            "BM1688",
            {"w_qscheme": {"bit": 4}, "a_qscheme": {"bit": 4}, **module("layer2.conv2", mode="weight", bit=8)},
            "Use int8_op",
        ),
        ("BM1684X", module("layer2.conv2", mode="weight", bit=4), "BM1688 has them"),
        ("CV183X", module("layer2.conv2", mode="weight", bit=4), "CV183X has no weights of 4 bits. Use 8"),
        ("BM1688", module("image", **WEIGHT), "is the quantizer of an activation"),
        ("BM1688", module("layer1.conv1.bias_fake_quant", **WEIGHT), "a bias has no quantizer of its own"),
        ("BM1688", {"module_name": {None: WEIGHT}}, "module_name[None]: a module is given by its path"),
        ("BM1688", {"object_type": {3: WEIGHT}}, "object_type[3]: a type is given by its class or by its name"),
        ("BM1688", module("layer2.conv2", mode="weight", wobserver=3), "['layer2.conv2'].wobserver: a name or a class"),
        ("BM1688", module("layer2.conv2", mode="weight", wfakequantize="Fp16FakeQuantize"), "f16_op"),
        ("SG2260", module("layer2.conv2", mode="weight", wfakequantize="E4M3FakeQuantize"), "E4M3FakeQuantize in w_"),
        ("BM1688", module("layer2.conv2", mode="weight", wfakequantize="NNIEFakeQuantize"), "another vendor"),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy(chip: str, qconfig: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(config(chip, **qconfig))
    assert message in str(failure.value)


FLOAT8 = {"w_fakequantize": "E4M3FakeQuantize", "a_fakequantize": "E4M3FakeQuantize"}


@pytest.mark.parametrize("entry", [WEIGHT, ACTIVATION])
def test_integers_inside_a_float8_model_are_refused_with_the_remedy(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(config("SG2260", **FLOAT8, **module("layer2.conv2", **entry)))
    assert "Use E4M3FakeQuantize here, or fake-quantizers for integers" in str(failure.value)


def test_bits_of_an_entry_in_a_float8_model_must_be_those_of_the_format() -> None:
    with pytest.raises(ConfigError, match="which has 8 bits"):
        translated(config("SG2260", **FLOAT8, **module("layer2.conv2", mode="weight", bit=4)))
    translation = translated(config("SG2260", **FLOAT8, **module("layer2.conv2", mode="weight", bit="8")))
    assert became(translation, f"{LAYER2}.bit") == "no effect: F8E4M3 has its own bits"


# ---- int4_op, int8_op, f16_op -------------------------------------------------------------------------------------


def test_four_bit_layers_among_others(tmp_path: Path) -> None:
    result = quantized(config(int4_op=["layer2.conv2"]), tmp_path)
    assert modes(result)["/layer2/bn2/BatchNormalization_output_0_Conv"] == "INT4"
    assert modes(result)["/layer1/relu/Relu_output_0_Relu"] == "INT8"
    assert weight_of(result.plan, SECOND).spec.dtype == "int4"
    listed = table(result, "cali_table").partition("#int4_op")[2].partition("#weight_scale")[0]
    assert "/layer2/bn2/BatchNormalization_output_0_Conv" in listed.split()


def test_eight_bit_layers_in_a_model_of_four_bits(tmp_path: Path) -> None:
    given = config(w_qscheme={"bit": 4}, a_qscheme={"bit": 4}, int8_op=["layer3.conv2"])
    found = modes(quantized(given, tmp_path, minimum_sqnr_db=-20.0))  # 4 bits are few for this network
    assert found["/layer3/relu_1/Relu_output_0_Relu"] == "INT8"
    assert found["/layer1/layer1.0/bn2/BatchNormalization_output_0_Conv"] == "INT4"


def test_half_precision_layers(tmp_path: Path) -> None:
    result = quantized(config(f16_op=["layer3.conv3"]), tmp_path)
    assert "float=F16" in result.plan.backend
    assert modes(result)["/layer3/conv3/Conv_output_0_Conv"] == "F16"


def test_the_later_list_wins() -> None:
    plan = planned(config(int4_op=["layer3.conv2"], int8_op=["layer3.conv2"]))
    assert weight_of(plan, "/layer3/conv2/Conv").spec.dtype == "int8"


@pytest.mark.parametrize("later", ["int8_op", "f16_op"])
def test_a_module_in_two_lists_says_which_one_wins(later: str) -> None:
    translation = translated(config(**{"int4_op": ["layer3.conv2"], later: ["layer3.conv2"]}))
    key = "extra_qconfig_dict.int4_op"
    assert became(translation, key) == f"no effect: {later} has it too, and wins"
    assert not any(key in source for source in translation.sources.values())


def test_a_list_says_which_observers_and_fake_quantizers_it_brings() -> None:
    row = became(translated(config(int4_op=["layer2.conv2"])), "extra_qconfig_dict.int4_op")
    assert "observed by minmax" in row
    assert "observed by ema_minmax" in row
    assert "fake_quantizer = lsq_plus" in row


def test_an_empty_list_says_so() -> None:
    assert became(translated(config(int4_op=[])), "extra_qconfig_dict.int4_op") == "no effect: the list is empty"


@pytest.mark.parametrize(
    ("chip", "quant", "qconfig", "message"),
    [
        ("BM1688", {}, {"int4_op": ["layer2.conv"]}, "Did you mean 'layer2.conv2'"),
        ("BM1688", {}, {"int4_ops": []}, "Did you mean 'int4_op'"),
        ("BM1688", {}, {"int4_op": ["relu"]}, "has no weights"),
        ("BM1688", {}, {"int4_op": ["fc"]}, "makes an output of the model"),
        ("BM1688", {}, {"int4_op": ["layer2.0.conv1"]}, "reads the same tensor as"),
        ("BM1684X", {}, {"int4_op": ["layer2.conv2"]}, "BM1684X has no layers that read 4 bits, BM1688 has them"),
        ("CV181X", {}, {"int4_op": ["layer2.conv2"]}, "CV181X has no layers that read 4 bits, BM1688 has them"),
        ("CV181X", {}, {"f16_op": ["layer2.conv2"]}, "CV181X has no F16"),
        ("BM1688", {"bf16_mix_prec": True}, {"f16_op": ["layer2.conv2"]}, "Leave one of them out"),
        ("SG2260", {}, {**FLOAT8, "int8_op": ["layer2.conv2"]}, "would be integers in a model of F8E4M3"),
        (
            "BM1688",
            {"quantmode": "weight_only", "strategy": "Transformer"},
            {"int4_op": ["layer2.conv2"]},
            "Use module_name with mode 'weight'",
        ),
    ],
)
def test_what_a_chip_cannot_do_is_named_with_the_remedy(
    chip: str, quant: dict[str, Any], qconfig: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(config(chip, quant=quant, **qconfig))
    assert message in str(failure.value)


# ---- convolutions with groups ------------------------------------------------------------------------------------


def on_the_demo(**qconfig: Any) -> Translation:
    """The demo model has a depthwise convolution."""
    return translate(config(**qconfig), onnxq.load(model_path()))


def test_a_type_of_four_bits_leaves_convolutions_with_groups_at_eight() -> None:
    translation = on_the_demo(**of_type("torch.nn.Conv2d", mode="weight", bit=4))
    assert translation.config["node"]["stem.conv"]["weight"]["bits"] == 4
    assert "depthwise.conv" not in translation.config["node"]
    key = "extra_qconfig_dict.object_type['torch.nn.Conv2d'].bit"
    assert "not of depthwise.conv: a convolution with groups has no 4-bit form" in became(translation, key)


@pytest.mark.parametrize(
    "qconfig", [module("depthwise.conv", mode="weight", bit=4), {"int4_op": ["depthwise.conv"]}], ids=["entry", "list"]
)
def test_a_convolution_with_groups_that_is_named_is_refused_four_bits(qconfig: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no 4-bit form"):
        on_the_demo(**qconfig)
