"""Where the noise of a model is measured on few samples: at its outputs, or in front of a few numbers."""

from __future__ import annotations

from onnxq.graph import Graph
from onnxq.ptq.search.loss_on_few import tensors_in_front
from tests.zoo_graphs.net import Net


def test_the_nearest_tensor_with_numbers_enough_is_in_front_of_a_classifier() -> None:
    net = Net("classifier")
    hidden = net.node("MatMul", net.input("x", ["batch", 300]), net.weight(300, 512))
    features = net.node("Relu", hidden)
    net.output(net.node("Sigmoid", net.node("MatMul", features, net.weight(512, 1))), ["batch", 1])
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    assert tensors_in_front(graph) == [features]


def test_a_model_that_reads_its_features_has_none_in_front() -> None:
    net = Net("head")
    net.output(net.node("MatMul", net.input("x", ["batch", 300]), net.weight(300, 2)), ["batch", 2])
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    assert tensors_in_front(graph) == []
