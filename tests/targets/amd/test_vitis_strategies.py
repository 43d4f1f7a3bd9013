"""Whole strategies: built-in ones, files, single values overridden, and the registry's values for all quantizers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxq.errors import ConfigError
from onnxq.targets.amd.dialect import STRATEGIES
from onnxq.targets.amd.dialect.pipelines import SECTIONS
from onnxq.targets.amd.dialect.quantizers import KINDS
from onnxq.targets.amd.dialect.registry import LAYER_LISTS, OF_ALL_ROLES
from onnxq.targets.amd.dialect.strategy import REGISTRY_KEYS
from onnxq.types import QuantPlan
from tests.targets.amd.vitis_runs import RESNET, TRANSFORMER, became, graph_of, planned, quantized, specs, translated

ALL_USER_KEYS = {
    "bit": 6,
    "method": "Percentile",
    "method_percentile": 99.0,
    "symmetry": False,
    "per_channel": True,
    "round_mode": "FLOOR",
    "unsigned": True,
    "narrow_range": True,
}


def lowest_db(result: Any) -> float:
    return min(float(output["sqnr_db"]) for output in result.report["checks"]["outputs"])


# ---- end to end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "strategy", "minimum"),
    [
        (RESNET, "pof2s", 15),
        (RESNET, "fs", 20),
        (RESNET, "tqt", 10),
        (TRANSFORMER, "pof2s", 25),
        (TRANSFORMER, "fs", 30),
        (TRANSFORMER, "tqt", 25),
        ("resnet_dynamo", "pof2s", 15),
        ("transformer_dynamo", "fs", 30),
    ],
)
def test_built_in_strategies_run_to_the_end(name: str, strategy: str, minimum: float, tmp_path: Path) -> None:
    result = quantized(strategy, tmp_path, name)
    assert lowest_db(result) > minimum
    assert {placement.spec.power_of_two for placement in result.plan if placement.spec.dtype == "int8"} == {
        strategy != "fs"
    }


def document(kind: str, more: dict[str, Any]) -> dict[str, Any]:
    """The quantizer that the document prints, completed with one of its choices for each parameter."""
    params = {
        "bit_width": 8,
        "data_format": "INT",
        "method": "Min_MSE",
        "round_mode": "HALF_TO_EVEN",
        "channel_axis": -1,
    }
    return {"type": kind, "params": {**params, "unsigned": False, "narrow_range": False, "epsilon": 1e-7, **more}}


POF2S = document(
    "Pof2SQuantizer", {"symmetry": True, "per_channel": False, "min_quantize_pos": -52, "max_quantize_pos": 52}
)
FS = document("FSQuantizer", {"symmetry": False, "per_channel": True, "use_framework_quantizer": True})
MAFS = document("MAFSQuantizer", {"symmetry": True, "per_channel": False, "ema_decay": 0.999})
TQT = document("TQTQuantizer", {"symmetry": True, "per_channel": False})


def pattern(weight: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
    """The document's form of an entry, for convolutions and matrix products."""
    return {
        "pattern_name": "layers",
        "layer_type": "Conv2D|Dense",
        "layer_name": "",
        "layer_params": {},
        "layer_inputs": [],
        "quant_config": [
            {"target_name": "kernel", "target_type": "weight", "shared_quantizer": "", "quantizer_config": weight},
            {"target_name": "", "target_type": "output", "shared_quantizer": "", "quantizer_config": output},
        ],
    }


