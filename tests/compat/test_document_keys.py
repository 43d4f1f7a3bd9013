"""Every key that the documents of MQBench, Sophgo-mq and Vitis AI print: pages name it, calibration obeys it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxq.compat import Translation
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.graph import Graph
from onnxq.session.prepare import prepare
from onnxq.session.session import open_session
from onnxq.types import PerChannel, Placement, QParams, QuantPlan
from tests.compat import mqbench_plans as mqbench
from tests.compat.printed_keys import FAKE_QUANTIZERS, OBSERVERS, SCHEME_KEYS, VITIS_QUANTIZERS
from tests.compat.test_mqbench_borders import deconvolution, linear_and_norm, plan_for
from tests.networks.exported import exported, samples
from tests.targets.amd import vitis_runs as vitis
from tests.targets.amd.vitis_runs import FLOAT_SCALES, one_quantizer
from tests.targets.sophgo import sophgo_plans as sophgo
from tests.zoo_graphs.net import Net

# ---- what calibration makes of them ------------------------------------------------------------------------------


def calibrated(translation: Translation, network: str = mqbench.RESNET) -> tuple[QuantPlan, Any]:
    """The plan, and the parameters after all stages but the writing of files."""
    session = open_session(exported(network), backend=translation.backend, data=samples(network), config=translation)
    session.open_data()
    plan = session.plan()
    found = session.find_parameters(plan, session.gather(plan)).state
    return found.plan, found.qparams


# ---- MQBench -----------------------------------------------------------------------------------------------------

INSIDE, WEIGHT = "/layer3/relu/Relu_output_0", "layer3.conv1.weight"
FEW_BITS = {"w_qscheme": {**mqbench.SCHEME, "bit": 4}, "a_qscheme": {**mqbench.ACTIVATION_SCHEME, "bit": 4}}


def mqbench_scale(letter: str, observer: str, **arguments: float) -> np.ndarray:
    given = {f"{letter}_observer": observer, f"{letter}_observer_extra_args": arguments}
    plan, qparams = calibrated(mqbench.translated(mqbench.qconfig(**FEW_BITS, **given), "Academic"))
    tensor = WEIGHT if letter == "w" else INSIDE
    assert plan[tensor].observer.partition(":")[0] != "minmax" or observer == "MinMaxObserver"
    return np.asarray(qparams[tensor].scale, np.float64)


@pytest.mark.parametrize("observer", OBSERVERS[1:])
def test_each_observer_of_mqbench_finds_ranges_of_its_own(observer: str) -> None:
    usual, given = mqbench_scale("a", "MinMaxObserver"), mqbench_scale("a", observer)
    assert not np.array_equal(usual, given)
    if "Floor" in observer:
        assert np.array_equal(np.log2(given), np.floor(np.log2(given)))


@pytest.mark.parametrize(
    ("observer", "arguments"),
    [("MinMaxFloorObserver", {}), ("ClipStdObserver", {"std_scale": 1.0}), ("LSQObserver", {}), ("MSEObserver", {})],
)
def test_each_observer_of_mqbench_finds_ranges_of_weights(observer: str, arguments: dict[str, float]) -> None:
    assert not np.array_equal(mqbench_scale("w", "MinMaxObserver"), mqbench_scale("w", observer, **arguments))


ROLES = {
    "FixedFakeQuantize": ("fixed", "fixed"),
    "LearnableFakeQuantize": ("lsq_plus", "lsq_plus"),
    "DoReFaFakeQuantize": ("dorefa", "fixed"),
    "DSQFakeQuantize": ("dsq", "dsq"),
    "PACTFakeQuantize": ("fixed", "pact"),
    "TqtFakeQuantize": ("tqt", "tqt"),
    "AdaRoundFakeQuantize": ("adaround", "fixed"),
}
"""MQBench's name -> what is planned for weights and for activations."""


def test_every_fake_quantizer_of_the_list_has_a_test() -> None:
    assert {*ROLES, "NNIEFakeQuantize"} == set(FAKE_QUANTIZERS)  # nnie: a format that NNIE alone takes


