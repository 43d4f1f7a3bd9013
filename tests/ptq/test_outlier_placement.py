"""Sums and norms with outliers leave 8 bits: to a wider format, or to float, where that is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq import Result
from onnxq.errors import ConfigError
from onnxq.observers.statistics import HistogramStatistic
from onnxq.ptq.method import read_improvement
from onnxq.ptq.outlier_placement import _noise
from onnxq.types import PerChannel, QParams, QuantSpec
from tests.zoo_graphs.net import Net

BACKENDS = {"qnn": "uint16", "snpe": "uint16", "vitis": "float", "sophgo_bm1684x": "float"}
WIDTH, TOKENS = 16, 64


def pre_norm() -> tuple[Net, list[dict[str, np.ndarray]]]:
    """A block with its norm in front, whose residual stream is a hundred times as large in one place of one sample."""
    net = Net("pre norm")

    def block(x: str) -> str:
        normed = net.node("LayerNormalization", x, net.floats(np.ones(WIDTH)), net.floats(np.zeros(WIDTH)))
        return net.node("MatMul", normed, net.weight(WIDTH, WIDTH, fan_in=WIDTH))

    x = net.input("x", [1, TOKENS, WIDTH])
    total = net.node("Add", x, block(x))
    net.output(block(total), [1, TOKENS, WIDTH])
    feeds = [{"x": net.normal(1, TOKENS, WIDTH)} for _ in range(16)]
    feeds[3]["x"][0, 2, 3] = 100.0
    return net, feeds


def quantized(backend: str, folder: Path, **config: Any) -> Result:
    net, feeds = pre_norm()
    settings = {"improvements": ["outlier_placement"], "minimum_sqnr_db": -10.0, **config}
    return onnxq.quantize(net.model(), backend=backend, data=feeds, config=settings, out=folder)


def step_of(result: Result) -> dict[str, Any]:
    (step,) = result.report["improvements"]["steps"]
    return dict(step)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_residual_stream_with_outliers_gets_another_format(backend: str, tmp_path: Path) -> None:
    result = quantized(backend, tmp_path)
    step = step_of(result)
    assert step["applied"], step
    assert step["after"] > step["before"] + 1
    if BACKENDS[backend] == "float":
        left = {node: why for node, why in result.plan.left_float.items() if getattr(why, "code", "") == "outliers"}
        assert left
        assert all("outliers" in why for why in left.values())
    else:
        wide = [item for item in result.plan if item.spec.dtype == "uint16"]
        assert wide
        assert any("outlier_placement" in said for item in wide for _, said in item.set_by)


@pytest.mark.parametrize("backend", ["qnn", "vitis"])
def test_values_without_outliers_keep_their_format(backend: str, tmp_path: Path) -> None:
    net = Net("even values")
    x = net.input("x", [1, 4, 16])
    net.output(net.node("Add", x, net.node("MatMul", x, net.weight(16, 16, fan_in=16))), [1, 4, 16])
    feeds = [{"x": net.rng.uniform(-1, 1, (1, 4, 16)).astype(np.float32)} for _ in range(16)]
    config = {"improvements": ["outlier_placement"]}
    result = onnxq.quantize(net.model(), backend=backend, data=feeds, config=config, out=tmp_path)
    assert not step_of(result)["applied"]
    assert {item.spec.dtype for item in result.plan if item.role == "activation"} <= {"uint8", "int8"}


def test_what_the_user_forces_stays_quantized(tmp_path: Path) -> None:
    plain = quantized("vitis", tmp_path / "plain")
    node = next(node for node, why in plain.plan.left_float.items() if getattr(why, "code", "") == "outliers")
    forced = quantized("vitis", tmp_path / "forced", force=[node])
    assert node in forced.plan.quantized


def test_the_loudest_layer_becomes_float(tmp_path: Path) -> None:
    """What stands between two layers is a hundred times as large in one place of one sample."""
    net = Net("a loud layer")
    x, other = net.input("x", [1, TOKENS, 16]), net.input("other", [1, TOKENS, 16])
    hidden = net.node("Max", net.node("MatMul", x, net.weight(16, 16, fan_in=16)), other)
    net.output(net.node("MatMul", hidden, net.weight(16, 16, fan_in=16)), [1, TOKENS, 16])
    feeds = [{"x": net.normal(1, TOKENS, 16), "other": net.normal(1, TOKENS, 16)} for _ in range(16)]
    feeds[3]["other"][0, 2, 3] = 100.0
    config = {"improvements": ["outlier_placement:layers=yes"], "minimum_sqnr_db": -10.0}
    result = onnxq.quantize(net.model(), backend="onnxruntime", data=feeds, config=config, out=tmp_path)
    assert step_of(result)["applied"]
    codes = [getattr(why, "code", "") for why in result.plan.left_float.values()]
    assert codes.count("outliers") == 1
    assert len(result.plan.quantized) == 1


def two_layers(*, outlier: float = 1.0, between: float = 0.0) -> tuple[Net, list[dict[str, np.ndarray]]]:
    """Two layers with biases; a weight of the second is `outlier` times larger, one value between them is `between`."""
    net, width = Net("two layers"), 64
    x, other = net.input("x", [1, TOKENS, width]), net.input("other", [1, TOKENS, width])

    def layer(x: str, factor: float) -> str:
        weight = net.rng.normal(size=(width, width)) / np.sqrt(width)
        weight[3, 5] *= factor
        return net.node("Add", net.node("MatMul", x, net.floats(weight)), net.floats(net.rng.normal(size=width)))

    net.output(layer(net.node("Max", layer(x, 1.0), other), outlier), [1, TOKENS, width])
    feeds = [{name: net.normal(1, TOKENS, width) for name in ("x", "other")} for _ in range(16)]
    if between:
        feeds[3]["other"][0, 2, 3] = between
    return net, feeds


def usable(backend: str, folder: Path, made: tuple[Net, list[dict[str, np.ndarray]]]) -> Result:
    config = {"improvements": ["outlier_placement:usable=yes"], "minimum_sqnr_db": -10.0}
    return onnxq.quantize(made[0].model(), backend=backend, data=made[1], config=config, out=folder)


def test_the_bias_of_a_layer_becomes_float_with_it(tmp_path: Path) -> None:
    """On its own the Add would be quantized, and its input with it: what the layer makes would be in 8 bits again."""
    result = usable("vitis", tmp_path, two_layers(between=1000.0))
    assert step_of(result)["applied"]
    codes = {node: getattr(why, "code", "") for node, why in result.plan.left_float.items()}
    assert [code for node, code in codes.items() if "MatMul" in node].count("outliers") == 1
    assert [code for node, code in codes.items() if "Add" in node].count("outliers") == 1


def test_a_matrix_with_an_outlier_gets_a_scale_for_each_column(tmp_path: Path) -> None:
    result = usable("qnn", tmp_path, two_layers(outlier=300.0))
    assert step_of(result)["applied"], step_of(result)
    weights = [item for item in result.plan if item.role == "weight"]
    assert [isinstance(item.spec.granularity, PerChannel) for item in weights].count(True) == 1
    assert all(item.spec.dtype == "int8" and item.spec.symmetric for item in weights)


def test_formats_of_the_step_before_are_kept(tmp_path: Path) -> None:
    net, feeds = pre_norm()
    config = {"improvements": ["outlier_placement", "outlier_placement:usable=yes"], "minimum_sqnr_db": -10.0}
    result = onnxq.quantize(net.model(), backend="qnn", data=feeds, config=config, out=tmp_path)
    alone = quantized("qnn", tmp_path / "alone")
    wide = {item.tensor for item in alone.plan if item.spec.dtype == "uint16"}
    assert wide <= {item.tensor for item in result.plan if item.spec.dtype == "uint16"}


def test_without_outliers_nothing_is_run(tmp_path: Path) -> None:
    net = Net("even layers")
    x = net.input("x", [1, 4, 16])
    net.output(net.node("MatMul", x, net.floats(net.rng.uniform(-1, 1, (16, 16)))), [1, 4, 16])
    feeds = [{"x": net.rng.uniform(-1, 1, (1, 4, 16)).astype(np.float32)} for _ in range(16)]
    config = {"improvements": ["outlier_placement:usable=yes"]}
    result = onnxq.quantize(net.model(), backend="vitis", data=feeds, config=config, out=tmp_path)
    assert step_of(result)["reason"] == "nothing_to_change", step_of(result)


def test_values_beyond_the_range_count_as_noise() -> None:
    spec = QuantSpec("int8")
    histogram = HistogramStatistic()
    histogram.add(histogram.look(np.concatenate([np.ones(1000), [100.0]]).astype(np.float32)))
    inside = _noise(histogram, QParams(spec, np.array(100 / 127, np.float32), np.array(0, np.int8)))
    cut_off = _noise(histogram, QParams(spec, np.array(50 / 127, np.float32), np.array(0, np.int8)))
    assert inside < -20 < -8 < cut_off


def test_layers_and_usable_exclude_one_another() -> None:
    with pytest.raises(ConfigError, match="layers=yes or usable=yes"):
        read_improvement("outlier_placement:layers=yes,usable=yes")
