"""Operators as the DPU computes them: onnxruntime on the rewritten graph against the formulas in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.emit.simulations import SIMULATIONS
from onnxq.graph import Graph
from onnxq.targets.amd.simulate_average_pool import average_factor, mean_factor
from onnxq.targets.amd.simulate_clip import chip_bound
from onnxq.types import QParamsTable, QuantPlan

GRID = (np.arange(-128, 128) / 16).astype(np.float32).reshape(1, 1, 16, 16)
"""Every int8 number at position 4."""


def run(
    op: str, simulation: str, x: np.ndarray = GRID, constants: dict[str, Any] | None = None, **attributes: Any
) -> Any:
    """The output of one node as the chip computes it, and the notes; the tensor names must still be x and y."""
    held = {name: np.asarray(value) for name, value in (constants or {}).items()}
    node = helper.make_node(op, ["x", *held], ["y"], name="one", **attributes)
    graph = Graph.from_model(
        helper.make_model(
            helper.make_graph(
                [node],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [numpy_helper.from_array(value, name) for name, value in held.items()],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
    )
    graph.infer_shapes()
    plan = QuantPlan("test", quantized={"one": "test"})
    notes = SIMULATIONS.get(simulation)(graph, plan, QParamsTable())
    assert graph.output_names == ["y"]
    session = ort.InferenceSession(graph.to_model().SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0], notes


def as_ratio(factor: float, count: int) -> tuple[int, int]:
    """k and n of factor = count * k / 2^n with the smallest n."""
    for n in range(40):
        k = factor / count * 2**n
        if k == int(k):
            return int(k), n
    raise AssertionError(f"{factor} / {count} is no number of the form k / 2^n")


def test_windows_with_figures_of_their_own() -> None:
    figures = {(3, 3): 63 / 64, (5, 5): 250 / 256, (6, 6): 252 / 256, (3, 6): 252 / 256, (6, 3): 252 / 256}
    figures |= {(7, 7): 1029 / 1024, (14, 14): 4116 / 4096}
    assert {size: average_factor(*size) for size in figures} == figures
    assert average_factor(256, 2) == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 12, 16, 35, 49, 81, 100, 144, 1000, 65025])
def test_other_windows_take_the_nearest_fraction_that_the_chip_has(count: int) -> None:
    k, n = as_ratio(mean_factor(count), count)
    top = 7 + int(np.ceil(np.log2(count)))
    assert n < top
    errors = [abs(round(2**m / count) / 2**m - 1 / count) for m in range(top)]
    assert abs(k / 2**n - 1 / count) == min(errors)


@pytest.mark.parametrize(("op", "attributes", "count", "factor"), [
    ("AveragePool", {"kernel_shape": [3, 3]}, 9, 63 / 64),
    ("AveragePool", {"kernel_shape": [2, 5]}, 10, mean_factor(10)),
    ("GlobalAveragePool", {}, 256, 1.0),
    ("ReduceMean", {"axes": [2], "keepdims": 1}, 16, 1.0),
])  # fmt: skip
def test_averages_are_multiplied_by_the_factor(op: str, attributes: dict[str, Any], count: int, factor: float) -> None:
    simulated, notes = run(op, "dpu_average_pool", **attributes)
    plain, _ = run(op, "dpu_leaky_relu", **attributes)  # a simulation that leaves this operator alone
    np.testing.assert_array_equal(simulated, plain * np.float32(factor))
    assert len(notes) == (factor != 1.0)


def test_a_window_of_unknown_size_is_a_note() -> None:
    graph_input = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "h", "w"])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("GlobalAveragePool", ["x"], ["y"], name="one")
    opset = [helper.make_opsetid("", 17)]
    graph = Graph.from_model(
        helper.make_model(helper.make_graph([node], "g", [graph_input], [output]), opset_imports=opset)
    )
    plan = QuantPlan("test", quantized={"one": "test"})
    notes = SIMULATIONS.get("dpu_average_pool")(graph, plan, QParamsTable())
    assert "size of its window is not known" in notes[0]
    assert [made.op for made in graph.nodes()] == ["GlobalAveragePool"]


def test_nodes_that_stay_float_are_left_alone() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], name="one", alpha=0.1)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = Graph.from_model(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:])))
    assert SIMULATIONS.get("dpu_leaky_relu")(graph, QuantPlan("test", left_float={"one": "why"}), QParamsTable()) == []
    assert graph.node("one").attrs["alpha"] == pytest.approx(0.1)


def test_the_slope_of_leaky_relu_is_a_number_of_256ths() -> None:
    simulated, notes = run("LeakyRelu", "dpu_leaky_relu", alpha=0.1)
    np.testing.assert_array_equal(simulated, np.where(GRID < 0, GRID * np.float32(26 / 256), GRID))
    assert "26/256" in notes[0]


def gate(x: np.ndarray) -> np.ndarray:
    """Exact in float64: 2731 * (x + 3) needs far fewer bits."""
    return np.clip(x.astype(np.float64) + 3, 0, 6) * 2731 / 16384


@pytest.mark.parametrize("op", ["HardSigmoid", "Sigmoid"])
def test_the_gate_is_bit_exact(op: str) -> None:
    attributes = {"alpha": 1 / 6, "beta": 0.5} if op == "HardSigmoid" else {}
    simulated, notes = run(op, "dpu_hard_sigmoid" if attributes else "dpu_sigmoid", **attributes)
    np.testing.assert_array_equal(simulated, gate(GRID).astype(np.float32))
    assert len(notes) == 1


def test_a_hard_sigmoid_with_another_slope_is_left_alone() -> None:
    simulated, notes = run("HardSigmoid", "dpu_hard_sigmoid", alpha=0.2, beta=0.5)
    np.testing.assert_allclose(simulated, np.clip(GRID * 0.2 + 0.5, 0, 1), atol=1e-6)
    assert notes == []


@pytest.mark.parametrize("position", [2, 4, 7, 12])
def test_hard_swish_is_bit_exact_at_every_position(position: int) -> None:
    x = np.ldexp(np.arange(-128, 128), -position).astype(np.float32).reshape(1, 1, 16, 16)
    simulated, _ = run("HardSwish", "dpu_hard_swish", x)
    steps = np.minimum(np.floor(gate(x) * 128 + 0.5), 127)
    np.testing.assert_array_equal(simulated, (x.astype(np.float64) * steps / 128).astype(np.float32))


@pytest.mark.parametrize(("bound", "wanted"), [(0.4, 0), (0.5, 0), (1.5, 2), (-300, -128), (300, 127), (-np.inf, -128)])
def test_bounds_become_whole_numbers_of_int8(bound: float, wanted: int) -> None:
    assert chip_bound(bound) == wanted


def test_clip_takes_whole_bounds() -> None:
    low, high = np.float32(-1.4), np.float32(2.6)
    simulated, notes = run("Clip", "dpu_clip", constants={"low": low, "high": high})
    np.testing.assert_array_equal(simulated, np.clip(GRID, -1, 3))
    assert "become -1 and 3" in notes[0]
    simulated, notes = run("Clip", "dpu_clip", constants={"low": np.float32(0)})
    np.testing.assert_array_equal(simulated, np.clip(GRID, 0, 127))
    assert notes == []
