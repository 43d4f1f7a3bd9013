"""ONNX -> torch -> ONNX: every model of the zoo computes in torch, and written back, what onnxruntime computes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.torchnet import TorchNet, to_torch
from onnxq.torchnet.values import from_numpy, to_numpy
from tests.networks.exported import NETWORKS, exported, samples
from tests.zoo import ZOO, runnable

TOLERANCE = 1e-5
HALF_TOLERANCE = 4e-3
"""A few steps of float16, in which sums of different order differ."""


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _same(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, wanted)
        return
    known = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(found), known)
    largest = float(np.abs(wanted[known]).max(initial=1.0))
    np.testing.assert_allclose(found[known], wanted[known], rtol=tolerance, atol=tolerance * largest)


def _net_outputs(net: TorchNet, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        outputs = net(*[from_numpy(feed[name]) for name in net.graph.input_names])
    return [to_numpy(value) for value in (outputs if isinstance(outputs, tuple) else (outputs,))]


@pytest.mark.parametrize("name", sorted(ZOO))
def test_a_model_of_the_zoo_survives_the_round_trip(name: str) -> None:
    case = ZOO[name]()
    if name == "unknown_custom_operator":
        with pytest.raises(
            UnsupportedError, match=r"node '.*': operator .*::.* of opset 1 has no torch implementation"
        ):
            to_torch(Graph.from_model(case.model))
        return
    if not case.runs_in_onnxruntime:
        to_torch(Graph.from_model(case.model))  # it can be made; nobody can say what it should compute
        return
    model = runnable(case.model)
    session = _session(model.SerializeToString())
    net = to_torch(Graph.from_model(model)).eval()
    back = _session(net.to_graph().to_model(given_names=True).SerializeToString())
    half = {tensor.data_type for tensor in model.graph.initializer} & {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    for feed in case.feeds[:2]:
        wanted = session.run(None, feed)
        for one, other, again in zip(_net_outputs(net, feed), wanted, back.run(None, feed), strict=True):
            _same(one, other, HALF_TOLERANCE if half else TOLERANCE)
            np.testing.assert_array_equal(again, other)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_network_survives_the_round_trip(name: str) -> None:
    graph = Graph.load(exported(name))
    session = _session(exported(name).read_bytes())
    net = to_torch(graph).eval()
    for row in range(3):
        feed = {key: values[row : row + 1] for key, values in samples(name, 3).items()}
        for one, other in zip(_net_outputs(net, feed), session.run(None, feed), strict=True):
            _same(one, other, TOLERANCE)
    assert set(net.state_dict()) <= set(graph.tensor_names())
