"""Decoders are judged by their next tokens: noise of logits that changes no probability counts nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.ptq.search.evaluator import Evaluator
from onnxq.ptq.search.next_tokens import logits_of, root_chances
from tests.integrations.small_language_model import HEADS, WIDTH, WORDS, weights
from tools.zoo.stories_folder import decoder


def reference() -> Graph:
    return Graph.from_model(decoder(weights()))  # type: ignore[no-untyped-call]


def feeds(graph: Graph) -> list[dict[str, np.ndarray]]:
    ids = np.random.default_rng(0).integers(3, WORDS, (1, 7))
    past = [name for name in graph.input_names if name.startswith("past")]
    empty = np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32)
    return [{"input_ids": ids, "attention_mask": np.ones_like(ids), **dict.fromkeys(past, empty)}]


def with_noise(noise: np.ndarray) -> Graph:
    """The decoder with a constant added to its logits."""
    graph = reference()
    graph.insert_after("logits", "Add", extra_inputs=[graph.add_constant("noise", noise.astype(np.float32))])
    return graph


def test_a_shift_of_all_logits_is_no_loss() -> None:
    graph = reference()
    evaluator = Evaluator(graph, None, feeds(graph))
    assert evaluator.of_graph(with_noise(np.full(WORDS, 3.0))).value > 90


def test_the_noise_is_half_of_the_divergence() -> None:
    graph = reference()
    noisy = with_noise(np.random.default_rng(1).normal(0, 0.05, WORDS))
    decibels = Evaluator(graph, None, feeds(graph)).of_graph(noisy).value
    divergence = Evaluator(graph, None, feeds(graph), metric="kl").of_graph(noisy).value
    assert decibels == pytest.approx(-10 * math.log10(divergence / 2), abs=0.1)


def test_a_model_without_a_cache_is_judged_by_its_outputs() -> None:
    assert logits_of(reference(), {"present.0.key"}) == "logits"
    assert logits_of(reference(), ()) is None


def test_chances_add_up_to_one_whatever_the_logits_are() -> None:
    roots = root_chances(np.array([[1e4, 1e4 - 1, -1e4], [0.0, 0.0, 0.0]], np.float32))
    np.testing.assert_allclose(np.square(roots).sum(axis=-1), 1, rtol=1e-6)
