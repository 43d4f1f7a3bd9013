"""extra_qconfig_dict for the whole model: every key changes the plan, the backend's precision or the parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.errors import ConfigError
from onnxq.types import PerChannel, PerTensor
from tests.targets.sophgo.sophgo_plans import (
    SECOND,
    TRANSFORMER,
    activations,
    became,
    config,
    planned,
    quantized,
    table,
    translated,
    weight_of,
    weights,
)

SCHEME = {"bit": 8, "symmetry": True, "per_channel": False, "pot_scale": False}
BOTH = {"w_fakequantize": "E4M3FakeQuantize", "a_fakequantize": "E4M3FakeQuantize"}


def scheme(**changes: Any) -> dict[str, Any]:
    return {**SCHEME, **changes}


def test_observers_are_in_the_plan() -> None:
    plan = planned(config(w_observer="MSEObserver", a_observer="EMAMinMaxObserver"))
    assert {item.observer for item in weights(plan)} == {"mse"}
    observers = {item.observer.partition(":")[0] for item in activations(plan)}
    assert observers == {"ema_minmax", "fixed"}  # Sigmoid has a range that is known


def test_observers_change_the_parameters(tmp_path: Path) -> None:
    wide = quantized(config(a_observer="MinMaxObserver"), tmp_path / "wide")
    narrow = quantized(config(a_observer="EMAMinMaxObserver"), tmp_path / "narrow")
    assert wide.qparams["image"].scale > narrow.qparams["image"].scale


def test_arguments_of_observers_are_taken() -> None:
    plan = planned(config(a_observer="EMAMinMaxObserver", a_observer_extra_args={"ema_ratio": 0.5}))
    assert activations(plan)[0].observer == "ema_minmax:decay=0.5"
    plan = planned(config(w_observer="ClipStdObserver", w_observer_extra_args={"std_scale": 3.0}))
    assert weights(plan)[0].observer == "clip_std:sigmas=3.0"


def test_fake_quantizers_are_in_the_plan() -> None:
    plan = planned(config(w_fakequantize="AdaRoundFakeQuantize", a_fakequantize="QDropFakeQuantize"))
    assert {item.fake_quantizer for item in weights(plan)} == {"adaround"}
    assert {item.fake_quantizer for item in activations(plan)} == {"qdrop"}


def test_arguments_of_fake_quantizers_are_taken() -> None:
    plan = planned(config(a_fakequantize="PACTFakeQuantize", a_fakeq_params={"alpha": 4.0}))
    assert activations(plan)[0].fake_quantizer == "pact:alpha=4"
    plan = planned(config(w_fakequantize="DSQFakeQuantize", w_fakeq_params={"alpha": 0.2}))
    assert weights(plan)[0].fake_quantizer == "dsq:alpha=0.2"


@pytest.mark.parametrize(
    ("chip", "fake", "precision", "dtype"),
    [
        ("SG2260", "E4M3FakeQuantize", "F8E4M3", "fp8_e4m3"),
        ("BM1690", "E5M2FakeQuantize", "F8E5M2", "fp8_e5m2"),
        ("BM1684X", "Fp16FakeQuantize", "F16", "fp16"),
        ("CV183X", "BF16FakeQuantize", "BF16", "bf16"),
        ("SG2260", "FixedFakeQuantize", "INT8", "int8"),
    ],
)
def test_a_fake_quantizer_of_a_number_format_chooses_the_precision(
    chip: str, fake: str, precision: str, dtype: str
) -> None:
    given = config(chip, w_fakequantize=fake, a_fakequantize=fake)
    assert f"precision={precision}" in translated(given).backend
    assert {item.spec.dtype for item in weights(planned(given))} == {dtype}


@pytest.mark.parametrize(
    ("chip", "weight", "activation", "precision"),
    [
        ("BM1688", 8, 8, "INT8"),
        ("BM1688", 4, 8, "W4INT8"),
        ("BM1688", 4, 4, "INT4"),
        ("Academic", 4, 8, "W4INT8"),
    ],
)
def test_bits_choose_the_precision(chip: str, weight: int, activation: int, precision: str) -> None:
    given = config(chip, w_qscheme=scheme(bit=weight), a_qscheme=scheme(bit=activation))
    assert f"precision={precision}" in translated(given).backend
    assert weight_of(planned(given), SECOND).spec.bits == weight


def test_weights_alone_may_have_four_bits() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    plan = planned(config("BM1684X", quant=quant, w_qscheme=scheme(bit=4)), TRANSFORMER)
    assert {item.spec.dtype for item in weights(plan)} == {"int4"}


def test_symmetry_of_activations_is_an_option_of_the_backend() -> None:
    given = config(a_qscheme=scheme(symmetry=False))
    assert "asymmetric=yes" in translated(given).backend
    assert not any(item.spec.symmetric for item in activations(planned(given)))


def test_per_channel_changes_weights() -> None:
    many, one = planned(config(w_qscheme=scheme(per_channel=True))), planned(config(w_qscheme=SCHEME))
    assert weight_of(many, SECOND).spec.granularity == PerChannel(0)
    assert weight_of(one, SECOND).spec.granularity == PerTensor()


def test_one_scale_of_a_convolution_is_written_for_every_channel(tmp_path: Path) -> None:
    result = quantized(config(w_qscheme=SCHEME, a_qscheme=SCHEME), tmp_path)
    rows = [line.split() for line in table(result, "cali_table").partition("#weight_scale")[2].splitlines()[1:]]
    scales = {name: numbers[1 : 1 + int(numbers[0])] for name, *numbers in rows}
    name = "/layer2/bn2/BatchNormalization_output_0_Conv_weight"
    channels = onnxq.load(result.model.with_name("model_deploy_model.onnx")).values("layer2.conv2.weight").shape[0]
    assert channels > 1
    assert len(scales[name]) == channels  # tpu-mlir reads one for every channel
    assert [float(scale) for scale in scales[name]] == pytest.approx(
        [float(result.qparams["layer2.conv2.weight"].scale)] * channels, rel=1e-6
    )
    assert all(len(scale) == 1 for name, scale in scales.items() if name.endswith("Gemm_weight"))


@pytest.mark.parametrize("letter", ["w", "a"])
def test_a_power_of_two_scale_is_one(letter: str, tmp_path: Path) -> None:
    result = quantized(config(**{f"{letter}_qscheme": scheme(pot_scale=True)}), tmp_path)
    name = "image" if letter == "a" else weight_of(result.plan, SECOND).tensor
    exponent = np.log2(result.qparams[name].scale.astype(np.float64))
    assert np.array_equal(exponent, np.round(exponent))


def test_a_symmetric_range_of_weights_drops_the_lowest_integer() -> None:
    assert weight_of(planned(config(w_qscheme=scheme(symmetric_range=True))), SECOND).spec.qmin == -127
    assert weight_of(planned(config(w_qscheme=SCHEME)), SECOND).spec.qmin == -128
    assert weight_of(planned(config("CV181X", w_qscheme=SCHEME)), SECOND).spec.qmin == -127  # the chip's own


def test_rows_about_symmetry_say_what_is_so() -> None:
    ints = translated(config(w_qscheme=SCHEME, a_qscheme=scheme(symmetry=False)))
    assert became(ints, "extra_qconfig_dict.w_qscheme.symmetry") == "zero point 0, which weights have on every chip"
    assert became(ints, "extra_qconfig_dict.a_qscheme.symmetry") == "option asymmetric=yes of the backend"
    float8 = translated(config("SG2260", **BOTH, a_qscheme=scheme(symmetry=False)))
    assert "asymmetric" not in float8.backend
    assert became(float8, "extra_qconfig_dict.a_qscheme.symmetry") == "no effect: F8E4M3 has no zero point"


def test_integers_by_their_ends_say_both_what_they_set() -> None:
    translation = translated(config(w_qscheme=scheme(quant_min=-127, quant_max=127)))
    row = became(translation, "extra_qconfig_dict.w_qscheme.quant_min")
    assert row == "option precision=INT8 of the backend, narrow_range = true"


@pytest.mark.parametrize("key", ["w_qscheme", "a_qscheme"])
def test_a_scheme_that_is_nothing_has_a_row(key: str) -> None:
    assert became(translated(config(**{key: None})), f"extra_qconfig_dict.{key}").startswith("no effect")


def test_weight_only_says_that_what_is_about_activations_has_no_effect() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    translation = translated(config(quant=quant, a_observer="MSEObserver", a_qscheme=SCHEME), TRANSFORMER)
    assert "activation" not in translation.config
    for key in ("a_observer", "a_qscheme.bit"):
        assert became(translation, f"extra_qconfig_dict.{key}").startswith("no effect: quantmode weight_only")


def test_a_scheme_of_a_float8_model_leaves_the_format_to_the_fake_quantizer() -> None:
    translation = translated(config("SG2260", **BOTH, w_qscheme=SCHEME, a_qscheme=SCHEME))
    assert "precision=F8E4M3" in translation.backend
    assert "dtype" not in translation.config["weight"]
    assert "F8E4M3" in became(translation, "extra_qconfig_dict.w_qscheme.bit")


@pytest.mark.parametrize(
    ("chip", "qconfig", "message"),
    [
        ("BM1688", {"w_observr": "MinMaxObserver"}, "Did you mean 'w_observer'"),
        ("BM1688", {"w_observer": "MinMaxObsever"}, "Did you mean 'MinMaxObserver'"),
        ("BM1688", {"a_fakequantize": "LearnableFakeQuantise"}, "Did you mean 'LearnableFakeQuantize'"),
        ("BM1688", {"w_qscheme": {"bits": 8}}, "Did you mean 'bit'"),
        ("BM1688", {"w_qscheme": {"bit": "eight"}}, "w_qscheme.bit"),
        ("BM1688", {"w_qscheme": scheme(bit=6)}, "Bits of weights and activations go together as 8 and 8"),
        ("BM1688", {"a_qscheme": scheme(bit=4)}, "w_qscheme.bit 8 with a_qscheme.bit 4"),
        ("BM1688", {"w_qscheme": scheme(symmetry=False)}, "Set symmetry to True"),
        ("BM1688", {"a_qscheme": scheme(symmetric_range=True)}, "a_qscheme.symmetric_range"),
        ("BM1688", {"w_fakequantize": "NNIEFakeQuantize"}, "another vendor"),
        ("BM1688", {"w_fakequantize": "GPTQFakeQuantize"}, "onnxq has no fake-quantizer"),
        ("BM1684X", {"w_qscheme": scheme(bit=4)}, "BM1684X has no operators with weights of 4 bits"),
        ("BM1684X", {"w_qscheme": scheme(bit=4), "a_qscheme": scheme(bit=4)}, "activations of 4 bits exist on BM1688"),
        ("BM1684X", BOTH, "Chips with F8E4M3: SG2260, BM1690, Academic"),
        ("SG2260", {"w_fakequantize": "E4M3FakeQuantize"}, "Give the same fake-quantizer in both places"),
        ("SG2260", {**BOTH, "a_fakequantize": "E5M2FakeQuantize"}, "F8E4M3 and a_fakequantize for F8E5M2"),
        ("SG2260", {**BOTH, "w_qscheme": scheme(bit=4)}, "w_qscheme.bit is 4, but F8E4M3 has 8 bits"),
        ("CV181X", {"a_qscheme": scheme(symmetry=False)}, "asymmetric=yes is not possible"),
        ("CV181X", {"w_qscheme": scheme(symmetric_range=False)}, "CV181X has weights in [-127, 127] only"),
        ("BM1688", {"a_qscheme": scheme(per_channel=True)}, "a_qscheme: activations have one scale"),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy(chip: str, qconfig: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        translated(config(chip, **qconfig))
    assert message in str(failure.value)


def test_float8_weights_alone_do_not_exist() -> None:
    quant = {"quantmode": "weight_only", "strategy": "Transformer"}
    with pytest.raises(ConfigError, match="F8E4M3 is neither"):
        translated(config("SG2260", quant=quant, w_fakequantize="E4M3FakeQuantize"), TRANSFORMER)