@pytest.mark.parametrize(("name", "planned"), ROLES.items())
def test_each_fake_quantizer_of_mqbench_is_planned_where_it_is_given_and_nowhere_else(
    name: str, planned: tuple[str, str]
) -> None:
    schemes = {"w_qscheme": mqbench.ACTIVATION_SCHEME, "a_qscheme": mqbench.ACTIVATION_SCHEME}
    for letter, tensor, other, own in (("w", WEIGHT, INSIDE, planned[0]), ("a", INSIDE, WEIGHT, planned[1])):
        plan = mqbench.planned(mqbench.qconfig(**schemes, **{f"{letter}_fakequantize": name}), "Academic")
        assert plan[tensor].fake_quantizer.partition(":")[0] == own
        assert plan[other].fake_quantizer == "fixed"
        assert plan[tensor].spec.power_of_two is (name == "TqtFakeQuantize")


@pytest.mark.parametrize("letter", ["w", "a"])
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"bit": 6}, lambda spec: spec.bits == 6),
        ({"symmetry": False}, lambda spec: not spec.symmetric),
        ({"per_channel": True}, lambda spec: isinstance(spec.granularity, PerChannel)),
        ({"pot_scale": True}, lambda spec: spec.power_of_two),
    ],
    ids=SCHEME_KEYS,
)
def test_each_key_of_a_scheme_changes_one_role_and_its_parameters(
    letter: str, change: dict[str, Any], shown: Callable[[Any], bool]
) -> None:
    plain = {"bit": 8, "symmetry": True, "per_channel": False, "pot_scale": False}
    tensor, other = (WEIGHT, INSIDE) if letter == "w" else (INSIDE, WEIGHT)
    found = []
    for scheme in (plain, {**plain, **change}):
        schemes = {"w_qscheme": plain, "a_qscheme": plain, f"{letter}_qscheme": scheme}
        found.append(calibrated(mqbench.translated(mqbench.qconfig(**schemes), "Academic")))
    (before, few), (after, given) = found
    assert shown(after[tensor].spec)
    assert not shown(before[tensor].spec)
    assert before[other].spec == after[other].spec
    assert few[tensor].scale.shape != given[tensor].scale.shape or (few[tensor].scale != given[tensor].scale).any()


def test_the_relu_that_the_document_excludes_is_left_float() -> None:
    relu = "/layer2/layer2.1/relu/Relu"
    lists = {"extra_quantizer_dict": {"exclude_module_name": ["layer2.1.relu"]}}
    before, after = mqbench.planned(None, "SNPE"), mqbench.planned(lists, "SNPE")
    assert before.fused[relu]
    assert relu not in after.fused
    assert "exclude_module_name" in after.left_float[relu] or "skip" in after.left_float[relu]


def test_a_mapping_of_a_type_quantizes_what_the_target_leaves_float() -> None:
    mapping = {"additional_qat_module_mapping": {"torch.nn.ConvTranspose2d": "qnn.qat.ConvTranspose2d"}}
    with pytest.raises(UnsupportedError, match="onnx_qnn has no rule for ConvTranspose"):
        plan_for({}, deconvolution(), "ONNX_QNN")
    assert plan_for({"extra_fuse_dict": mapping}, deconvolution(), "ONNX_QNN")["w"].role == "weight"


@pytest.mark.parametrize(
    ("key", "chain"),
    [
        ("additional_fuser_method_mapping", ("torch.nn.Linear", "torch.nn.BatchNorm1d")),
        ("additional_fusion_pattern", ("torch.nn.BatchNorm1d", "torch.nn.Linear")),
    ],
)
def test_the_chains_that_the_document_prints_run_as_one(key: str, chain: tuple[str, str]) -> None:
    plain = {"extra_qconfig_dict": mqbench.SCHEMES}
    fused = {**plain, "extra_fuse_dict": {key: {chain: "fuse_linear_bn"}}}
    assert "bn" not in plan_for(plain, linear_and_norm(), "Academic").fused
    assert plan_for(fused, linear_and_norm(), "Academic").fused == {"bn": "fc"}


def test_the_dot_of_a_number_does_not_end_a_module() -> None:
    with pytest.raises(ConfigError, match=r"unknown observer 'percentile:99\.9'\. Did you mean 'percentile'"):
        mqbench.translated(mqbench.qconfig(a_observer="percentile:99.9"))
    named = mqbench.translated(mqbench.qconfig(a_observer="mqbench.observer.MSEObserver"))
    assert named.config["activation"]["observer"] == "mse"