@pytest.mark.parametrize("name", [RESNET, TRANSFORMER])
@pytest.mark.parametrize(
    ("base", "weight", "output"),
    [
        ("pof2s", POF2S, POF2S),
        ("tqt", TQT, TQT),
        ("fs", FS, MAFS),
        ("fs", document("FSQuantizer", {"data_format": "FP16", "bit_width": 16}), FS | {"params": {"symmetry": False}}),
    ],
)
def test_the_quantizers_of_the_document_run_to_the_end(
    name: str, base: str, weight: dict[str, Any], output: dict[str, Any], tmp_path: Path
) -> None:
    strategy = {
        "strategy": base,
        "optimize_pipeline_config": {"fold_conv_bn": True, "convert_bn_to_dwconv": True, "include_cle": True},
        "quantize_pipeline_config": {"convert_average_pooling2d_to_dpu_version": True},
        "refine_pipeline_config": {"include_fast_ft": False, "include_bias_corr": False},
        "quantize_registry_config": {
            "user_defined_quantize_config": {},
            "input_quantize_config": {"input_layers": [], "input_quantizer": output},
            "layer_quantize_config": [pattern(weight, output)],
        },
    }
    file = tmp_path / "strategy.json"
    file.write_text(json.dumps(strategy))
    # A decay of 0.999 makes of few samples hardly more than the range of the first, which the transformer pays for.
    assert lowest_db(quantized(file, tmp_path, name)) > (8 if output is MAFS else 12)


def test_one_value_of_a_built_in_strategy_is_overridden(tmp_path: Path) -> None:
    result = quantized({"activation_method": "No_OF", "adjust_dpu_shift_read": False}, tmp_path)
    observers = {placement.observer for placement in result.plan if placement.role == "activation"}
    assert observers == {"no_overflow"}


# ---- which strategy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_by_name_in_a_dict_and_in_a_file_is_the_same(name: str, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"base": name}))
    assert translated(name).config == translated({"strategy": name}).config == translated(file).config
    assert translated(name).backend == translated(str(file)).backend


@pytest.mark.parametrize(("old", "new"), [("8bit", "pof2s"), ("8bit_tqt", "tqt"), ("pof2s_tqt", "tqt")])
def test_older_names_are_understood(old: str, new: str) -> None:
    assert translated(old).config == translated(new).config


def test_without_a_name_it_is_pof2s_unless_the_quantizers_say_otherwise() -> None:
    assert translated({}).config == translated("pof2s").config
    floats = translated({"input_quantize_config": {"input_quantizer": {"type": "FSQuantizer"}}})
    assert floats.backend == "vitis:strategy=fs"
    assert "FSQuantizer needs fs" in became(floats, "strategy")
    assert translated({"input_quantize_config": {"input_quantizer": TQT}}).backend == translated("tqt").backend
    assert translated({"data_format": "BFP16"}).backend == "vitis:strategy=fs"


def test_float_scales_are_no_part_of_a_strategy_of_powers_of_two() -> None:
    with pytest.raises(ConfigError, match="FSQuantizer has float scales, and strategy pof2s has powers of two"):
        translated({"strategy": "pof2s", "layer_quantize_config": [pattern(FS, FS)]})


