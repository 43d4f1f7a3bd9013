"""Every parameter of the four quantizers: what it becomes, which combinations are refused, typos in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxq.errors import ConfigError
from tests.targets.amd.vitis_runs import CONV, became, planned, quantized, translated, weight_of


def entry(kind: str, target: str = "weight", **params: Any) -> dict[str, Any]:
    """A strategy with one quantizer on one convolution, in the document's spelling."""
    quantizer = {"type": kind, "params": params}
    pattern = {"layer_name": "layer1.conv1", "layer_type": "Conv2D"}
    target_config = {
        "target_type": target,
        "target_name": "kernel" if target == "weight" else "",
        "quantizer_config": quantizer,
    }
    base = "fs" if kind in ("FSQuantizer", "MAFSQuantizer") else "pof2s"
    return {"strategy": base, "layer_quantize_config": [{**pattern, "quant_config": [target_config]}]}


def settings(strategy: dict[str, Any], part: str = "weight") -> dict[str, Any]:
    return dict(translated(strategy).config["node"][CONV][part])


@pytest.mark.parametrize("bits", range(1, 17))
def test_bit_width_is_the_number_of_bits(bits: int) -> None:
    assert settings(entry("FSQuantizer", bit_width=bits, data_format="INT"))["dtype"] == f"int{bits}"
    assert settings(entry("Pof2SQuantizer", bit_width=bits, data_format="UINT"))["dtype"] == f"uint{bits}"


def test_bits_alone_keep_the_sign_that_a_format_has() -> None:
    assert settings(entry("FSQuantizer", bit_width=4)) | {} == settings(
        entry("FSQuantizer", bit_width=4, unsigned=False)
    )


@pytest.mark.parametrize(("form", "dtype"), [("BFP16", "bfp16"), ("FP16", "fp16"), ("INT", "int8"), ("UINT", "uint8")])
def test_data_format_is_the_type(form: str, dtype: str) -> None:
    made = settings(entry("FSQuantizer", data_format=form))
    assert made["dtype"] == dtype
    assert weight_of(planned(entry("FSQuantizer", data_format=form)), "layer1.conv1").spec.dtype == dtype


@pytest.mark.parametrize(
    ("kind", "method", "observer"),
    [
        ("Pof2SQuantizer", "No_OF", "no_overflow"),
        ("Pof2SQuantizer", "Min_MSE", "min_mse"),
        ("Pof2SQuantizer", "Min_KL", "min_kl"),
        ("Pof2SQuantizer", "Percentile", "percentile_position"),
        ("TQTQuantizer", "No_OF", "no_overflow"),
        ("TQTQuantizer", "Min_MSE", "min_mse"),
        ("FSQuantizer", "No_OF", "minmax"),
        ("FSQuantizer", "Min_MSE", "mse"),
        ("FSQuantizer", "Min_KL", "kl"),
        ("FSQuantizer", "Percentile", "percentile:percentile=99.99"),
        ("MAFSQuantizer", "No_OF", "ema_minmax:decay=0.999"),
        ("MAFSQuantizer", "Min_MSE", "ema_mse:decay=0.999"),
        ("MAFSQuantizer", "Percentile", "ema_quantile:decay=0.999,threshold=0.9999"),
        ("FSQuantizer", 0, "minmax"),
        ("FSQuantizer", 1, "mse"),
        ("FSQuantizer", 2, "kl"),
        ("FSQuantizer", 3, "percentile:percentile=99.99"),
    ],
)
def test_method_is_the_observer(kind: str, method: str | int, observer: str) -> None:
    strategy = entry(kind, "output", method=method)
    assert settings(strategy, "output")["observer"] == observer
    assert observer in {placement.observer for placement in planned(strategy)}


def test_method_percentile_is_the_share_that_is_kept() -> None:
    made = settings(entry("FSQuantizer", "output", method="Percentile", method_percentile=99.5), "output")
    assert made["observer"] == "percentile:percentile=99.5"


def test_method_percentile_without_the_method_is_said_to_do_nothing() -> None:
    strategy = entry("FSQuantizer", "output", method="No_OF", method_percentile=99.5)
    row = became(translated(strategy), "layer_quantize_config[0].quant_config[0]")
    assert "method is No_OF, so method_percentile has no effect" in row


@pytest.mark.parametrize(
    ("mode", "rounding"),
    [
        ("HALF_TO_EVEN", "half_even"),
        ("HALF_UP", "half_up"),
        ("HALF_TO_ZERO", "half_to_zero"),
        ("HALF_AWAY_FROM_ZERO", "half_away"),
        (0, "half_even"),
        (1, "half_up"),
        (2, "half_away"),  # the tool's own enumeration, not the order of the document's list
        (3, "floor"),
    ],
)
def test_round_mode_is_the_rounding(mode: str | int, rounding: str) -> None:
    strategy = entry("Pof2SQuantizer", round_mode=mode)
    assert weight_of(planned(strategy), "layer1.conv1").spec.rounding == rounding


