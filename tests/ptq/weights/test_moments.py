"""Second moments: what numpy computes of all rows at once, shared where layers read the same, bounded in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnxq.graph import Graph
from onnxq.ptq.weights import moments as moments_module
from onnxq.ptq.weights.layers import layers_of, quantized_weights, source_of, with_moments
from onnxq.ptq.weights.moments import Moments, Source, collect_moments, in_batches
from onnxq.ptq.weights.rows import MatrixRows
from onnxq.runtime.tap import Tap
from tests.golden_graphs import transformer
from tests.ptq.calibrated import Ready, digits, ready


@pytest.fixture(scope="module")
def block() -> Ready:
    golden = transformer()
    return ready(golden.model, golden.samples, "onnxruntime")


def test_moments_are_those_of_all_rows(block: Ready) -> None:
    tensor = block.state.graph.input_names[0]
    source = Source(tensor, MatrixRows(), 1, 24)
    (found,) = collect_moments(block.state.graph, [source], block.task.samples).values()
    rows = np.concatenate([feed[tensor].reshape(-1, 24) for feed in block.task.samples]).astype(np.float64)
    assert found.count == len(rows)
    np.testing.assert_allclose(found.mean()[0], rows.T @ rows / len(rows), rtol=1e-5, atol=1e-6)


def test_rows_are_limited_over_all_samples(block: Ready) -> None:
    source = Source(block.state.graph.input_names[0], MatrixRows(), 1, 24)
    (found,) = collect_moments(block.state.graph, [source], block.task.samples, most_rows=16).values()
    assert found.count == 16


def test_layers_that_read_the_same_tensor_share_their_matrix(block: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    first = Moments.__init__

    def counted(self: Moments, groups: int, columns: int) -> None:
        made.append(columns)
        first(self, groups, columns)

    monkeypatch.setattr(Moments, "__init__", counted)
    layers, _ = layers_of(block.state, quantized_weights(block.state)[0])
    found = list(with_moments(block.state, block.task, layers, "quantized", "test"))
    assert len(found) == len(layers) == 7
    assert len(made) == 5  # query, key and value read one tensor


@pytest.mark.parametrize("inputs", ["quantized", "float"])
def test_moments_do_not_depend_on_the_memory_limit(inputs: str) -> None:
    model = digits("tensorrt")
    layers, _ = layers_of(model.state, quantized_weights(model.state)[0])
    tight = replace(model.task, memory_limit=100_000)
    at_once = with_moments(model.state, model.task, layers, inputs, "test")
    in_parts = with_moments(model.state, tight, layers, inputs, "test")
    for (one, moments), (other, again) in zip(at_once, in_parts, strict=True):
        assert one.tensor == other.tensor
        np.testing.assert_array_equal(moments, again)


def test_batches_hold_what_fits() -> None:
    small, large = (Source(name, MatrixRows(), 1, columns) for name, columns in (("a", 10), ("b", 100)))
    assert in_batches([[small], [large], [small]], 10**9) == [[0, 1, 2]]
    assert in_batches([[small], [large], [small]], large.bytes) == [[0], [1], [2]]
    assert in_batches([[large], [large], [small]], large.bytes) == [[0, 1], [2]]
    assert in_batches([[large], [small]], 1) == [[0], [1]]


def test_all_passes_for_moments_pin_the_same_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they run the same kernels; equal bits could be luck of the processor."""
    model, seen = digits("tensorrt"), []
    make = moments_module.Tap

    def noted(graph: Graph, tensors: Iterable[str], *, pinned: Iterable[str], **options: Any) -> Tap:
        names = list(tensors)
        seen.append((len(names), {*names, *pinned}))
        return make(graph, names, pinned=list(pinned), **options)

    monkeypatch.setattr(moments_module, "Tap", noted)
    layers, _ = layers_of(model.state, quantized_weights(model.state)[0])
    for task in (model.task, replace(model.task, memory_limit=100_000)):
        assert all(not isinstance(moments, str) for _, moments in with_moments(model.state, task, layers, "float", "x"))
    sizes, pinned = zip(*seen, strict=True)
    assert len(seen) > 2
    assert sizes[0] > max(sizes[1:])
    assert all(each == pinned[0] for each in pinned)


def test_inputs_of_layers_are_the_same_as_integers_and_as_floats(block: Ready) -> None:
    """What integer kernels make, dequantized here, is what DequantizeLinear makes of it."""
    graph = block.task.simulated(block.state)
    layers, _ = layers_of(block.state, quantized_weights(block.state)[0])
    sources = [source_of(graph, reader) for layer in layers for reader in layer.readers]
    quantized = [source for source in sources if isinstance(source, Source) and source.integers is not None]
    assert quantized
    as_floats = [replace(source, integers=None) for source in quantized]
    ours = collect_moments(graph, quantized, block.task.samples)
    theirs = collect_moments(graph, as_floats, block.task.samples)
    for one, other in zip(quantized, as_floats, strict=True):
        mine, expected = ours[one], theirs[other]
        assert isinstance(mine, Moments)
        assert isinstance(expected, Moments)
        assert mine.count == expected.count
        np.testing.assert_array_equal(mine.total, expected.total)


def test_a_float_input_of_a_layer_has_no_integers(block: Ready) -> None:
    layers, _ = layers_of(block.state, quantized_weights(block.state)[0])
    sources = [source_of(block.state.graph, layer.readers[0]) for layer in layers]
    assert all(isinstance(source, Source) and source.integers is None for source in sources)
