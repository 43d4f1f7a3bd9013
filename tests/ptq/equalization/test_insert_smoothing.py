"""A Mul in front of layers smooths what cannot be divided where it is made, and only where the target allows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.errors import ConfigError
from onnxq.ptq.equalization.insert_smoothing import TOO_LITTLE
from onnxq.runtime.session import make_session
from tests.ptq.equalization.prepared import Feeds, ready
from tests.zoo_graphs.net import Net

EQUAL = 1e-5
WIDTH, TOKENS = 16, 6


def post_norm(outlier: float) -> tuple[Net, Feeds]:
    """A BERT block: the norm stands behind the addition, its output is read by layers and by the next addition."""
    net = Net(f"post norm {outlier:g}")

    def normed(x: str) -> str:
        gamma = net.rng.uniform(0.7, 1.3, WIDTH)
        gamma[3] *= outlier
        return net.node("LayerNormalization", x, net.floats(gamma), net.bias(WIDTH))

    def layer(x: str, size_in: int, size_out: int) -> str:
        weight = net.rng.normal(0, 1 / np.sqrt(size_in), (size_in, size_out))
        weight[3] /= outlier if size_in == WIDTH else 1.0
        return net.node("Add", net.node("MatMul", x, net.floats(weight)), net.bias(size_out))

    first = normed(net.input("x", [1, TOKENS, WIDTH]))
    hidden = net.node("Sigmoid", layer(first, WIDTH, 2 * WIDTH))
    second = normed(net.node("Add", first, layer(hidden, 2 * WIDTH, WIDTH)))
    net.output(layer(second, WIDTH, WIDTH))
    net.output(net.node("Tanh", second))
    return net, [{"x": net.normal(1, TOKENS, WIDTH)} for _ in range(16)]  # an effort takes that many for it


def test_a_norm_that_others_read_too_is_smoothed_for_the_layers() -> None:
    net, feeds = post_norm(60.0)
    case = ready(net.model(), feeds, "onnxruntime", bias={"dtype": "int32"})
    assert case.improve("smoothquant").changed == ()
    found = case.improve("insert_smoothing")
    assert found.recalibrate
    assert found.price_db > 0
    assert case.change(found.state.graph) < EQUAL
    before, after = case.sqnr(case.state), case.sqnr(case.recalibrated(found.state))
    assert after > before + 6
    added = [found.state.graph.node(name) for name in found.details["added"]]
    assert added
    for node in added:
        assert node.op == "Mul"
        assert node.inputs[0].name not in found.state.plan
        assert node.outputs[0].name in found.state.plan
        assert "float" in found.state.plan.left_float[node.name]
    biases = [item.derive.input for item in found.state.plan if item.derive is not None]
    assert biases
    assert all(name in found.state.plan for name in biases)


def residual(outlier: float) -> tuple[Net, Feeds]:
    """Convolutions with biases, plain and grouped, that read what an addition reads too; channel 2 is an outlier."""
    net = Net(f"residual {outlier:g}")
    scale = np.ones((1, 8, 1, 1))
    scale[0, 2] = outlier
    x = net.node("Mul", net.input("x", [1, 8, 6, 6]), net.floats(scale))
    plain = net.node("Conv", x, net.floats(net.rng.normal(0, 0.2, (8, 8, 3, 3)) / scale), net.bias(8), pads=[1] * 4)
    grouped = net.rng.normal(0, 0.3, (8, 4, 3, 3)) / scale.reshape(2, 1, 4, 1, 1).repeat(4, 1).reshape(8, 4, 1, 1)
    other = net.node("Conv", x, net.floats(grouped), net.bias(8), pads=[1] * 4, group=2)
    net.output(net.node("Tanh", net.node("Add", plain, other)))
    net.output(net.node("Softplus", x))
    return net, [{"x": net.normal(1, 8, 6, 6)} for _ in range(8)]


def test_convolutions_with_groups_and_biases() -> None:
    net, feeds = residual(100.0)
    case = ready(net.model(), feeds, "academic")
    found = case.improve("insert_smoothing")
    assert len(found.details["added"]) == 1
    assert case.change(found.state.graph) < EQUAL
    assert case.sqnr(case.recalibrated(found.state)) > case.sqnr(case.state) + 6


def test_what_gains_nothing_is_taken_out_again() -> None:
    net, feeds = post_norm(1.0)
    case = ready(net.model(), feeds, "onnxruntime")
    found = case.improve("insert_smoothing")
    muls = {node.name for node in found.state.graph.nodes("Mul")}
    assert muls == set(found.details.get("added", ()))
    assert set(found.state.plan.left_float) - set(case.state.plan.left_float) == muls


def test_it_is_not_tried_where_it_cannot_gain_what_counts() -> None:
    net, feeds = post_norm(60.0)
    case = ready(net.model(), feeds, "onnxruntime")
    noise = 10 ** (-case.sqnr(case.state) / 10)
    assert case.improve("insert_smoothing", noise=noise).changed
    declined = case.improve("insert_smoothing", noise=1e4 * noise)
    assert declined.changed == ()
    assert declined.declined == (TOO_LITTLE,)


def test_inputs_of_the_model_are_quantized_as_they_come() -> None:
    net = Net("input with an outlier")
    x = net.input("x", [1, 8, 6, 6])
    net.output(net.node("Tanh", net.node("Conv", x, net.floats(net.rng.normal(0, 0.2, (8, 8, 3, 3))), net.bias(8))))
    feeds = [
        {"x": net.normal(1, 8, 6, 6) * np.float32([1, 1, 50, 1, 1, 1, 1, 1]).reshape(1, 8, 1, 1)} for _ in range(8)
    ]
    found = ready(net.model(), feeds, "academic").improve("insert_smoothing")
    assert found.changed == ()


def test_a_target_that_quantizes_everything_gets_no_float_nodes() -> None:
    net, feeds = post_norm(60.0)
    case = ready(net.model(), feeds, "qnn")
    found = case.improve("insert_smoothing")
    assert found.changed == ()
    assert found.state is case.state


def test_the_written_file_has_the_nodes_and_the_report_names_them(tmp_path: Path) -> None:
    net, feeds = post_norm(60.0)
    result = onnxq.quantize(net.model(), backend="onnxruntime", data=feeds, out=tmp_path)
    step = next(step for step in result.report["improvements"]["steps"] if step["name"] == "insert_smoothing")
    assert step["applied"], step["why"]
    assert len(make_session(result.model, threads=1).run(None, feeds[0])) == 2
    assert set(step["details"]["added"]) <= {node.name for node in onnx.load(result.model).graph.node}


def test_a_gain_below_the_price_is_not_worth_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.ptq.equalization.insert_smoothing.PRICE_DB", 60.0)
    net, feeds = post_norm(60.0)
    result = onnxq.quantize(net.model(), backend="onnxruntime", data=feeds, out=tmp_path)
    step = next(step for step in result.report["improvements"]["steps"] if step["name"] == "insert_smoothing")
    assert not step["applied"]
    assert "less than the 60 dB that its nodes must be worth" in step["why"]


def test_alpha_is_checked() -> None:
    net, feeds = post_norm(1.0)
    with pytest.raises(ConfigError, match="alpha of improvement 'insert_smoothing' lies between"):
        ready(net.model(), feeds, "onnxruntime").improve("insert_smoothing:2")


@pytest.mark.parametrize(("width", "known"), [(1, True), (8, False)])
def test_rows_that_are_not_finite_say_nothing_about_an_error(width: int, known: bool) -> None:
    """One divisor for a row leaves others finite; one for each value leaves no row without an infinity."""
    net = Net("infinite")
    x = net.input("x", [4, 8])
    ratio = net.node("Div", net.linear(x, 8, 8), net.relu(net.linear(x, 8, width)))  # now and then by zero
    net.output(net.node("Sigmoid", ratio))
    net.output(net.linear(ratio, 8, 4))
    case = ready(net.model(), [{"x": net.normal(4, 8)} for _ in range(12)], "academic:w_bits=4,a_bits=4")
    found = case.improve("insert_smoothing:alpha=0.8")
    assert bool(found.changed) == known
    assert all(np.isfinite(errors).all() for errors in found.details.get("error", {}).values())
    assert any("no finite values" in line for line in found.declined) == (not known)
