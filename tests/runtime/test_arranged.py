"""Arranged sessions show the same bits as ordinary ones, in less memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.calibrate import calibrate
from onnxq.graph import Graph
from onnxq.runtime import tap
from onnxq.runtime.arranged import put_early, read_blocked
from onnxq.runtime.collect import _Run
from onnxq.session.prepare import make_plan, prepare
from tests.zoo import ZOO

CASES = sorted(ZOO)[::4]


@pytest.mark.parametrize("name", CASES)
def test_the_parameters_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO[name]()
    found = []
    for arranged in (False, True):
        monkeypatch.setattr(_Run, "_arranging_pays", lambda self, bytes_seen, arranged=arranged: arranged)
        prepared = prepare(Graph.from_model(case.model), "onnxruntime", {"observer": "percentile:99.9"})
        found.append(calibrate(prepared.graph, make_plan(prepared), case.feeds).qparams.to_json())
    assert found[0] == found[1]


def graph_of(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.GraphProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)], infos)


def blocked_chain(channels: int) -> onnx.GraphProto:
    """Two blocked tensors with copies, as onnxruntime writes them: the copies and their readers at the end."""
    nodes = [
        helper.make_node("Conv", ["x"], ["b0"], name="c0"),
        helper.make_node("Conv", ["b0"], ["b1"], name="c1"),
        helper.make_node("ReorderOutput", ["b1"], ["t1"], name="o1", channels=channels),
        helper.make_node("ReduceMax", ["t1"], ["m1"], name="r1"),
        helper.make_node("ReorderOutput", ["b0"], ["t0"], name="o0", channels=channels),
        helper.make_node("ReduceMax", ["t0"], ["m0"], name="r0"),
    ]
    return graph_of(nodes, ["m0", "m1", "t1"])


def test_readers_stand_directly_behind_what_they_read() -> None:
    graph = blocked_chain(24)
    assert read_blocked(graph, {"r0", "r1"}, {"t1"}) == {}
    put_early(graph, {"r0", "r1"})
    assert [node.name for node in graph.node] == ["c0", "o0", "r0", "c1", "o1", "r1"]


def test_whole_blocks_are_read_without_a_copy() -> None:
    graph = blocked_chain(32)
    assert read_blocked(graph, {"r0", "r1"}, {"t1"}) == {"t1": "b1"}
    put_early(graph, {"r0", "r1"})
    assert [(node.name, node.input[0]) for node in graph.node] == [
        ("c0", "x"),
        ("r0", "b0"),
        ("c1", "b0"),
        ("r1", "b1"),
    ]
    assert [output.name for output in graph.output] == ["m0", "m1", "b1"]


def test_where_the_order_of_values_matters_the_copy_stays() -> None:
    graph = blocked_chain(32)
    assert read_blocked(graph, {"r0", "r1"}, {}) == {}
    assert "o1" in [node.name for node in graph.node]


def test_a_graph_that_onnxruntime_cannot_read_again_is_run_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **options: object) -> None:
        raise tap.ModelError("onnxruntime cannot load the model")

    monkeypatch.setattr(tap, "arranged_session", fails)
    case = ZOO[CASES[0]]()
    graph = Graph.from_model(case.model)
    name = str(graph.gs.nodes[0].outputs[0].name)
    seen = tap.Tap(graph, [name], arranged=True).run(case.feeds[0])
    np.testing.assert_array_equal(seen[name], tap.Tap(graph, [name]).run(case.feeds[0])[name])


MEASURE = """
import sys
import numpy as np
from onnx import helper
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.runtime.collect import Engine, collect
from tests.runtime.small_graphs import build, constant, info

def kilobytes(what):
    return int(next(line for line in open("/proc/self/status") if line.startswith(what)).split()[1])

kind, limit = sys.argv[1], int(sys.argv[2])
random, channels, size, depth = np.random.default_rng(0), 16, 224, 14
weights = [constant("w0", random.normal(0, 0.2, (channels, 3, 3, 3)))]
weights += [constant(f"w{i}", random.normal(0, 0.1, (channels, channels, 3, 3))) for i in range(1, depth)]
nodes = []
for i in range(depth):
    inputs = ["x" if i == 0 else f"r{i-1}", f"w{i}"]
    nodes.append(helper.make_node("Conv", inputs, [f"c{i}"], name=f"c{i}", pads=[1] * 4))
    nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"r{i}"))
last = f"r{depth - 1}"
graph = build(nodes, [info("x", [1, 3, size, size])], [info(last, [1, channels, size, size])], weights)
graph.infer_shapes()
make = RangeStatistic if kind == "range" else HistogramStatistic
statistics = {f"r{i}": [make()] for i in range(depth)}
import onnxruntime
data = [{"x": random.normal(size=(1, 3, size, size)).astype(np.float32)} for _ in range(3)]
before = kilobytes("VmRSS")
collect(graph, data, statistics, engine=Engine(workers=1, memory_limit=limit))
print((kilobytes("VmHWM") - before) / (channels * size * size * 4 / 1024))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("kind", ["range", "histogram"])
def test_a_memory_limit_is_one_for_onnxruntime_too(kind: str) -> None:
    """14 tensors of 3 MB, of which 2 may be held: onnxruntime must not keep the others alive behind our back."""
    root = Path(__file__).parents[2]
    held = []
    for limit in (2 * 16 * 224 * 224 * 4 + 1000, 1 << 40):
        command = [sys.executable, "-c", MEASURE, kind, str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        held.append(float(done.stdout))
    limited, unlimited = held
    assert limited < 16, "in sizes of one tensor; kernels need some of their own"
    assert unlimited > 24, "otherwise this test shows nothing"