# ---- Sophgo-mq ---------------------------------------------------------------------------------------------------


def test_bits_of_both_schemes_are_those_of_the_numbers() -> None:
    def bits(weight: int, activation: int) -> tuple[int, int]:
        plan = sophgo.planned(sophgo.config(w_qscheme={"bit": weight}, a_qscheme={"bit": activation}))
        return sophgo.weight_of(plan, sophgo.SECOND).spec.bits, plan["/relu/Relu_output_0"].spec.bits

    assert [bits(8, 8), bits(4, 8), bits(4, 4)] == [(8, 8), (4, 8), (4, 4)]


def test_the_types_of_an_entry_have_its_bits_and_fake_quantizers() -> None:
    entries = {
        "qnniqat.ConvReLU2d_sophgo": {"mode": "weight", "bit": "4", "wfakequantize": "LearnableFakeQuantize"},
        "qnniqat.ConvBnReLU2d_sophgo": {"mode": "activation", "bit": "8", "afakequantize": "LearnableFakeQuantize"},
    }
    plain, plan = sophgo.planned(sophgo.config()), sophgo.planned(sophgo.config(object_type=entries))
    first, second = sophgo.weight_of(plan, sophgo.FIRST), sophgo.weight_of(plan, sophgo.SECOND)
    assert (first.spec.dtype, first.fake_quantizer) == ("int4", "lsq_plus")
    assert (second.spec.dtype, second.fake_quantizer) == ("int8", "fixed")
    changed = {item.tensor for item in sophgo.activations(plan) if item.fake_quantizer == "lsq_plus"}
    assert "/relu/Relu_output_0" in changed
    assert sophgo.FIRST_RESULT not in changed
    assert {item.fake_quantizer for item in plain} == {"fixed"}


def test_observers_of_single_modules_change_their_parameters_alone() -> None:
    entries = {
        "layer1.conv1": {"mode": "activation", "aobserver": "EMAMinMaxObserver"},
        "layer2.conv2": {"mode": "weight", "wobserver": "LSQObserver"},
    }
    _, plain = calibrated(sophgo.translated(sophgo.config()))
    plan, given = calibrated(sophgo.translated(sophgo.config(module_name=entries)))
    changed = {name for name in plain.entries if (plain[name].scale != given[name].scale).any()}
    weight = sophgo.weight_of(plan, sophgo.SECOND).tensor
    assert {name for name in changed if plan[name].role != "bias"} == {sophgo.FIRST_RESULT, weight}


@pytest.mark.parametrize(("chip", "dtype"), [("SG2260", "fp8_e4m3"), ("Academic", "fp8_e4m3")])
def test_float8_of_the_document_has_scales_of_its_own(chip: str, dtype: str) -> None:
    both = {"w_fakequantize": "E4M3FakeQuantize", "a_fakequantize": "E4M3FakeQuantize"}
    plan, qparams = calibrated(sophgo.translated(sophgo.config(chip, **both)))
    image = qparams["image"]
    assert plan["image"].spec.dtype == dtype
    assert float(image.scale) == pytest.approx(np.abs(samples(sophgo.RESNET)["image"]).max() / 448, rel=1e-5)


# ---- Vitis AI ----------------------------------------------------------------------------------------------------