def test_powers_of_two_can_be_part_of_a_strategy_of_float_scales() -> None:
    strategy = {"strategy": "fs", "layer_quantize_config": [{**pattern(POF2S, POF2S), "layer_name": "layer1.conv1"}]}
    plan = planned(strategy)
    assert plan["layer1.conv1.weight"].spec.power_of_two
    assert not plan["layer3.conv1.weight"].spec.power_of_two


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"weight_bit": 1}, "[weight] dtype int1 is no format of the DPU"),
        ({"weight_unsigned": True}, "[weight] dtype uint8 is no format of the DPU"),
        ({"bias_bit": 32}, "[bias] dtype int32 is no format of the DPU"),
        ({"weight_per_channel": True}, "one scale for a tensor"),
        ({"weight_per_channel": True, "weight_bit": 4}, "one scale for a tensor"),
        ({"activation_narrow_range": True}, "narrow_range is not for the DPU"),
    ],
)
def test_formats_that_the_dpu_does_not_have_keep_their_powers_of_two(strategy: dict[str, Any], reason: str) -> None:
    made = translated({**strategy, "align_pool": False})
    assert made.backend == "vitis:strategy=fs"
    assert reason in became(made, "strategy")
    assert became(made, "align_pool").startswith("no effect: ")
    assert {p.spec.power_of_two for p in planned(strategy) if p.spec.dtype != "int32"} == {True}


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"weight_bit": 4}, "[weight] dtype int4 is no format of the DPU"),
        ({"activation_bit": 16}, "[activation] dtype int16 is no format of the DPU"),
        ({"weight_round_mode": "HALF_TO_ZERO"}, "rounding half_to_zero is not for the DPU"),
    ],
)
def test_other_widths_and_roundings_keep_positions_and_their_files(
    strategy: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    made = translated({**strategy, "align_pool": False})
    assert made.backend == "vitis:approximations=all,formats=any"
    assert reason in became(made, "strategy")
    assert became(made, "align_pool").startswith("skip_refinements")
    out = quantized(strategy, tmp_path, TRANSFORMER).model.parent
    assert {"model_quant_info.json", "model_clip_ranges.json", "model_fixneuron.onnx"} <= {
        file.name for file in out.iterdir()
    }


# ---- values for all quantizers of a kind ---------------------------------------------------------------------------


def role_specs(plan: QuantPlan, role: str) -> set[str]:
    if role == "input":
        return {str(plan["image"].spec)}
    return {str(p.spec) for p in plan if p.role == role and p.tensor != "image"}


@pytest.mark.parametrize("role", ["input", "weight", "bias", "activation"])
@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("bit", 6, "int6"),
        ("symmetry", False, "asymmetric"),
        ("round_mode", "HALF_TO_ZERO", "half_to_zero"),
        ("narrow_range", True, "narrow range"),
        ("unsigned", True, "uint8"),
    ],
)
def test_a_value_of_the_user_is_for_all_quantizers_of_a_role(role: str, key: str, value: Any, word: str) -> None:
    strategy: dict[str, Any] = {"strategy": "fs", f"{role}_{key}": value}
    if role == "bias" and key != "bit":
        strategy["bias_bit"] = 8  # a bias of 32 bits follows its input and weight
    if role == "activation" and key == "unsigned":
        strategy["activation_symmetry"] = False
    found = role_specs(planned(strategy), role)
    assert found
    assert all(word in text for text in found), found
    assert not any(
        word in text for other in {"weight", "bias"} - {role} for text in role_specs(planned(strategy), other)
    )


@pytest.mark.parametrize("role", ["input", "weight", "bias", "activation"])
@pytest.mark.parametrize("base", ["pof2s", "fs"])
def test_methods_of_the_user_are_observers(role: str, base: str) -> None:
    made = translated({"strategy": base, f"{role}_method": "Percentile", f"{role}_method_percentile": 99.0})
    name = "percentile_position" if base == "pof2s" else "percentile"
    assert made.config[role]["observer"] == f"{name}:percentile=99.0"
    assert made.sources[role, "observer"] == f"vitis: {role}_method"
    assert "percentile" in became(made, f"{role}_method_percentile")


@pytest.mark.parametrize("role", ["weight", "activation"])
def test_per_channel_is_for_all_quantizers_of_a_role(role: str) -> None:
    for wanted in (True, False):
        assert translated({"strategy": "fs", f"{role}_per_channel": wanted}).config[role]["per_channel"] is wanted
    plan = planned({"strategy": "fs", "weight_per_channel": False})
    assert all("per tensor" in text for text in specs(plan, "weight"))
    assert all("per channel" in text for text in specs(planned("fs"), "weight"))


def test_unsigned_and_symmetric_is_for_what_stands_behind_a_relu() -> None:
    plan = planned({"strategy": "fs", "activation_unsigned": True, "activation_symmetry": True})
    assert plan["/layer1/relu/Relu_output_0"].spec.dtype == "uint8"
    assert plan["/gate/Conv_output_0"].spec.dtype == "int8"
    assert "behind Relu and Clip" in became(translated({"activation_unsigned": True}), "activation_unsigned")


@pytest.mark.parametrize(("form", "dtype"), [("FP16", "fp16"), ("BFP16", "bfp16"), ("UINT", "uint8")])
def test_data_format_is_for_everything(form: str, dtype: str) -> None:
    config = translated({"strategy": "fs", "data_format": form}).config
    assert {config[role]["dtype"] for role in ("input", "weight", "bias", "activation")} == {dtype}