def test_the_frameworks_own_quantizer_rounds_as_quantize_linear_does() -> None:
    framework = entry("FSQuantizer", "output", round_mode="HALF_UP", use_framework_quantizer=True)
    own = entry("FSQuantizer", "output", round_mode="HALF_UP", use_framework_quantizer=False)
    assert settings(framework, "output")["rounding"] == "half_even"
    assert settings(own, "output")["rounding"] == "half_up"
    assert "rounds halves to even" in became(translated(framework), "layer_quantize_config[0].quant_config[0]")


@pytest.mark.parametrize(
    ("param", "value", "field", "wanted"),
    [
        ("symmetry", False, "symmetric", False),
        ("per_channel", True, "per_channel", True),
        ("per_channel", False, "per_channel", False),
        ("narrow_range", True, "narrow_range", True),
        ("unsigned", True, "dtype", "uint8"),
        ("epsilon", 1e-7, "minimum_scale", 1e-7),
    ],
)
def test_the_other_parameters_have_settings_of_their_own(param: str, value: Any, field: str, wanted: Any) -> None:
    strategy = entry("FSQuantizer", **{param: value})
    assert settings(strategy)[field] == wanted
    placed = weight_of(planned(strategy), "layer1.conv1")
    if field in ("symmetric", "narrow_range", "dtype"):
        assert getattr(placed.spec, field) == wanted
    if field == "per_channel":
        assert ("per channel" in str(placed.spec)) is wanted
    if field == "minimum_scale":
        assert placed.minimum_scale == wanted


@pytest.mark.parametrize(("axis", "onnx_axis"), [(-1, 0), (3, 0), (2, 1), (0, 2), (1, 3)])
def test_channel_axis_of_a_kernel_is_that_of_keras(axis: int, onnx_axis: int) -> None:
    plan = planned(entry("FSQuantizer", per_channel=True, channel_axis=axis))
    assert str(weight_of(plan, "layer1.conv1").spec.granularity) == f"per channel (axis {onnx_axis})"


def test_channel_axis_of_an_activation_counts_channels_last() -> None:
    made = settings(entry("FSQuantizer", "output", per_channel=True, channel_axis=-1), "output")
    assert made["channel_axis"] == 1
    assert settings(entry("FSQuantizer", "output", per_channel=True, channel_axis=1), "output")["channel_axis"] == 2


def test_a_channel_axis_without_channels_is_said_to_do_nothing() -> None:
    row = became(translated(entry("FSQuantizer", "output", channel_axis=2)), "layer_quantize_config[0].quant_config[0]")
    assert "per_channel is not set, so channel_axis has no effect" in row


def test_symmetric_numbers_without_a_sign_are_said_to_hold_nothing_negative() -> None:
    row = became(translated(entry("FSQuantizer", data_format="UINT")), "layer_quantize_config[0].quant_config[0]")
    assert "what is negative becomes 0" in row
    asymmetric = translated(entry("FSQuantizer", data_format="UINT", symmetry=False))
    assert "negative" not in became(asymmetric, "layer_quantize_config[0].quant_config[0]")


def test_ema_decay_is_the_decay_of_the_observer() -> None:
    made = settings(entry("MAFSQuantizer", "output", ema_decay=0.95), "output")
    assert made["observer"] == "ema_minmax:decay=0.95"


def test_a_moving_average_of_a_constant_is_the_constant() -> None:
    strategy = entry("MAFSQuantizer", ema_decay=0.9)
    assert settings(strategy)["observer"] == "minmax"
    assert "a constant is seen once" in became(translated(strategy), "layer_quantize_config[0].quant_config[0]")


def test_quantize_positions_are_limits_of_the_observer() -> None:
    made = settings(entry("Pof2SQuantizer", method="Min_MSE", min_quantize_pos=-3, max_quantize_pos=6))
    assert made["observer"] == "min_mse:max_position=6,min_position=-3"


def test_positions_above_twelve_are_kept_where_they_are_asked_for() -> None:
    assert "skip_refinements" not in translated(entry("Pof2SQuantizer", max_quantize_pos=12)).config
    lifted = translated(entry("Pof2SQuantizer", max_quantize_pos=20)).config
    assert lifted["skip_refinements"] == ["vitis_highest_position"]


