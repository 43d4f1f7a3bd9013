"""Which scales of a prepared module count: those of calibration and of a trained state, none that nobody found."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onnxq.compat.mqbench import (
    PreparedModel,
    convert_deploy,
    enable_calibration,
    enable_quantization,
    prepare_by_platform,
)
from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from tests.zoo_graphs.net import Net

SAMPLES = torch.from_numpy(np.random.default_rng(1).normal(0, 1, (3, 2, 8)).astype(np.float32))


def network() -> Graph:
    generator = np.random.default_rng(0)
    net = Net("layers")
    x = net.input("x", ("n", 8))
    hidden = net.node("Relu", net.node("Gemm", x, net.floats(generator.normal(0, 1, (8, 8)), name="first.weight")))
    net.node("Gemm", hidden, net.floats(generator.normal(0, 1, (8, 4)), name="second.weight"), output="y")
    net.output("y", ("n", 4))
    return Graph.from_model(net.model())


def prepared(config: dict[str, Any] | None = None) -> PreparedModel:
    return prepare_by_platform(network(), "Tensorrt", config)


def give_samples(model: Any) -> None:
    enable_calibration(model)
    for sample in SAMPLES:
        model(sample)


def calibrated_state() -> dict[str, torch.Tensor]:
    model = prepared()
    model.torch()
    give_samples(model)
    enable_quantization(model)
    return {name: value.clone() for name, value in model.state_dict().items()}


def activation_scales(model: Any) -> dict[str, torch.Tensor]:
    found = {n: v.clone() for n, v in model.state_dict().items() if n.endswith("_post_act_fake_quantizer.scale")}
    assert found
    return found


def test_scales_that_nobody_has_calibrated_do_not_count_as_loaded() -> None:
    model = prepared()
    model.load_state_dict(prepared().state_dict())
    with pytest.raises(DataError, match=r"Without a scale: .*x_post_act_fake_quantizer"):
        enable_quantization(model)
    weights_only = {name: value for name, value in calibrated_state().items() if "weight_fake_quant" in name}
    model.load_state_dict(weights_only, strict=False)
    with pytest.raises(DataError, match=r"Without a scale: .*x_post_act_fake_quantizer"):
        enable_quantization(model)
    model.load_state_dict(calibrated_state())
    enable_quantization(model)
    assert bool(model.state_dict()["fake_quant_calibrated"])


def test_a_state_from_before_calibration_takes_the_scales_away() -> None:
    model = prepared()
    model.torch()
    give_samples(model)
    enable_quantization(model)
    found = activation_scales(model)
    model.load_state_dict(prepared().state_dict())
    assert not bool(model.state_dict()["fake_quant_calibrated"])
    enable_quantization(model)  # there are samples: they are calibrated on again
    for name, scale in activation_scales(model).items():
        assert torch.equal(scale, found[name])


def test_loaded_scales_stay_where_samples_were_given_before() -> None:
    state = calibrated_state()
    trained = {name: 1.5 * value if name.endswith("fake_quantizer.scale") else value for name, value in state.items()}
    model = prepared()
    model.torch()
    give_samples(model)
    model.load_state_dict(trained)
    enable_quantization(model)
    for name, scale in activation_scales(model).items():
        assert torch.equal(scale, trained[name])
    give_samples(model)
    enable_quantization(model)  # further samples are calibrated on
    for name, scale in activation_scales(model).items():
        assert not torch.equal(scale, trained[name])


def test_quantizers_that_were_switched_off_while_calibrating_are_switched_on() -> None:
    model = prepared()
    model.apply(torch.ao.quantization.disable_fake_quant)
    give_samples(model)
    enable_quantization(model)
    assert all(quantizer.quantizing for _, quantizer in model.torch().fake_quantizers())


def test_an_effort_of_the_configuration_is_refused_for_a_module(tmp_path: Path) -> None:
    model = prepared({"effort": 2})
    model.torch()
    with pytest.raises(ConfigError, match="effort 2 would change weights"):
        convert_deploy(model, "Tensorrt", output_path=tmp_path)


def test_what_is_said_before_the_module_is_made_holds_for_it() -> None:
    model = prepared().eval().to(torch.float64)
    assert not model.training
    assert model.get_parameter("first.weight").dtype == torch.float64
    assert prepared().training


def test_copies_have_samples_of_their_own() -> None:
    model = prepared()
    give_samples(model)
    for with_module in (False, True):
        if with_module:
            model.torch()
        twin = copy.deepcopy(model)
        give_samples(twin)
        assert (model.samples, twin.samples) == (3, 6)
        twin.forget_samples()
        assert model.samples == 3
    assert twin.torch() is not model.torch()
    assert copy.deepcopy(model.torch()).prepared.torch() is not model.torch()
