"""extra_qconfig_dict: every key changes the plan or the parameters as MQBench's document says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxq.errors import ConfigError, OnnxqError
from onnxq.types import PerChannel, PerTensor
from tests.compat.mqbench_plans import (
    ACTIVATION_SCHEME,
    SCHEME,
    SCHEMES,
    activations,
    became,
    planned,
    qconfig,
    quantized,
    translated,
    weight_of,
)

OBSERVERS = {
    "MinMaxObserver": "minmax",
    "EMAMinMaxObserver": "ema_minmax",
    "MinMaxFloorObserver": "minmax_floor",
    "EMAMinMaxFloorObserver": "ema_minmax_floor",
    "EMAQuantileObserver": "ema_quantile",
    "ClipStdObserver": "clip_std",
    "LSQObserver": "lsq",
    "MSEObserver": "mse",
    "EMAMSEObserver": "ema_mse",
    "PoTModeObserver": "pot_mode",
    "KLDObserver": "kl",
}
FAKE_QUANTIZERS = {
    "FixedFakeQuantize": "fixed",
    "LearnableFakeQuantize": "lsq_plus",
    "DoReFaFakeQuantize": "dorefa",
    "DSQFakeQuantize": "dsq",
    "TqtFakeQuantize": "tqt",
    "AdaRoundFakeQuantize": "adaround",
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_an_observer_of_activations_is_in_the_plan(name: str) -> None:
    plan = planned(qconfig(a_observer=name))
    assert {item.observer.partition(":")[0] for item in activations(plan)} == {OBSERVERS[name]}


@pytest.mark.parametrize("name", ["MSEObserver", "ClipStdObserver", "LSQObserver"])
def test_an_observer_of_weights_is_in_the_plan(name: str) -> None:
    assert weight_of(planned(qconfig(w_observer=name))).observer == OBSERVERS[name]


def test_observers_change_the_parameters(tmp_path: Path) -> None:
    schemes = {"w_qscheme": {**SCHEME, "bit": 6}, "a_qscheme": ACTIVATION_SCHEME}  # few bits, where clipping pays
    plain = quantized(qconfig(**schemes), tmp_path / "plain", "Academic").qparams
    extra = qconfig(**schemes, w_observer="MSEObserver", a_observer="ClipStdObserver")
    result = quantized(extra, tmp_path / "given", "Academic", minimum_sqnr_db=5.0)  # 5.9 dB, on eight samples
    changed = [name for name in plain.entries if (plain[name].scale != result.qparams[name].scale).any()]
    assert {result.plan[name].role for name in changed} == {"weight", "activation"}


def test_arguments_reach_the_observer_that_is_named() -> None:
    extra = qconfig(a_observer="EMAMinMaxObserver", a_observer_extra_args={"ema_ratio": 0.75})
    assert {item.observer for item in activations(planned(extra))} == {"ema_minmax:decay=0.75"}
    extra = qconfig(w_observer="ClipStdObserver", w_observer_extra_args={"std_scale": 3})
    assert weight_of(planned(extra)).observer.startswith("clip_std:sigmas=3")


def test_arguments_without_a_name_are_for_the_observer_that_mqbench_has_there() -> None:
    translation = translated(qconfig(a_observer_extra_args={"ema_ratio": 0.5}))
    assert translation.config["activation"]["observer"] == "ema_minmax:decay=0.5"
    assert "EMAMinMaxObserver is the default of tensorrt" in became(
        translation, "extra_qconfig_dict.a_observer_extra_args.ema_ratio"
    )


def test_further_keys_of_a_scheme_are_arguments_and_the_extra_ones_win() -> None:
    scheme = {**ACTIVATION_SCHEME, "ema_ratio": 0.5}
    translation = translated(qconfig(a_observer="EMAMinMaxObserver", a_qscheme=scheme))
    assert translation.config["activation"]["observer"] == "ema_minmax:decay=0.5"
    both = qconfig(a_observer="EMAMinMaxObserver", a_qscheme=scheme, a_observer_extra_args={"ema_ratio": 0.25})
    translation = translated(both)
    assert translation.config["activation"]["observer"] == "ema_minmax:decay=0.25"
    assert became(translation, "extra_qconfig_dict.a_qscheme.ema_ratio").startswith("no effect")


def test_bins_of_a_quantile_observer_are_named_as_without_effect() -> None:
    arguments = {"threshold": 0.999, "bins": 2048}
    translation = translated(qconfig(a_observer="EMAQuantileObserver", a_observer_extra_args=arguments))
    assert translation.config["activation"]["observer"] == "ema_quantile:threshold=0.999"
    assert became(translation, "extra_qconfig_dict.a_observer_extra_args.bins").startswith("no effect")


@pytest.mark.parametrize("name", FAKE_QUANTIZERS)
def test_a_fake_quantizer_of_weights_is_in_the_plan(name: str) -> None:
    scheme = {**SCHEME, "per_channel": False}
    plan = planned(qconfig(w_fakequantize=name, **{**SCHEMES, "w_qscheme": scheme}), "Academic")
    assert weight_of(plan).fake_quantizer == FAKE_QUANTIZERS[name]


def test_parameters_of_a_fake_quantizer_limit_the_range(tmp_path: Path) -> None:
    plan = planned(qconfig(a_fakequantize="PACTFakeQuantize", a_fakeq_params={"alpha": 0.5}))
    assert {item.fake_quantizer for item in activations(plan)} == {"pact:alpha=0.5"}
    extra = qconfig(a_fakequantize="PACTFakeQuantize", a_fakeq_params={"alpha": 2.0})
    result = quantized(extra, tmp_path)
    highest = max(float(result.qparams[item.tensor].scale.max()) for item in activations(result.plan))
    assert highest == pytest.approx(2.0 / 127, rel=0.01)


def test_parameters_of_weights_reach_the_fake_quantizer_that_mqbench_has_there() -> None:
    translation = translated(qconfig(w_fakequantize="DSQFakeQuantize", w_fakeq_params={"alpha": 0.2}))
    assert translation.config["weight"]["fake_quantizer"] == "dsq:alpha=0.2"
    translation = translated(qconfig(w_fakeq_params={"scale": 2.0}))
    assert "fake_quantizer" not in translation.config.get("weight", {})
    translation = translated(qconfig(w_fakeq_params={"use_grad_scaling": False, "scale": 2.0}))
    assert translation.config["weight"]["fake_quantizer"] == "lsq_plus:use_grad_scaling=0"  # MQBench's for TensorRT
    translation = translated(qconfig(w_fakequantize="DSQFakeQuantize", w_fakeq_params={"use_grad_scaling": False}))
    assert became(translation, "extra_qconfig_dict.w_fakeq_params.use_grad_scaling").startswith("no effect")


@pytest.mark.parametrize("kind", ["LearnableFakeQuantize", "lsq"])
def test_gradients_of_learnt_scales_are_scaled_or_not_as_asked(kind: str) -> None:
    for asked, wanted in ((False, ":use_grad_scaling=0"), (True, "")):
        given = {"w_fakequantize": kind, "w_fakeq_params": {"use_grad_scaling": asked}}
        plan = planned(qconfig(**given), "SNPE")
        name = {"lsq": "lsq"}.get(kind, "lsq_plus")
        assert weight_of(plan).fake_quantizer == name + wanted
    with pytest.raises(ConfigError, match=r"w_fakeq_params\.use_grad_scaling is True or False, got 'no'"):
        translated(qconfig(w_fakequantize=kind, w_fakeq_params={"use_grad_scaling": "no"}))


def test_a_fake_quantizer_gets_the_format_that_it_needs_and_says_so() -> None:
    scheme = {"bit": 8, "symmetry": False, "per_channel": False, "pot_scale": False}
    extra = qconfig(w_fakequantize="TqtFakeQuantize", w_qscheme=scheme, a_qscheme=ACTIVATION_SCHEME)
    assert weight_of(planned(extra, "Academic")).spec.power_of_two
    rows = became(translated(extra, "Academic"), "extra_qconfig_dict.w_fakequantize")
    assert "power_of_two = True instead of the scheme's False" in rows
    assert "dtype = 'int8' instead of the scheme's 'uint8'" in rows


def test_a_logarithmic_fake_quantizer_is_refused_by_a_chip_without_it() -> None:
    with pytest.raises(OnnxqError, match="nnie8"):
        planned(qconfig(w_fakequantize="NNIEFakeQuantize"))


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"bit": 4}, "dtype", "int4"),
        ({"symmetry": False}, "dtype", "uint8"),
        ({"symmetry": False}, "symmetric", False),
        ({"per_channel": False}, "granularity", PerTensor()),
        ({"pot_scale": True}, "power_of_two", True),
        ({"symmetric_range": True}, "narrow_range", True),
        ({"ch_axis": 1}, "granularity", PerChannel(1)),
        ({"quant_min": -127, "quant_max": 127}, "narrow_range", True),
        ({"quant_min": 0, "quant_max": 15, "symmetry": False}, "dtype", "uint4"),
        ({"qscheme": "torch.per_tensor_affine"}, "dtype", "uint8"),
    ],
)
def test_every_key_of_a_weight_scheme_is_in_the_plan(change: dict[str, Any], field: str, value: Any) -> None:
    plain = weight_of(planned(qconfig(**SCHEMES), "Academic"))
    given = weight_of(planned(qconfig(**{**SCHEMES, "w_qscheme": {**SCHEME, **change}}), "Academic"))
    assert getattr(given.spec, field) == value != getattr(plain.spec, field)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"bit": 6}, "dtype", "int6"),
        ({"symmetry": False}, "dtype", "uint8"),
        ({"per_channel": True}, "granularity", PerChannel(1)),
        ({"pot_scale": True}, "power_of_two", True),
        ({"symmetric_range": True}, "narrow_range", True),
    ],
)
def test_every_key_of_an_activation_scheme_is_in_the_plan(change: dict[str, Any], field: str, value: Any) -> None:
    extra = qconfig(**{**SCHEMES, "a_qscheme": {**ACTIVATION_SCHEME, **change}})
    plan = planned(extra, "Academic")
    inside = plan["/layer3/relu/Relu_output_0"]
    assert getattr(inside.spec, field) == value


def test_the_first_and_the_last_layer_of_the_research_backend_keep_eight_bits() -> None:
    extra = qconfig(w_qscheme={**SCHEME, "bit": 4}, a_qscheme={**ACTIVATION_SCHEME, "bit": 4})
    plan = planned(extra, "Academic")
    assert weight_of(plan, "features.0.0.weight").spec.dtype == weight_of(plan, "fc.weight").spec.dtype == "int8"
    assert weight_of(plan).spec.dtype == "int4"


def test_what_a_scheme_leaves_out_has_the_default_of_a_scheme() -> None:
    extra = qconfig(w_qscheme={"bit": 8})
    assert weight_of(planned(None)).spec.granularity == PerChannel(0)
    assert weight_of(planned(extra)).spec.granularity == PerTensor()
    assert "the default of a scheme" in became(translated(extra), "extra_qconfig_dict.w_qscheme.per_channel")


@pytest.mark.parametrize("backend", ["Academic", "Academic_NLP"])
@pytest.mark.parametrize("left", ["w_qscheme", "a_qscheme"])
def test_research_backends_want_both_schemes(backend: str, left: str) -> None:
    with pytest.raises(ConfigError, match=f"give extra_qconfig_dict.{left}, such as"):
        translated(qconfig(**{key: value for key, value in SCHEMES.items() if key != left}), backend)
    with pytest.raises(ConfigError, match=r"give extra_qconfig_dict\.w_qscheme"):
        translated(None, backend)


def test_nnie_takes_observers_and_says_that_the_rest_has_no_effect() -> None:
    extra = qconfig(a_observer="MinMaxObserver", a_fakequantize="LearnableFakeQuantize", a_qscheme={"bit": 4})
    translation = translated(extra, "NNIE")
    assert translation.config == {"activation": {"observer": "minmax"}, "effort": 0}
    for key in ("a_fakequantize", "a_qscheme"):
        assert became(translation, f"extra_qconfig_dict.{key}").startswith("no effect: nnie has one number format")
    assert {item.spec.dtype for item in planned(extra, "NNIE")} == {"nnie8"}


def test_a_scheme_that_the_chip_cannot_take_is_refused_with_its_rule() -> None:
    with pytest.raises(OnnxqError, match=r"tensorrt|symmetric|zero point"):
        planned(qconfig(a_qscheme={"bit": 8, "symmetry": False}))


def test_arguments_that_mean_nothing_here_are_named() -> None:
    arguments = {"factory_kwargs": None, "dtype": "torch.qint8", "reduce_range": False, "pot_scale": True}
    translation = translated(qconfig(a_observer="MinMaxObserver", a_observer_extra_args=arguments))
    for key in ("factory_kwargs", "dtype", "reduce_range"):
        assert became(translation, f"extra_qconfig_dict.a_observer_extra_args.{key}").startswith("no effect")
    assert translation.config["activation"]["power_of_two"] is True


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"bit": 17}, "bit must be a whole number from 1 to 16, got 17"),
        ({"bit": True}, "bit must be a whole number"),
        ({"symmetry": "yes"}, "symmetry must be True or False, got 'yes'"),
        ({"ch_axis": 1}, "set per_channel to True"),
        ({"per_channel": True, "ch_axis": -1}, "per_channel is True"),
        ({"quant_min": 0}, "quant_min and quant_max belong together"),
        ({"quant_min": -3, "quant_max": 12}, "no format has the integers -3 .. 12"),
        ({"reduce_range": True}, "'bit' one smaller"),
        ({"qscheme": "per_tensor_afine"}, "Did you mean 'per_tensor_affine'"),
        ([8, True], "must hold keys and values"),
    ],
)
def test_a_scheme_that_makes_no_sense_is_an_error_with_the_remedy(scheme: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(qconfig(w_qscheme=scheme))


def test_keys_that_say_nothing_get_a_row_too() -> None:
    given = {
        "w_observer": None,
        "a_fakequantize": None,
        "a_fakeq_params": {},
        "w_observer_extra_args": {},
        "w_qscheme": None,
    }
    translation = translated(qconfig(**given))
    assert translation.config == {"effort": 0}
    for key in given:
        assert became(translation, f"extra_qconfig_dict.{key}").startswith("no effect")


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("w_fakequantize", "PACTFakeQuantize", "pact is about activations alone, so weights keep their whole range"),
        ("w_fakequantize", "QDropFakeQuantize", "qdrop is about activations alone"),
        ("a_fakequantize", "DoReFaFakeQuantize", "dorefa is about weights alone, and without training"),
        ("a_fakequantize", "AdaRoundFakeQuantize", "adaround is about weights alone, and without training"),
    ],
)
def test_a_fake_quantizer_of_the_other_role_is_taken_as_fixed_and_says_so(key: str, name: str, said: str) -> None:
    extra = qconfig(**{key: name, "w_qscheme": SCHEME})
    plan = planned(extra)
    placements = [weight_of(plan)] if key.startswith("w") else activations(plan)
    assert {item.fake_quantizer for item in placements} == {"fixed"}
    assert weight_of(plan).spec.granularity == PerChannel(0)
    assert said in became(translated(extra), f"extra_qconfig_dict.{key}")


def test_weights_of_openvino_keep_seven_bits_whatever_a_scheme_says() -> None:
    extra = qconfig(w_qscheme=SCHEME)
    assert weight_of(planned(None, "OPENVINO")).spec == weight_of(planned(extra, "OPENVINO")).spec
    assert became(translated(extra, "OPENVINO"), "extra_qconfig_dict.w_qscheme.bit").startswith("no effect: OPENVINO")
    academic = {**extra, "extra_quantizer_dict": {"academic_mode": True}}
    spec = weight_of(planned(academic, "OPENVINO")).spec
    assert (spec.dtype, spec.narrow_range) == ("int7", True)
    per_tensor = qconfig(w_qscheme={**SCHEME, "per_channel": False})
    assert weight_of(planned(per_tensor, "OPENVINO")).spec.granularity == PerTensor()
    assert weight_of(planned(extra, "openvino:weights=int8")).spec.dtype == "int8"


def test_the_row_says_where_tensors_have_another_format_than_the_scheme() -> None:
    four = {"w_qscheme": {**SCHEME, "bit": 4}, "a_qscheme": ACTIVATION_SCHEME}
    translation = translated(qconfig(**four), "Academic")
    key = "extra_qconfig_dict.{}_qscheme.bit"
    assert became(translation, key.format("w")) == "dtype = int4; 8 bits at the first and the last layer"
    assert became(translation, key.format("a")) == "dtype = int8"
    extra = qconfig(a_qscheme=ACTIVATION_SCHEME)
    assert {item.spec.dtype for item in activations(planned(extra, "OPENVINO"))} == {"int8", "uint8"}
    assert became(translated(extra, "OPENVINO"), key.format("a")) == "dtype = int8; uint8 where nothing is negative"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w_fakequantize": "FixdFakeQuantize"}, r"\.w_fakequantize: unknown .* Did you mean 'FixedFakeQuantize'"),
        ({"a_qscheme": {"symetry": True}}, "Did you mean 'symmetry'"),
        ({"a_observer": "MinMaxObservr"}, "Did you mean 'MinMaxObserver'"),
        ({"a_fakeq_params": [1]}, "a_fakeq_params must hold arguments and values"),
    ],
)
def test_typing_errors_are_found_on_nnie_as_well(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(qconfig(**given), "NNIE")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w_observer": 3}, r"^extra_qconfig_dict\.w_observer: a name or a class is expected, not 3"),
        ({"w_observer": "MSEObservr", "w_observer_extra_args": {"p": 2}}, r"^extra_qconfig_dict\.w_observer: unknown"),
        (
            {"a_observer": "MinMaxObserver", "a_observer_extra_args": {"ema_ratio": 0.5}},
            r"^extra_qconfig_dict\.a_observer_extra_args: observer 'minmax' has no parameter 'ema_ratio'",
        ),
        (
            {"a_observer": "MinMaxObserver", "a_observer_extra_args": {"name": "mse"}},
            r"^extra_qconfig_dict\.a_observer_extra_args: 'name' is no argument",
        ),
        (
            {"a_fakequantize": "PACTFakeQuantize", "a_fakeq_params": {"alhpa": 3}},
            r"^extra_qconfig_dict\.a_fakeq_params: .* Did you mean 'alpha'",
        ),
        (
            {"a_fakequantize": "PACTFakeQuantize", "a_fakeq_params": {"name": "fixed"}},
            r"^extra_qconfig_dict\.a_fakeq_params: 'name' is no argument",
        ),
    ],
)
def test_an_error_names_the_key_that_holds_the_mistake(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(qconfig(**given))


def test_rows_of_a_needed_format_show_the_name_that_was_given() -> None:
    translation = translated(qconfig(w_fakequantize="TqtFakeQuantize"))
    values = {row.value for row in translation.rows if row.key == "extra_qconfig_dict.w_fakequantize"}
    assert values == {"'TqtFakeQuantize'"}
