"""Models that select rows by their data: outputs are compared for what the float model selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.config import read_config
from onnxq.graph import Graph
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.session.prepare import chosen_backend
from onnxq.verify import ChecksFailed
from onnxq.verify.selections import GivenSession, indices_of, selecting_nodes, with_given_indices
from tests.zoo_graphs.net import Net

ROWS, WIDTH, KEPT = 96, 16, 24


def _heads(net: Net) -> tuple[str, str]:
    """Boxes [1, ROWS, 4] and scores [1, ROWS], many of them nearly equal."""
    x = net.input("x", [1, ROWS, WIDTH])
    hidden = net.node("Relu", net.node("MatMul", x, net.weight(WIDTH, WIDTH, fan_in=WIDTH)), output="hidden")
    boxes = net.node("MatMul", hidden, net.weight(WIDTH, 4, fan_in=WIDTH), output="boxes")
    raw = net.node("MatMul", hidden, net.weight(WIDTH, 1, fan_in=WIDTH))
    return boxes, net.node("Squeeze", net.node("Sigmoid", raw), net.ints(-1), output="scores")


def _rows(net: Net, values: str, indices: str) -> str:
    at = net.node("Expand", net.node("Unsqueeze", indices, net.ints(-1)), net.ints(1, KEPT, 4))
    return net.node("GatherElements", values, at, axis=1)


def best_rows() -> onnx.ModelProto:
    """The end of a detector without NonMaxSuppression: its best rows by score, with their scores."""
    net = Net("best_rows")
    boxes, scores = _heads(net)
    best, indices = net.many("TopK", (scores, net.ints(KEPT)), ("best", "indices"), name="select", axis=1)
    rows = _rows(net, boxes, indices)
    net.output(net.node("Concat", rows, net.node("Unsqueeze", best, net.ints(-1)), axis=2, output="found"))
    return net.model()


def rows_in_the_middle() -> onnx.ModelProto:
    """A transformer detector: the best rows go through further layers."""
    net = Net("rows_in_the_middle")
    boxes, scores = _heads(net)
    _, indices = net.many("TopK", (scores, net.ints(KEPT)), ("best", "indices"), name="select", axis=1)
    rows = _rows(net, boxes, indices)
    net.output(net.node("MatMul", rows, net.weight(4, 8, fan_in=4), output="found"))
    return net.model()


def suppressed() -> onnx.ModelProto:
    """Boxes that are left by NonMaxSuppression: nobody knows how many."""
    net = Net("suppressed")
    boxes, scores = _heads(net)
    inputs = (boxes, net.node("Unsqueeze", scores, net.ints(1)), net.ints(KEPT), net.floats([0.5]), net.floats([0.5]))
    indices = net.node("NonMaxSuppression", *inputs, name="select", output="indices", center_point_box=1)
    at = net.node("Gather", indices, net.constant(np.int64(2)), axis=1)
    net.output(net.node("Gather", boxes, at, axis=1, output="found"), [1, "n", 4])
    return net.model()


def above() -> onnx.ModelProto:
    """Rows whose score is above a threshold."""
    net = Net("above")
    boxes, scores = _heads(net)
    indices = net.node("NonZero", net.node("Greater", scores, net.floats(0.5)), name="select", output="indices")
    at = net.node("Gather", indices, net.constant(np.int64(1)), axis=0)
    net.output(net.node("Gather", boxes, at, axis=1, output="found"), [1, "n", 4])
    return net.model()


MODELS = (best_rows, rows_in_the_middle, suppressed, above)


def samples(count: int = 16) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.normal(0, 1, (1, ROWS, WIDTH)).astype(np.float32)} for _ in range(count)]


def _run(model: Path | bytes, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    source = str(model) if isinstance(model, Path) else model
    return np.asarray(ort.InferenceSession(source).run(["found"], dict(feed))[0])


def _quantized(make: Callable[[], onnx.ModelProto], **config: Any) -> onnxq.Result:
    return onnxq.quantize(make(), backend="onnxruntime", data=samples(), config={"effort": 0, **config})


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_rows_that_change_places_are_no_noise(make: Callable[[], onnx.ModelProto]) -> None:
    result = _quantized(make)

    (check,) = result.report["checks"]["outputs"]
    assert check["sqnr_db"] > 20
    assert check["reshaped"] == 0
    assert min([check["sqnr_db"], *check.get("parts_db", {}).values()]) > 20
    (selection,) = result.report["checks"]["selections"]
    assert selection["node"] == "select"
    assert 0.5 < selection["agreement"] <= 1
    assert not [line for line in result.report["warnings"] if "another shape" in line]


@pytest.mark.parametrize("make", [best_rows, rows_in_the_middle], ids=lambda make: make.__name__)
def test_compared_as_they_come_the_same_files_would_look_bad(make: Callable[[], onnx.ModelProto]) -> None:
    result = _quantized(make)
    signal = noise = 0.0
    for feed in samples()[3::4]:
        expected, found = _run(make().SerializeToString(), feed), _run(result.model, feed)
        signal += float(np.square(expected).sum())
        noise += float(np.square(expected - found).sum())

    assert 10 * np.log10(signal / noise) < 15


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_given_its_own_indices_a_model_computes_what_it_computes_anyway(make: Callable[[], onnx.ModelProto]) -> None:
    graph = Graph.load(_quantized(make).model)
    changed, inputs = with_given_indices(graph, ["select"])
    model = graph.to_model()
    model.graph.output.append(onnx.ValueInfoProto(name=indices_of(graph, "select")))
    whole = ort.InferenceSession(model.SerializeToString(), _unoptimized())
    given = ort.InferenceSession(changed.to_model().SerializeToString(), _unoptimized())
    for feed in samples(4):
        expected, indices = whole.run(["found", indices_of(graph, "select")], feed)
        (found,) = given.run(["found"], {**feed, inputs["select"]: indices})
        assert np.array_equal(expected, found)
    assert graph.input_names == ["x"], "the given graph is not changed"


def _unoptimized() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@pytest.mark.parametrize("make", [best_rows, suppressed], ids=lambda make: make.__name__)
def test_what_is_lost_all_the_same(make: Callable[[], onnx.ModelProto]) -> None:
    lost = {"tensor": {"hidden": {"observer": "fixed:low=0,high=20000"}}}

    with pytest.raises(ChecksFailed, match=r"'found.*(below the required|is silent)"):
        _quantized(make, **lost)


def test_what_is_selected_by_exact_values_is_left_alone() -> None:
    net = Net("masked")
    x, mask = net.input("x", [1, 8]), net.input("mask", [8], np.int64)
    at = net.node("Gather", net.node("NonZero", mask), net.constant(np.int64(0)), axis=0)
    net.output(net.node("Gather", net.gemm(x, 8, 8), at, axis=1), [1, "n"])

    assert selecting_nodes(Graph.from_model(net.model())) == ()


def test_improvements_are_evaluated_by_the_same_rows() -> None:
    model = best_rows()
    result = onnxq.quantize(model, backend="onnxruntime", data=samples(32), config={"effort": 1})

    told = result.report["improvements"]
    assert told["before"] > 20
    assert told["after"] >= told["before"]


def test_a_metric_of_the_user_sees_what_the_model_selects_by_itself() -> None:
    graph = Graph.from_model(best_rows())
    seen: list[np.ndarray] = []

    def metric(outputs: Mapping[str, np.ndarray], labels: Any) -> float:
        seen.append(outputs["found"])
        return 0.0

    result = _quantized(best_rows)
    backend = chosen_backend("onnxruntime", read_config({}))
    Evaluator(graph, backend, samples(2), metric=metric)(State(graph, result.plan, result.qparams))

    expected = np.concatenate([_run(result.model, feed) for feed in samples(2)])
    assert np.allclose(seen[-1], expected, atol=0.05)


def test_without_selecting_nodes_a_session_is_that_of_the_graph() -> None:
    graph = Graph.from_model(best_rows())
    made: list[Graph] = []
    GivenSession.of(graph, (), lambda one, further: made.append(one))
    assert made == [graph]


def _ruined(make: Callable[[], onnx.ModelProto]) -> onnxq.Result:
    return _quantized(make, tensor={"hidden": {"observer": "fixed:low=0,high=20000"}})


def labelled() -> onnx.ModelProto:
    """A classifier whose output is the number of the best class, as a float."""
    net = Net("labelled")
    x = net.input("x", [1, ROWS, WIDTH])
    hidden = net.node("Relu", net.node("MatMul", x, net.weight(WIDTH, WIDTH, fan_in=WIDTH)), output="hidden")
    scores = net.node("MatMul", hidden, net.weight(WIDTH, 3, fan_in=WIDTH))
    _, best = net.many("TopK", (scores, net.ints(1)), ("top", "best"), name="select", axis=2)
    net.output(net.node("Cast", best, to=onnx.TensorProto.FLOAT, output="found"), [1, ROWS, 1])
    return net.model()


def test_an_output_of_indices_alone_is_the_model_s_own() -> None:
    with pytest.raises(ChecksFailed, match="'found' is silent"):
        _ruined(labelled)


def test_an_output_of_indices_alone_is_evaluated_as_the_model_s_own() -> None:
    graph = Graph.from_model(labelled())
    result = _quantized(labelled)
    backend = chosen_backend("onnxruntime", read_config({}))
    score = Evaluator(graph, backend, samples(4))(State(graph, result.plan, result.qparams))

    assert score.sqnr_db["found"] < 40, "classes that change count"


def counted() -> onnx.ModelProto:
    """As many rows as scores are above a threshold, times a ramp of that length."""
    net = Net("counted")
    boxes, scores = _heads(net)
    above = net.node("Cast", net.node("Greater", scores, net.floats(0.5)), to=onnx.TensorProto.INT64)
    many = net.node("Reshape", net.node("ReduceSum", above, net.ints(1), keepdims=0), net.ints(1))
    best, _ = net.many("TopK", (scores, many), ("best", "indices"), name="select", axis=1)
    number = net.node("Squeeze", many, net.ints(0))
    ramp = net.node("Range", net.constant(np.int64(0)), number, net.constant(np.int64(1)))
    net.output(net.node("Mul", best, net.node("Cast", ramp, to=onnx.TensorProto.FLOAT), output="found"), [1, "n"])
    net.output(boxes, [1, ROWS, 4])
    return net.model()


def compressed() -> onnx.ModelProto:
    """Rows that Compress leaves, and the best of them."""
    net = Net("compressed")
    boxes, scores = _heads(net)
    kept = net.node("Reshape", net.node("Greater", scores, net.floats(0.4)), net.ints(ROWS))
    left = net.node("Compress", scores, kept, axis=1)
    _, indices = net.many("TopK", (left, net.ints(KEPT)), ("best", "indices"), name="select", axis=1)
    net.output(_rows(net, net.node("Compress", boxes, kept, axis=1), indices), [1, KEPT, 4])
    return net.model()


@pytest.mark.parametrize("make", [counted, compressed], ids=lambda make: make.__name__)
def test_where_other_sizes_follow_from_the_data_nothing_is_given(make: Callable[[], onnx.ModelProto]) -> None:
    assert selecting_nodes(Graph.from_model(make())) == ()

    result = onnxq.quantize(
        make(),
        backend="onnxruntime",
        data=samples(),
        config={"improvements": ["bias_correction"], "minimum_sqnr_db": -100},
    )
    assert "selections" not in result.report["checks"]


def test_a_selection_behind_another_and_a_sort_have_no_figure() -> None:
    net = Net("sorted")
    boxes, scores = _heads(net)
    _, order = net.many("TopK", (scores, net.ints(ROWS)), ("sorted", "order"), name="sort", axis=1)
    arranged = net.node("GatherElements", scores, order, axis=1)
    best, _ = net.many("TopK", (arranged, net.ints(KEPT)), ("best", "indices"), name="again", axis=1)
    net.output(net.node("Identity", best, output="found"), [1, KEPT])
    net.output(boxes, [1, ROWS, 4])
    result = onnxq.quantize(net.model(), backend="onnxruntime", data=samples(), config={"effort": 0})

    assert "selections" not in result.report["checks"]
    assert result.report["sqnr_db"]["found"] > 20


@pytest.mark.parametrize("metric", ["kl", "agreement"])
def test_what_is_compared_with_the_float_model_is_compared_for_its_rows(metric: str) -> None:
    graph = Graph.from_model(best_rows())
    result = _quantized(best_rows)
    backend = chosen_backend("onnxruntime", read_config({}))
    score = Evaluator(graph, backend, samples(4), metric=metric)(State(graph, result.plan, result.qparams))

    assert min(score.sqnr_db.values()) > 20


def test_kernels_that_fail_in_a_run_fail_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself is run too, as everybody would run it."""
    from onnxq.verify import checks

    class Failing:
        def run(self, *_: object) -> None:
            raise RuntimeError("no such kernel")

    real = checks.fused_session
    monkeypatch.setattr(checks, "fused_session", lambda path, **options: (Failing(), real(path, **options)[1]))
    with pytest.raises(Exception, match="no such kernel"):
        _quantized(best_rows)