TENSORS = {"weight": "layer1.conv1.weight", "output": "/layer1/relu/Relu_output_0"}
Shown = Callable[[Placement, QParams], Any]
CHANGES: dict[str, tuple[str, dict[str, Any], Shown]] = {
    "bit_width": ("weight", {"bit_width": 6}, lambda placed, _: placed.spec.bits == 6),
    "data_format": ("weight", {"data_format": "UINT"}, lambda placed, _: placed.spec.dtype == "uint4"),
    "method": ("output", {"method": "Min_MSE"}, lambda placed, _: "mse" in placed.observer),
    "round_mode": (
        "output",
        {"round_mode": "HALF_TO_ZERO"},
        lambda placed, _: placed.spec.rounding == "half_to_zero",
    ),
    "symmetry": ("output", {"symmetry": False}, lambda _, found: np.any(found.zero_point != 0)),
    "per_channel": ("weight", {"per_channel": True}, lambda _, found: found.scale.shape == (8,)),
    "channel_axis": (
        "weight",
        {"per_channel": True, "channel_axis": 2},
        lambda placed, _: placed.spec.granularity == PerChannel(1),
    ),
    "unsigned": ("output", {"unsigned": True}, lambda placed, _: placed.spec.dtype == "uint4"),
    "narrow_range": ("weight", {"narrow_range": True}, lambda placed, _: placed.spec.qmin == -7),
    "epsilon": ("output", {"epsilon": 0.5}, lambda _, found: np.all(found.scale == 0.5)),
    "min_quantize_pos": (
        "weight",
        {"min_quantize_pos": 9, "max_quantize_pos": 20},
        lambda _, found: found.scale == 2.0**-9,
    ),
    "max_quantize_pos": ("output", {"max_quantize_pos": 1}, lambda _, found: found.scale == 2.0**-1),
    "ema_decay": ("output", {"ema_decay": 0.1}, lambda placed, _: placed.observer == "ema_minmax:decay=0.1"),
    "use_framework_quantizer": (
        "output",
        {"round_mode": "HALF_UP", "use_framework_quantizer": False},
        lambda placed, _: placed.spec.rounding == "half_up",
    ),
}
UNCHANGED_SCALES = {"round_mode", "narrow_range", "use_framework_quantizer"}
"""What is about the integers; scales stay as they are."""


@pytest.mark.parametrize(
    ("kind", "param"),
    [
        (kind, param)
        for kind, params in VITIS_QUANTIZERS.items()
        for param in params
        if param != "symmetry" or kind in FLOAT_SCALES  # powers of two have no zero point: an error
    ],
)
def test_every_parameter_of_every_quantizer_reaches_the_parameters_of_its_tensor(kind: str, param: str) -> None:
    target, change, shown = CHANGES[param]
    usual: dict[str, Any] = {"per_channel": False} if target == "weight" else {}
    if param == "channel_axis":
        usual = {"per_channel": True}
    if param == "use_framework_quantizer":
        usual = {"round_mode": "HALF_UP", param: True}
    tensor = TENSORS[target]
    before, few = calibrated(vitis.translated(one_quantizer(kind, target, **usual)))
    after, given = calibrated(vitis.translated(one_quantizer(kind, target, **{**usual, **change})))
    assert shown(after[tensor], given[tensor])
    assert not shown(before[tensor], few[tensor])
    same = few[tensor].scale.shape == given[tensor].scale.shape and np.array_equal(
        few[tensor].scale, given[tensor].scale
    )
    if param == "channel_axis" and kind not in FLOAT_SCALES:
        return  # powers of two along either axis may well be equal
    assert same is (param in UNCHANGED_SCALES)


@pytest.mark.parametrize("kind", VITIS_QUANTIZERS)
def test_a_quantizer_leaves_all_other_layers_alone(kind: str) -> None:
    plain = vitis.planned("fs" if kind in FLOAT_SCALES else "pof2s")
    plan = vitis.planned(one_quantizer(kind, "weight"))
    assert {name for name in plain.placements if plain[name].spec != plan[name].spec} == {TENSORS["weight"]}


@pytest.mark.parametrize(("form", "dtype"), [("INT", "int8"), ("UINT", "uint8"), ("BFP16", "bfp16"), ("FP16", "fp16")])
def test_every_data_format_of_the_document_is_calibrated(form: str, dtype: str) -> None:
    strategy = one_quantizer("FSQuantizer", "output", bit_width=16 if "16" in form else 8, data_format=form)
    plan, qparams = calibrated(vitis.translated(strategy))
    assert plan[TENSORS["output"]].spec.dtype == dtype
    assert (float(qparams[TENSORS["output"]].scale) == 1.0) is ("FP16" in form)


@pytest.mark.parametrize("wanted", [True, False])
def test_dropout_is_removed_or_stays_in_the_graph(wanted: bool) -> None:
    net = Net("dropout")
    x = net.input("x", (1, 3, 8, 8))
    net.node("Identity", net.conv(net.node("Dropout", net.conv(x, 3, 4)), 4, 2), output="y")
    net.output("y", (1, 2, 8, 8))
    strategy = {"optimize_pipeline_config": {"remove_dropout": wanted}}
    model = net.model()
    prepared = prepare(model, config=vitis.translate(strategy, Graph.from_model(model)))
    assert bool(prepared.graph.nodes("Dropout")) is not wanted