def test_tqt_trains_its_threshold() -> None:
    placed = weight_of(planned(entry("TQTQuantizer", bit_width=8)), "layer1.conv1")
    assert placed.fake_quantizer == "tqt"
    assert placed.spec.power_of_two


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (entry("Pof2SQuantizer", symmetry=False), "Pof2SQuantizer is symmetric"),
        (entry("TQTQuantizer", symmetry=False), "TQTQuantizer is symmetric"),
        (entry("FSQuantizer", data_format="INT", unsigned=True), "unsigned true contradicts data_format INT"),
        (entry("FSQuantizer", unsigned=True, narrow_range=True), "this one has no sign"),
        (entry("Pof2SQuantizer", data_format="FP16"), "data_format FP16 is for FSQuantizer"),
        (entry("MAFSQuantizer", "output", method="Min_KL"), "no moving average of Min_KL"),
        (entry("FSQuantizer", bit_width=17), "must be a whole number of 1 to 16"),
        (entry("FSQuantizer", bit_width=32), "must be 1 to 16"),
        (entry("FSQuantizer", bit_width=0), "must be a whole number of 1 to 16"),
        (entry("FSQuantizer", bit_width="8"), "must be a whole number"),
        (entry("FSQuantizer", symmetry="yes"), "must be true or false"),
        (entry("FSQuantizer", per_channel=True, channel_axis=4), "channel_axis 4 is no axis of the weight"),
        (entry("Pof2SQuantizer", method="Percentile", min_quantize_pos=7, max_quantize_pos=6), "min_position"),
        (entry("Pof2SQuantizer", method="No_OF", min_quantize_pos=7, max_quantize_pos=6), "min_position"),
        (entry("FSQuantizer", bit_width=1, narrow_range=True), "narrow_range drops"),
    ],
)
def test_contradictions_are_refused_with_the_place(strategy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        translated(strategy)
    assert str(caught.value).startswith("layer_quantize_config[0].quant_config[0]")


@pytest.mark.parametrize(
    ("strategy", "near"),
    [
        (entry("Pof2Quantizer"), "Did you mean 'Pof2SQuantizer'"),
        (entry("FSQuantizer", bitwidth=8), "Did you mean 'bit_width'"),
        (entry("FSQuantizer", method="MinMSE"), "Did you mean 'Min_MSE'"),
        (entry("FSQuantizer", round_mode="HALF_TO_EVN"), "Did you mean 'HALF_TO_EVEN'"),
        (entry("FSQuantizer", data_format="UNIT"), "Did you mean 'UINT'"),
        (entry("FSQuantizer", ema_decay=0.9), "unknown key 'ema_decay'"),
        (entry("MAFSQuantizer", max_quantize_pos=6), "unknown key 'max_quantize_pos'"),
        (entry("FSQuantizer", method=7), "Known: No_OF"),
    ],
)
def test_typos_in_quantizers_are_answered_with_the_nearest_name(strategy: dict[str, Any], near: str) -> None:
    with pytest.raises(ConfigError, match=near):
        translated(strategy)


def test_both_spellings_of_a_quantizer_mean_the_same() -> None:
    document = entry("FSQuantizer", bit_width=4, use_framework_quantizer=True)
    shipped = entry("FSQuantizer")
    shipped["layer_quantize_config"][0]["quant_config"][0]["quantizer_config"] = {
        "quantizer_type": "FSQuantizer",
        "quantizer_params": {"bit_width": 4, "use_framework_quant": True},
    }
    assert translated(document).config == translated(shipped).config


def test_two_spellings_at_once_are_refused() -> None:
    strategy = entry("FSQuantizer")
    strategy["layer_quantize_config"][0]["quant_config"][0]["quantizer_config"]["quantizer_type"] = "FSQuantizer"
    with pytest.raises(ConfigError, match="both 'type' and 'quantizer_type'"):
        translated(strategy)


# ---- as the document prints them -----------------------------------------------------------------------------------

PRINTED = {
    "bit_width": 8,
    "data_format": "INT",
    "round_mode": "HALF_TO_EVEN",
    "symmetry": True,
    "per_channel": False,
    "channel_axis": -1,
    "unsigned": False,
    "narrow_range": False,
    "epsilon": 1e-7,
    "min_quantize_pos": -52,
    "max_quantize_pos": 52,
}
"""The parameters of Pof2SQuantizer, with one of each choice; methods are those of the test."""


@pytest.mark.parametrize("method", ["No_OF", "Min_MSE", "Min_KL", "Percentile"])
@pytest.mark.parametrize("target", ["weight", "output"])
def test_positions_as_printed_go_with_every_method(method: str, target: str, tmp_path: Path) -> None:
    printed = entry("Pof2SQuantizer", target, **PRINTED, method=method)
    assert "min_position=-52" in settings(printed, target)["observer"]
    without = {key: value for key, value in PRINTED.items() if not key.endswith("_pos")}
    scales = []
    for number, strategy in enumerate((printed, entry("Pof2SQuantizer", target, **without, method=method))):
        result = quantized(strategy, tmp_path / str(number))
        tensor = "layer1.conv1.weight" if target == "weight" else "/layer1/relu/Relu_output_0"
        scales.append(float(result.qparams[tensor].scale))
    assert scales[0] == scales[1]  # no position of this net is near the printed limits


def test_a_percentile_stays_within_its_positions(tmp_path: Path) -> None:
    params = {**PRINTED, "method": "Percentile", "min_quantize_pos": 0, "max_quantize_pos": 8}
    result = quantized(entry("Pof2SQuantizer", **params), tmp_path)
    assert float(result.qparams["layer1.conv1.weight"].scale) == 2.0**-8
