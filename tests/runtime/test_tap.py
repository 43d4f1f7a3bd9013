"""Tensors seen by a tap are the tensors onnxruntime computes, wherever they lie and however memory is divided."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import DataError, ModelError
from onnxq.graph import Graph
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.runtime.session import input_infos
from onnxq.runtime.tap import Observation, Tap, collect, observe

FLOAT = TensorProto.FLOAT


def info(name: str, shape: list[int | str | None] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, values: object, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def build(nodes, inputs, outputs, initializers=(), opset: int = 17) -> Graph:  # type: ignore[no-untyped-def]
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model)
    return Graph.from_model(model)


def chain(length: int = 3, shape: tuple[int | str, ...] = ("N", 4)) -> Graph:
    """y = x * 2 * 2 * ..., with intermediate tensors t0, t1, ..."""
    nodes = [
        helper.make_node("Mul", ["x" if i == 0 else f"t{i - 1}", "two"], [f"t{i}"], name=f"mul{i}")
        for i in range(length)
    ]
    nodes.append(helper.make_node("Identity", [f"t{length - 1}"], ["y"], name="last"))
    return build(nodes, [info("x", list(shape))], [info("y", list(shape))], [constant("two", 2.0)])


def feeds(count: int, rows: int = 1) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    return [{"x": generator.normal(size=(rows, 4)).astype(np.float32)} for _ in range(count)]


def seen_by(
    graph: Graph, tensors: list[str], data: list[dict[str, np.ndarray]], **options: int
) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {name: [] for name in tensors}

    def visit(seen: Observation) -> None:
        found[seen.tensor].append(seen.values.copy())

    observe(graph, tensors, data, visit, **options)  # type: ignore[arg-type]
    return found


def test_inputs_intermediates_and_outputs_are_seen_once_per_feed() -> None:
    data = feeds(3)
    found = seen_by(chain(), ["x", "t0", "t1", "y"], data)
    for position, feed in enumerate(data):
        for name, factor in (("x", 1), ("t0", 2), ("t1", 4), ("y", 8)):
            np.testing.assert_array_equal(found[name][position], feed["x"] * factor)
    assert all(len(arrays) == 3 for arrays in found.values())


def test_the_graph_itself_is_not_changed() -> None:
    graph = chain()
    before = graph.to_model().SerializeToString(deterministic=True)
    Tap(graph, ["t0", "t1"]).run(feeds(1)[0])
    assert graph.to_model().SerializeToString(deterministic=True) == before


def test_a_constant_is_seen_once_with_its_values() -> None:
    found = seen_by(chain(), ["two", "t0"], feeds(4))
    assert [float(v) for v in found["two"]] == [2.0]
    assert len(found["t0"]) == 4


def alone(statistics: dict[str, RangeStatistic]) -> dict[str, list[RangeStatistic]]:
    return {name: [statistic] for name, statistic in statistics.items()}


def test_a_small_memory_limit_divides_the_work_and_changes_nothing() -> None:
    graph, data = chain(6), feeds(3, rows=8)
    names = [f"t{i}" for i in range(6)]
    whole = {name: RangeStatistic() for name in names}
    divided = {name: RangeStatistic() for name in names}
    assert collect(graph, data, alone(whole)).passes == 1
    report = collect(graph, data, alone(divided), memory_limit_bytes=2 * 8 * 4 * 4)
    assert report.passes == 3
    assert report.samples == 24
    for name in names:
        assert divided[name].minimum == whole[name].minimum
        assert divided[name].maximum == whole[name].maximum
        assert divided[name].count == whole[name].count


def test_tensors_larger_than_declared_are_measured_and_divided() -> None:
    # The declared shape is unknown, so the estimate (the size of the input) is 64 times too small.
    nodes = [helper.make_node("Expand", ["x", "shape"], [f"t{i}"], name=f"e{i}") for i in range(4)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(4)], ["y"], name="sum"))
    graph = build(nodes, [info("x", [1, 4])], [info("y", [None, None])], [constant("shape", [64, 4], np.int64)])
    statistics = {f"t{i}": RangeStatistic() for i in range(4)}
    report = collect(graph, feeds(2), alone(statistics), memory_limit_bytes=2 * 64 * 4 * 4)
    assert report.passes == 2
    assert all(int(s.count[0]) == 2 * 64 * 4 for s in statistics.values())


def test_varying_shapes_are_seen_whole() -> None:
    data = [feeds(1, rows)[0] for rows in (1, 5, 2)]
    statistic = HistogramStatistic()
    report = collect(chain(), data, {"t0": [statistic]})
    assert int(statistic.count[0]) == 8 * 4
    assert report.samples == 8


def test_nan_and_infinity_are_named_with_tensor_count_and_sample() -> None:
    data = feeds(4)
    data[2]["x"][0, :3] = [np.nan, np.inf, -np.inf]
    report = collect(chain(), data, {"x": [RangeStatistic()], "t0": [RangeStatistic()]})
    assert report.warnings == (
        "tensor 'x': 3 NaN/inf values, first in sample 2; left out of its range",
        "tensor 't0': 3 NaN/inf values, first in sample 2; left out of its range",
    )


def test_progress_counts_the_runs_of_all_passes() -> None:
    calls: list[tuple[int, int | None]] = []
    statistics = {f"t{i}": RangeStatistic() for i in range(4)}
    collect(
        chain(4),
        feeds(2),
        alone(statistics),
        memory_limit_bytes=32,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_samples_is_an_error() -> None:
    with pytest.raises(DataError, match="no samples"):
        collect(chain(), [], {"t0": [RangeStatistic()]})


def test_an_unknown_tensor_is_named_with_its_neighbours() -> None:
    with pytest.raises(ModelError, match="no tensor called 't9'"):
        Tap(chain(), ["t9"])


def test_a_feed_that_onnxruntime_refuses_is_named() -> None:
    with pytest.raises(DataError, match=r"on sample 1: .*x"):
        seen_by(chain(), ["t0"], [feeds(1)[0], {"x": np.zeros((1, 4, 4), np.float32)}])


def test_input_infos_carry_type_and_symbolic_shape() -> None:
    (found,) = input_infos(chain())
    assert (found.name, found.dtype, found.shape) == ("x", np.dtype(np.float32), ("N", 4))


def test_large_models_run_from_a_file_with_external_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.runtime.session.INLINE_BYTES", 100)
    big = np.random.default_rng(1).normal(size=(4, 1000)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="matmul"),
        helper.make_node("Relu", ["t"], ["y"], name="relu"),
    ]
    graph = build(nodes, [info("x", ["N", 4])], [info("y", ["N", 1000])], [constant("w", big)])
    data = feeds(1)
    np.testing.assert_allclose(seen_by(graph, ["t"], data)["t"][0], data[0]["x"] @ big, rtol=1e-5, atol=1e-6)
