"""Rotation: channels of a residual stream are mixed inside of the weights, and the model computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.graph import Graph
from onnxq.ptq.equalization.residual_stream import find_streams
from onnxq.ptq.equalization.rotation import orthogonal, turn
from tests.integrations.small_language_model import WIDTH as DECODER_WIDTH
from tests.integrations.small_language_model import WORDS, weights
from tests.ptq.equalization.prepared import PER_TENSOR, Feeds, largest_change, ready
from tests.zoo_graphs.net import Net
from tools.zoo.stories_folder import decoder

EQUAL = 1e-5
WIDTH, TOKENS, ROWS = 192, 6, 40
MICROSOFT = "com.microsoft"
LOUD = 5
"""The channel of the stream that is larger than all others, and that norms make small again."""


class Writer(Net):
    """A transformer with its norms first: a table and positions, two feed-forward parts, a norm, a token, a layer."""

    def __init__(self, norm: str, *, outlier: float = 1.0, heavy: bool = False) -> None:
        super().__init__(f"{norm} {outlier}")
        self.norm, self.outlier, self.heavy = norm, outlier, heavy
        if "Skip" in norm:
            self.domains[MICROSOFT] = 1

    def scaled(self, *shape: int) -> np.ndarray:
        """Values with the loud channel along the last axis."""
        values = self.rng.normal(0, shape[0] ** -0.5 if len(shape) > 1 else 0.3, shape)
        values[..., LOUD] *= self.outlier
        return values

    def gains(self) -> str:
        values = self.rng.uniform(0.5, 1.5, WIDTH)
        values[LOUD] /= self.outlier
        return self.floats(values)

    def normed(self, x: str) -> str:
        if self.norm == "LayerNormalization":
            return self.node(self.norm, x, self.gains(), self.bias(WIDTH))
        if self.norm == "SimplifiedLayerNormalization":
            return self.node(self.norm, x, self.gains(), axis=-1, stash_type=1)
        if self.norm == "small operators, centered":
            x = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        square = self.node("ReduceMean", self.node("Pow", x, self.floats(2.0)), axes=[-1])
        root = self.node("Sqrt", self.node("Add", square, self.floats(1e-5)))
        y = self.node("Mul", self.node("Div", x, root), self.gains())
        return self.node("Add", y, self.bias(WIDTH)) if "centered" in self.norm else y

    def part(self, y: str) -> str:
        shape = (WIDTH, 2 * WIDTH)
        weight = self.rng.standard_t(2.5, shape) if self.heavy else self.rng.normal(0, 1, shape)
        hidden = self.node("MatMul", y, self.floats(weight / WIDTH**0.5))
        hidden = self.relu(self.node("Add", hidden, self.bias(2 * WIDTH)))
        return self.node("MatMul", hidden, self.floats(self.scaled(2 * WIDTH, WIDTH)))

    def written(self) -> tuple[onnx.ModelProto, Feeds]:
        ids = self.input("ids", [1, TOKENS], np.int64)
        x = self.node("Gather", self.floats(self.scaled(ROWS, WIDTH)), ids)
        x = self.node("Add", x, self.floats(self.scaled(1, TOKENS, WIDTH)))
        for _ in range(2):
            x = self.block(x)
        last = self.node(
            "Gather", x if "Skip" in self.norm else self.normed(x), self.constant(np.int64(TOKENS - 1)), axis=1
        )
        self.output(self.node("Gemm", last, self.weight(10, WIDTH, gain=1.0), self.bias(10), transB=1), [1, 10])
        random = np.random.default_rng(0)
        return self.model(), [{"ids": random.integers(0, ROWS, (1, TOKENS))} for _ in range(16)]

    def block(self, x: str) -> str:
        if "Skip" not in self.norm:
            return self.node("Add", x, self.node("Add", self.part(self.normed(x)), self.floats(self.scaled(WIDTH))))
        gains = [self.gains(), self.bias(WIDTH)] if self.norm == "SkipLayerNormalization" else [self.gains()]
        names = [self._fresh(what) for what in ("normed", "sum")]
        y = self.part(x)
        self.many(
            self.norm, [x, y, *gains, self.floats(self.scaled(WIDTH))], [names[0], "", "", names[1]], domain=MICROSOFT
        )
        return self.node("Add", names[1], self.part(names[0]))


NORMS = ["LayerNormalization", "SimplifiedLayerNormalization", "small operators", "small operators, centered"]
SKIPS = ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization"]


@pytest.mark.parametrize("norm", [*NORMS, *SKIPS])
def test_the_model_computes_the_same_with_other_weights(norm: str) -> None:
    model, feeds = Writer(norm).written()
    graph = Graph.from_model(model)
    graph.infer_shapes()
    (stream,), declined = find_streams(graph)
    assert not declined
    assert stream.width == WIDTH
    assert stream.centered == (norm not in ("SimplifiedLayerNormalization", "small operators", SKIPS[0]))
    turned = graph.copy()
    turn(turned, stream, orthogonal(WIDTH, 0, keeps_ones=stream.centered))
    assert largest_change(graph, turned, feeds) < EQUAL
    assert [node.op for node in turned.nodes()] == [node.op for node in graph.nodes()]
    for name in (item.constant for item in stream.turned):
        assert not np.allclose(graph.values(name), turned.values(name), atol=1e-3)
    assert all((turned.values(name) == 1).all() for name in stream.gains)


def test_a_decoder_with_a_cache_is_turned_and_keeps_its_keys_and_values() -> None:
    graph = Graph.from_model(decoder(weights(), apart=True))  # type: ignore[no-untyped-call]
    graph.infer_shapes()
    (stream,), declined = find_streams(graph)
    assert not declined
    assert (stream.width, len(stream.turned)) == (DECODER_WIDTH, 2 * 7 + 2)
    turned = graph.copy()
    turn(turned, stream, orthogonal(DECODER_WIDTH, 1, keeps_ones=False))
    ids = np.random.default_rng(0).integers(3, WORDS, (1, 9))
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    feed |= {name: np.zeros((1, 2, 0, 32), np.float32) for name in graph.input_names if name.startswith("past")}
    assert largest_change(graph, turned, [feed]) < EQUAL


@pytest.mark.parametrize("norm", NORMS)
def test_outliers_of_a_stream_no_longer_take_the_steps_of_all_others(norm: str) -> None:
    model, feeds = Writer(norm, outlier=30.0).written()
    case = ready(model, feeds, PER_TENSOR)
    found = case.improve("rotation")
    assert len(found.changed) == 1
    assert found.recalibrate
    assert case.change(found.state.graph) < EQUAL
    assert case.sqnr(case.recalibrated(found.state)) > case.sqnr(case.state) + 5


def test_weights_with_heavy_tails_gain_in_blocks_of_four_bits() -> None:
    model, feeds = Writer("SimplifiedLayerNormalization", heavy=True).written()
    # In smaller blocks, whose ranges are searched, a large weight has few others to do harm to.
    case = ready(model, feeds, "weight_only:bits=4,block=64")
    found = case.improve("rotation")
    assert case.sqnr(case.recalibrated(found.state)) > case.sqnr(case.state) + 1


def declined(model: onnx.ModelProto) -> str:
    found, why = find_streams(Graph.from_model(model))
    assert not found
    return " ".join(why)


def test_norms_that_come_last_are_declined() -> None:
    net = Writer("LayerNormalization")
    x = net.normed(net.node("Gather", net.floats(net.scaled(ROWS, WIDTH)), net.input("ids", [1, TOKENS], np.int64)))
    for _ in range(2):
        x = net.normed(net.node("Add", x, net.part(x)))
    net.output(net.node("MatMul", x, net.weight(WIDTH, 4, fan_in=WIDTH)))
    assert "only where norms come first" in declined(net.model())


def test_a_stream_that_an_activation_makes_is_declined() -> None:
    net = Writer("LayerNormalization")
    x = net.relu(net.node("MatMul", net.input("x", [1, TOKENS, 8]), net.floats(net.scaled(8, WIDTH))))
    x = net.node("Add", x, net.part(net.normed(x)))
    net.output(net.node("MatMul", net.normed(x), net.weight(WIDTH, 4, fan_in=WIDTH)))
    assert "(Relu) makes channels that cannot be mixed" in declined(net.model())


def test_embeddings_that_are_the_last_layer_too_are_declined() -> None:
    assert "a table of embeddings that is the last layer too" in declined(decoder(weights()))  # type: ignore[no-untyped-call]


def test_channels_that_the_model_gives_out_are_declined() -> None:
    net = Writer("LayerNormalization")
    x = net.node("Gather", net.floats(net.scaled(ROWS, WIDTH)), net.input("ids", [1, TOKENS], np.int64))
    net.output(net.node("Add", x, net.part(net.normed(x))))
    assert "is an output of the model" in declined(net.model())


@pytest.mark.parametrize("width", [1, 7, 48, 64])
@pytest.mark.parametrize("keeps_ones", [True, False])
def test_the_matrix_is_orthogonal_and_keeps_the_mean_where_it_has_to(width: int, *, keeps_ones: bool) -> None:
    matrix = orthogonal(width, 3, keeps_ones=keeps_ones)
    assert np.abs(matrix @ matrix.T - np.eye(width)).max() < 1e-12
    assert not keeps_ones or np.abs(np.ones(width) @ matrix - 1).max() < 1e-12
