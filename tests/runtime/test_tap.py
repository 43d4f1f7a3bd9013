"""Tensors seen by a tap are the tensors onnxruntime computes, wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnxq.errors import ConfigError, DataError, ModelError
from onnxq.runtime.session import find_provider, input_infos
from onnxq.runtime.tap import Tap
from tests.runtime.small_graphs import build, chain, constant, feeds, info


def test_inputs_intermediates_and_outputs_are_seen() -> None:
    tap = Tap(chain(), ["x", "t0", "t1", "y"])
    for feed in feeds(3):
        found = tap.run(feed)
        for name, factor in (("x", 1), ("t0", 2), ("t1", 4), ("y", 8)):
            np.testing.assert_array_equal(found[name], feed["x"] * factor)


def test_the_graph_itself_is_not_changed() -> None:
    graph = chain()
    before = graph.to_model().SerializeToString(deterministic=True)
    Tap(graph, ["t0", "t1"], reduce=["t1"]).run(feeds(1)[0])
    Tap(graph, ["t0", "t1"], reduce=["t1"], pinned=["y"], arranged=True).run(feeds(1)[0])
    assert graph.to_model().SerializeToString(deterministic=True) == before


def test_an_execution_provider_is_found_by_its_short_name() -> None:
    assert find_provider(None) == find_provider("cpu") == find_provider("CPUExecutionProvider")


def test_a_provider_that_is_not_there_is_an_error_that_lists_the_others() -> None:
    with pytest.raises(ConfigError, match=r"'tpu' is not part .* Available: .*CPUExecutionProvider"):
        find_provider("tpu")


def test_an_unknown_tensor_is_named_with_its_neighbours() -> None:
    with pytest.raises(ModelError, match="no tensor called 't9'"):
        Tap(chain(), ["t9"])


def test_a_feed_that_onnxruntime_refuses_is_named() -> None:
    with pytest.raises(DataError, match=r"on sample 1: .*x"):
        Tap(chain(), ["t0"]).run({"x": np.zeros((1, 4, 4), np.float32)}, "sample 1")


def test_input_infos_carry_type_and_symbolic_shape() -> None:
    (found,) = input_infos(chain())
    assert (found.name, found.dtype, found.shape) == ("x", np.dtype(np.float32), ("N", 4))


def test_large_models_run_from_a_file_with_external_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.runtime.session.MOST_IN_MEMORY", 100)
    big = np.random.default_rng(1).normal(size=(4, 1000)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="matmul"),
        helper.make_node("Relu", ["t"], ["y"], name="relu"),
    ]
    graph = build(nodes, [info("x", ["N", 4])], [info("y", ["N", 1000])], [constant("w", big)])
    data = feeds(1)
    np.testing.assert_allclose(Tap(graph, ["t"]).run(data[0])["t"], data[0]["x"] @ big, rtol=1e-5, atol=1e-6)