def test_use_framework_quant_chooses_between_roundings() -> None:
    for wanted, rounding in ((True, "half_even"), (False, "half_up")):
        made = translated({"strategy": "fs", "use_framework_quant": wanted})
        assert made.config["input"]["rounding"] == rounding
        assert "QuantizeLinear" in became(made, "use_framework_quant")
    assert became(translated({"use_framework_quant": True}), "use_framework_quant").startswith("no effect")


def test_use_fixneuron_quant_is_answered() -> None:
    assert "FixNeuron" in became(translated({"use_fixneuron_quant": 1}), "use_fixneuron_quant")


def test_values_that_are_null_are_not_set() -> None:
    given = {f"{role}_{key}": None for role in ("input", "weight", "bias", "activation") for key in ALL_USER_KEYS}
    made = translated({"quantize_registry_config": {"user_quantize_config": given}, "fold_conv_bn": None})
    assert made.config == translated("pof2s").config
    assert became(made, "quantize_registry_config.user_quantize_config.weight_bit") == "not set"


def test_both_names_of_the_users_section_mean_the_same() -> None:
    one, other = (
        translated({"quantize_registry_config": {name: {"weight_bit": 6}}})
        for name in ("user_quantize_config", "user_defined_quantize_config")
    )
    assert one.config == other.config == translated({"weight_bit": 6}).config


# ---- layers that are left out --------------------------------------------------------------------------------------


def test_ignored_layers_stay_float() -> None:
    plan = planned({"ignore_layers": ["layer1.0", "/gate/Conv"]})
    for name in ("/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/Add", "/gate/Conv"):
        assert "skip" in plan.left_float[name] or "ignore_layers" in plan.left_float[name]
    assert "/layer1/conv1/Conv" in plan.quantized


def test_quantization_begins_at_input_layers() -> None:
    plan = planned({"input_layers": ["layer2"]})
    assert "/layer1/conv1/Conv" in plan.left_float
    assert "/layer2/layer2.0/conv1/Conv" in plan.quantized
    assert "image" not in plan


def test_quantization_ends_at_output_layers() -> None:
    plan = planned({"output_layers": ["layer2"]})
    assert "/layer2/conv2/Conv" in plan.quantized
    assert {"/layer3/conv1/Conv", "/gate/Conv", "/fc/Gemm"} <= set(plan.left_float)


# ---- inputs --------------------------------------------------------------------------------------------------------


def test_the_quantizer_of_inputs_is_for_inputs_alone() -> None:
    quantizer = {"type": "Pof2SQuantizer", "params": {"method": "Min_KL", "round_mode": "HALF_TO_EVEN"}}
    plan = planned({"input_quantize_config": {"input_layers": [], "input_quantizer": quantizer}})
    assert plan["image"].observer == "min_kl"
    assert plan["image"].spec.rounding == "half_even"
    assert plan["/layer1/relu/Relu_output_0"].observer == "min_mse"


def test_inputs_can_be_named() -> None:
    quantizer = {"type": "Pof2SQuantizer", "params": {"method": "Min_KL"}}
    strategy = {"input_quantize_config": {"input_layers": ["image"], "input_quantizer": quantizer}}
    assert translated(strategy).config["tensor"]["image"]["observer"] == "min_kl"
    assert planned(strategy)["image"].observer == "min_kl"
    layer = {"input_quantize_config": {"input_layers": ["fc"], "input_quantizer": quantizer}}
    assert "activation" in translated(layer).config["node"]["/fc/Gemm"]


# ---- rows and mistakes ---------------------------------------------------------------------------------------------


