"""include_cle, include_fast_ft and include_bias_corr: true asks for the method, false rules it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.config import read_config
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.ptq.method import read_improvement
from onnxq.ptq.search.stage import wanted_schedule
from onnxq.targets.amd.dialect import translate
from tests.targets.amd.vitis_runs import became, translated
from tests.zoo_graphs.net import Net

METHODS = {
    "include_cle": "cross_layer_equalization",
    "include_fast_ft": "adaquant",
    "include_bias_corr": "bias_correction",
}


@pytest.mark.parametrize(("switch", "method"), METHODS.items())
def test_true_asks_for_a_method_and_false_rules_it_out(switch: str, method: str) -> None:
    asked, ruled_out = translated({switch: True}), translated({switch: False})
    assert asked.config["improvements"] == [method]
    assert "skip_improvements" not in asked.config
    assert became(asked, switch).startswith(f'improvements = ["{method}"]')
    assert ruled_out.config["skip_improvements"] == [method]
    assert "improvements" not in ruled_out.config
    assert became(ruled_out, switch) == f'skip_improvements = ["{method}"]'
    for effort in (1, 2, 3):
        tried = wanted_schedule(read_config(ruled_out, effort=effort)).names()
        assert tried
        assert method not in {name.partition(":")[0] for name in tried}
    assert asked.unfulfilled == ()


def test_the_methods_come_in_the_order_of_the_pipelines() -> None:
    given = {"refine_pipeline_config": {"include_bias_corr": True, "include_fast_ft": True}, "include_cle": True}
    assert translated(given).config["improvements"] == list(METHODS.values())


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"cle_to_relu6": True}, "relu6=data"),
        ({"cle_to_relu6": False}, "relu6=exact"),
        ({"cle_steps": 5}, "steps=5"),
        ({"cle_balance_method": "max"}, "balance=max"),
        ({"cle_balance_method": "avg"}, "balance=mean"),
        ({"cle_weight_threshold": 0.1}, "threshold=0.1"),
        ({"cle_steps": 5, "cle_weight_threshold": 0.5}, "steps=5,threshold=0.5"),
    ],
)
def test_parameters_of_equalization_are_those_of_the_method(given: dict[str, Any], written: str) -> None:
    asked = translated({"include_cle": True, **given})
    assert asked.config["improvements"] == [f"cross_layer_equalization:{written}"]
    assert read_improvement(asked.config["improvements"][0]).arguments
    assert ",".join(became(asked, name) for name in given) == written


def test_parameters_of_fine_tuning_are_those_of_the_method() -> None:
    asked = translated({"include_fast_ft": True, "fast_ft_epochs": 10})
    assert asked.config["improvements"] == ["adaquant:epochs=10"]
    assert became(asked, "fast_ft_epochs") == "epochs=10"


@pytest.mark.parametrize(
    ("given", "step"),
    [({"cle_steps": 10}, "include_cle"), ({"include_fast_ft": False, "fast_ft_epochs": 10}, "include_fast_ft")],
)
def test_parameters_of_a_step_that_is_not_asked_for_have_no_effect(given: dict[str, Any], step: str) -> None:
    made = translated(given)
    assert "improvements" not in made.config
    assert became(made, list(given)[-1]) == f"no effect: {step} is not true, so the step is not asked for"


@pytest.mark.parametrize(
    ("given", "switch"),
    [
        ({"include_cle": True, "cle_steps": 0}, "include_cle"),
        ({"include_fast_ft": True, "fast_ft_epochs": 0}, "include_fast_ft"),
    ],
)
def test_a_method_that_is_to_be_done_no_time_is_not_done(given: dict[str, Any], switch: str) -> None:
    made = translated(given)
    assert "improvements" not in made.config
    assert became(made, switch).startswith(f'skip_improvements = ["{METHODS[switch]}"], because')


def test_as_many_steps_as_it_takes() -> None:
    made = translated({"include_cle": True, "cle_steps": -1})
    assert made.config["improvements"] == ["cross_layer_equalization"]
    assert became(made, "cle_steps") == "as many steps as it takes"


@pytest.mark.parametrize("method", ["median", "random"])
def test_a_way_of_balancing_that_the_tool_does_not_have_is_an_error(method: str) -> None:
    with pytest.raises(ConfigError, match="Known: max, avg"):
        translated({"include_cle": True, "cle_balance_method": method})


# ---- what becomes of a model -----------------------------------------------------------------------------------------


def uneven_network() -> Graph:
    """Channels of 1 to 1/100 of their size between depthwise and pointwise layers: one scale per weight loses most."""
    net = Net("uneven")
    channels, x = 8, net.input("x", (1, 3, 10, 10))
    factors = np.geomspace(1.0, 1 / 100, channels)
    stem = net.rng.normal(0, 0.3, (channels, 3, 3, 3)) * factors[:, None, None, None]
    bias = net.rng.normal(0, 0.1, channels) * factors
    hidden = net.relu(net.node("Conv", x, net.floats(stem), net.floats(bias), pads=[1] * 4))
    middle = net.rng.normal(0, 0.3, (channels, 1, 3, 3)) / factors[:, None, None, None]
    hidden = net.relu(net.node("Conv", hidden, net.floats(middle), net.bias(channels), pads=[1] * 4, group=channels))
    net.output(net.conv(hidden, channels, 4, 1))
    return Graph.from_model(net.model())


def samples(count: int = 24) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(3)
    return [{"x": generator.normal(0, 1, (1, 3, 10, 10)).astype(np.float32)} for _ in range(count)]


def quantized(out: Path, **strategy: Any) -> onnxq.Result:
    graph = uneven_network()
    config = read_config(translate(strategy, graph), minimum_sqnr_db=-10.0)
    return onnxq.quantize(graph, data=samples(), config=config, out=out)


def sqnr(result: onnxq.Result) -> float:
    (value,) = result.report["sqnr_db"].values()
    return float(value)


def test_equalization_that_is_asked_for_gives_what_the_method_gives(tmp_path: Path) -> None:
    plain = quantized(tmp_path / "plain")
    asked = quantized(tmp_path / "asked", include_cle=True)
    native = onnxq.quantize(
        uneven_network(),
        data=samples(),
        config={**translated_without_improvements(), "improvements": ["cross_layer_equalization"]},
        out=tmp_path / "native",
    )
    assert sqnr(asked) > sqnr(plain) + 15
    assert asked.model.read_bytes() == native.model.read_bytes()
    (step,) = asked.report["improvements"]["steps"]
    assert step["applied"]
    assert not asked.report["warnings"]


def uneven_chain() -> Graph:
    """Three convolutions whose channels are 1 to 1/30 of their size, with the inverse in the layer behind."""
    net = Net("chain")
    channels, before = 8, np.ones(3)
    hidden = net.input("x", (1, 3, 10, 10))
    for _ in range(3):
        factors = net.rng.permutation(np.geomspace(1.0, 1 / 30, channels))
        size = (channels, len(before), 3, 3)
        weight = net.rng.normal(0, 1 / np.sqrt(9 * len(before)), size) * factors[:, None, None, None]
        bias = net.rng.normal(0, 0.1, channels) * factors
        weight /= before[:, None, None]
        hidden = net.relu(net.node("Conv", hidden, net.floats(weight), net.floats(bias), pads=[1] * 4))
        before = factors
    net.output(
        net.node("Conv", hidden, net.floats(net.rng.normal(0, 0.3, (4, channels, 1, 1)) / before[:, None, None]))
    )
    return Graph.from_model(net.model())


def test_a_chain_of_uneven_layers_gains_as_with_the_method_by_its_own_name(tmp_path: Path) -> None:
    found = {}
    for name, strategy in (("plain", {}), ("asked", {"include_cle": True})):
        config = read_config(translate(strategy, uneven_chain()), minimum_sqnr_db=-10.0)
        found[name] = onnxq.quantize(uneven_chain(), data=samples(), config=config, out=tmp_path / name)
    translation = translate({}, uneven_chain())
    own = {**translation.config, "backend": translation.backend, "improvements": ["cross_layer_equalization"]}
    native = onnxq.quantize(uneven_chain(), data=samples(), config=own, out=tmp_path / "native")
    assert sqnr(found["plain"]) < 13
    assert sqnr(found["asked"]) > 28
    assert found["asked"].model.read_bytes() == native.model.read_bytes()


def translated_without_improvements() -> dict[str, Any]:
    translation = translate({}, uneven_network())
    return {**translation.config, "backend": translation.backend}


def test_equalization_that_is_ruled_out_is_not_tried_by_an_effort(tmp_path: Path) -> None:
    graph = uneven_network()
    config = read_config(translate({"include_cle": False}, graph), effort=1, minimum_sqnr_db=-10.0)
    result = onnxq.quantize(graph, data=samples(), config=config, out=tmp_path / "out")
    names = {step["name"].partition(":")[0] for step in result.report["improvements"]["steps"]}
    assert "cross_layer_equalization" not in names
    assert "weight_scale_search" in names


def test_a_threshold_above_all_weights_leaves_nothing_to_equalize(tmp_path: Path) -> None:
    result = quantized(tmp_path / "out", include_cle=True, cle_weight_threshold=1e6)
    (step,) = result.report["improvements"]["steps"]
    assert not step["applied"]
    assert any("below 1e+06 together" in line for line in step["declined"])


def test_biases_are_corrected_and_layers_are_fine_tuned(tmp_path: Path) -> None:
    result = quantized(
        tmp_path / "out", include_cle=True, include_bias_corr=True, include_fast_ft=True, fast_ft_epochs=2
    )
    steps = {step["name"]: step for step in result.report["improvements"]["steps"]}
    assert list(steps) == ["cross_layer_equalization", "adaquant:epochs=2", "bias_correction"]
    assert steps["adaquant:epochs=2"]["details"]["recipe"]["iterations"] == 2  # 18 samples are one batch
    assert all(step["changed"] for step in steps.values())


def test_a_method_that_is_asked_for_needs_samples(tmp_path: Path) -> None:
    graph = uneven_network()
    with pytest.raises(ConfigError, match=r"vitis: include_cle.*improvements take 4 samples or more"):
        onnxq.quantize(graph, data=samples(2), config=translate({"include_cle": True}, graph), out=tmp_path / "out")
