"""What one sample is: rows, sequences and batches, and that none is lost, doubled or misread."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.observers import EmaStatistic
from onnxq.runtime.collect import collect
from onnxq.runtime.dataset import open_dataset
from onnxq.runtime.samples import Shard, read_shard
from onnxq.runtime.session import input_infos
from tests.runtime.small_graphs import (
    bits,
    build,
    chain,
    constant,
    convolutions,
    feeds,
    images,
    in_batches,
    info,
    ranges,
)


def recurrent() -> Graph:
    """Axis 0 of the input is time: single rows give other outputs than the sequence."""
    random = np.random.default_rng(2)
    nodes = [helper.make_node("RNN", ["x", "w", "r"], ["y"], name="rnn", hidden_size=4)]
    weights = [constant("w", random.normal(size=(1, 4, 3))), constant("r", random.normal(size=(1, 4, 4)))]
    return build(nodes, [info("x", ["T", 1, 3])], [info("y", ["T", 1, 1, 4])], weights)


def test_rows_that_depend_on_each_other_stay_together_and_the_user_is_told() -> None:
    random = np.random.default_rng(2)
    data = [{"x": random.normal(size=(6, 1, 3)).astype(np.float32)} for _ in range(2)]
    found = ranges(["y"])
    report = collect(recurrent(), data, found)
    assert "run whole" in report.notes[0]
    import onnxruntime

    session = onnxruntime.InferenceSession(
        recurrent().to_model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    values = np.concatenate([session.run(None, feed)[0] for feed in data])
    np.testing.assert_allclose(float(found["y"][0].maximum[0]), values.max(), rtol=1e-6)
    assert report.samples == 2


def test_a_sequence_is_one_sample_for_moving_averages() -> None:
    random = np.random.default_rng(2)
    data = [{"x": random.normal(size=(rows, 1, 3)).astype(np.float32)} for rows in (6, 9, 4)]
    found = {"x": [EmaStatistic(decay=0.5)]}
    collect(recurrent(), data, found)
    first, second, third = (float(feed["x"].max()) for feed in data)
    assert float(found["x"][0].average_maximum[0]) == pytest.approx(0.5 * (0.5 * first + 0.5 * second) + 0.5 * third)


def test_a_batch_that_the_model_fixes_is_as_many_samples() -> None:
    found = ranges(["y"])
    report = collect(convolutions(batch=4), in_batches(images(8), 4), found)
    assert report.samples == 8
    assert found["y"][0].samples == 8


def test_a_fixed_first_axis_that_the_outputs_do_not_have_is_one_sample() -> None:
    nodes = [helper.make_node("ReduceMax", ["x"], ["y"], name="max", keepdims=0, axes=[0])]
    graph = build(nodes, [info("x", [5, 4])], [info("y", [4])])
    assert collect(graph, feeds(3, rows=5), ranges(["y"])).samples == 3


def test_a_loader_that_shuffles_has_no_shards() -> None:
    class RandomSampler:
        pass

    class Loader(list):
        dataset, batch_size, sampler = (), 1, RandomSampler()

    dataset = open_dataset(Loader(feeds(4)), input_infos(chain()))
    with pytest.raises(DataError, match="shuffle=False"):
        collect(chain(), dataset, ranges(["t0"]), shard=Shard(1, 2))


def test_an_input_that_never_changes_is_noted() -> None:
    nodes = [helper.make_node("Mul", ["x", "mask"], ["y"], name="mul")]
    graph = build(nodes, [info("x", ["N", 4]), info("mask", ["N", 4])], [info("y", ["N", 4])])
    data = [{**feed, "mask": np.ones((1, 4), np.float32)} for feed in feeds(5)]
    report = collect(graph, data, ranges(["y"]))
    assert [note.split(":")[0] for note in report.notes] == ["input 'mask' is 1.0 everywhere in every sample"]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="i/n"):
        read_shard(text)


def test_a_generator_loses_no_sample() -> None:
    data = feeds(7)
    found, expected = ranges(["t0"]), ranges(["t0"])
    assert collect(chain(), iter(data), found).samples == 7
    collect(chain(), data, expected)
    assert bits(found) == bits(expected)


def test_numbers_of_another_byte_order_are_read_right() -> None:
    found, expected = ranges(["x", "t0"]), ranges(["x", "t0"])
    collect(chain(), [{"x": feed["x"].astype(">f4")} for feed in feeds(4)], found)
    collect(chain(), feeds(4), expected)
    assert bits(found) == bits(expected)


def test_texts_as_inputs_are_run_again_and_again() -> None:
    nodes = [
        helper.make_node("Cast", ["text"], ["number"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "two"], ["y"], name="mul"),
    ]
    graph = build(nodes, [info("text", [1], TensorProto.STRING)], [info("y", [1])], [constant("two", 2.0)])
    found = ranges(["y"])
    collect(graph, [{"text": np.array([str(i)], object)} for i in range(5)], found)
    assert (float(found["y"][0].minimum[0]), float(found["y"][0].maximum[0])) == (0.0, 8.0)


@pytest.mark.parametrize("factor", [np.array(2.0, np.float32), np.arange(4, dtype=np.float32)])
def test_inputs_without_rows_are_given_to_every_row(factor: np.ndarray) -> None:
    nodes = [helper.make_node("Mul", ["x", "k"], ["y"], name="mul")]
    graph = build(nodes, [info("x", ["N", 4]), info("k", list(factor.shape))], [info("y", ["N", 4])])
    single, batched = ({"y": [EmaStatistic(decay=0.5)]} for _ in range(2))
    collect(graph, [{**feed, "k": factor} for feed in feeds(8)], single)
    rows = np.concatenate([feed["x"] for feed in feeds(8)])
    report = collect(graph, [{"x": rows[i : i + 4], "k": factor} for i in (0, 4)], batched)
    assert report.samples == 8
    assert bits(single) == bits(batched)
