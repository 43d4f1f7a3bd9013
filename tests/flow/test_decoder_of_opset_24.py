"""A decoder of twelve layers with a cache, in operators of opset 24: quantized, simulated, trained, and written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch.nn.functional import cross_entropy

import onnxq
from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.qat import deliver
from onnxq.qat import prepare as prepare_training
from onnxq.session.prepare import prepare
from tests.networks.decoder import SHARED, decoder, turns
from tests.passes.equivalence import run_model

LAYERS = 12
WHOLE = ("Attention", "RMSNormalization", "RotaryEmbedding", "Swish")
PRODUCTS = {"tensorrt": 7 + 2, "onnxruntime": 7, "openvino": 7 + 2}
"""Quantized products of a layer: those of its weights, and of its attention where that is decomposed."""

Outputs = dict[str, np.ndarray]


def session_outputs(path: Path, feed: dict[str, np.ndarray]) -> Outputs:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def decibels(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10(np.square(wanted).sum() / np.square(wanted - got).sum()))


@pytest.mark.parametrize(
    "target", ["tensorrt", *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnxruntime", "openvino"))]
)
def test_a_decoder_with_a_cache_is_quantized_and_simulated(target: str, tmp_path: Path) -> None:
    model, feeds = decoder(LAYERS), turns(6, LAYERS)
    result = onnxq.quantize(decoder(LAYERS), backend=target, data=feeds, config={"effort": 0}, out=tmp_path)
    written = Graph.load(result.model)
    kinds = {node.op for node in written.nodes()}
    assert kinds.isdisjoint(WHOLE) == (target != "onnxruntime")
    quantized = [name for name in result.plan.quantized if name in written_names(written, "MatMul")]
    assert len(quantized) == PRODUCTS[target] * LAYERS + 1
    assert all(result.plan.left_float.values())
    assert written.input_names == [info.name for info in model.graph.input]
    prepared = prepare(decoder(LAYERS), target)
    simulated, _ = simulate(prepared.graph, result.plan, result.qparams, prepared.backend)
    for feed in feeds[:2]:
        wanted, made = run_model(model, feed), session_outputs(result.model, feed)
        assert decibels(wanted["logits"], made["logits"]) > 18
        stored = feed["past.0.key"].shape[2] + feed["tokens"].shape[1]
        assert made["present.11.value"].shape == (1, SHARED, stored, 8)
        as_simulated = run_model(simulated.to_model(given_names=True), feed)
        assert decibels(made["logits"], as_simulated["logits"]) > 30


def written_names(graph: Graph, op: str) -> set[str]:
    return {node.name for node in graph.nodes(op)}


@pytest.mark.parametrize(
    ("target", "layers"),
    [("onnxruntime", 2), *(pytest.param(name, LAYERS, marks=pytest.mark.slow) for name in PRODUCTS)],
)
def test_a_decoder_with_a_cache_is_trained_for_a_few_steps(target: str, layers: int, tmp_path: Path) -> None:
    feeds = turns(4, layers)
    net = prepare_training(decoder(layers), target, feeds)
    names = net.graph.input_names
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    losses = []
    for _ in range(3):
        total = torch.zeros(())
        for feed in feeds:
            logits = net(*(torch.from_numpy(feed[name]) for name in names))[0]
            following = torch.from_numpy((feed["tokens"] + 1) % logits.shape[-1])
            total = total + cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(total))
    assert losses[-1] < losses[0]
    result = deliver(net, tmp_path / "out")
    assert all(found["within"] == 1.0 for found in result.report["file_against_net"])