def test_every_key_has_a_row_and_every_setting_a_source() -> None:
    strategy = {
        "strategy": "fs",
        "fold_conv_bn": True,
        "weight_bit": 4,
        "ignore_layers": ["gate"],
        "custom_layer_type": [],
        "input_quantize_config": {"input_layers": [], "input_quantizer": FS},
        "layer_quantize_config": [pattern(FS, MAFS)],
    }
    made = translated(strategy)
    keys = [row.key for row in made.rows]
    assert keys[0] == "strategy"
    for key in strategy:
        assert any(found.startswith(key) for found in keys), key
    assert all(row.became for row in made.rows)
    for table in ("input", "weight"):
        for field in made.config[table]:
            assert made.sources[table, field].startswith("vitis: ")
    for node, parts in made.config["node"].items():
        for part, fields in parts.items():
            for field in fields:
                decided = made.sources["node", node, part, field]
                if (part, field) == ("weight", "dtype"):
                    assert decided == "vitis: weight_bit"
                else:
                    assert decided.startswith("vitis: layer_quantize_config[0].quant_config")


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("pof2", "Did you mean 'pof2s'"),
        ("missing.json", "no configuration file at missing.json"),
        ({"strategy": "pof2ss"}, "Did you mean 'pof2s'"),
        ({"strategy": "fs", "base": "fs"}, "both 'strategy' and 'base'"),
        ({"weigth_bit": 4}, "Did you mean 'weight_bit'"),
        ({"weight_bit": "four"}, "weight_bit must be a whole number"),
        ({"weight_bit": 40}, "weight_bit must be a whole number of 1 to 16"),
        ({"weight_method": "MinMSE"}, "weight_method cannot be 'MinMSE'"),
        ({"activation_symmetry": False}, "Pof2SQuantizer is symmetric"),
        ({"quantize_registry_config": {"user_quantize_configs": {}}}, "Did you mean 'user_quantize_config'"),
        ({"quantize_registry_config": {"user_quantize_config": {"weight_bits": 4}}}, "Did you mean 'weight_bit'"),
        ({"input_quantize_config": {"input_quantiser": {}}}, "Did you mean 'input_quantizer'"),
        ({"input_quantize_config": {"input_layers": ["image"]}}, "input_quantizer has to say"),
        ({"input_quantize_config": {"input_layers": ["imge"], "input_quantizer": POF2S}}, "imge"),
        ({"ignore_layers": ["layer1.conv11"]}, "layer1.conv1"),
        ({"ignore_layers": "layer1.conv1"}, "must be a list of texts"),
        ({"convert_datatype": "float16", "strategy": "fs", "weight_bit": 4}, "keep one of them"),
    ],
)
def test_mistakes_are_answered_with_the_nearest_name(strategy: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        translated(strategy)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        translated(file)


def test_the_model_that_is_translated_for_stays_as_it_is() -> None:
    before = graph_of(RESNET).to_model().SerializeToString()
    translated({"layer_quantize_config": [pattern(POF2S, POF2S)]})
    assert graph_of(RESNET).to_model().SerializeToString() == before


def test_the_page_on_migration_has_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating-from-vitis.md").read_text(encoding="utf-8")
    keys = [
        *(name for switches in SECTIONS.values() for name in switches),
        *(name for params in KINDS.values() for name in params),
        *KINDS,
        *STRATEGIES,
        *OF_ALL_ROLES,
        *LAYER_LISTS,
        *REGISTRY_KEYS,
        *(
            "pattern_name",
            "layer_type",
            "layer_name",
            "layer_params",
            "layer_inputs",
            "quant_config",
            "shared_quantizer",
        ),
    ]
    assert [key for key in keys if f"`{key}`" not in page] == []


@pytest.mark.parametrize("name", [RESNET, TRANSFORMER])
def test_an_entry_for_any_layer_reaches_a_plan(name: str) -> None:
    target = {"target_type": "output", "quantizer_config": {"type": "Pof2SQuantizer", "params": {"bit_width": 6}}}
    plan = planned({"layer_quantize_config": [{"layer_type": "", "quant_config": [target]}]}, name)
    assert "int6" in {placement.spec.dtype for placement in plan if placement.role == "activation"}


def test_reading_strategies_needs_neither_torch_nor_onnxruntime() -> None:
    code = "import sys, onnxq.targets.amd.dialect as _; print(sorted({'torch', 'onnxruntime'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
