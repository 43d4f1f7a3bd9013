"""Statistics beside other tensors of a body are never put together: they are collected again, and a note says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.calibrate import (
    calibrate,
    gather,
    gather_into,
    gathered_from,
    merge_statistics,
    read_statistics,
    write_statistics,
)
from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.runtime.collect import Engine
from onnxq.runtime.pinned import pinned_beyond, pinned_tensors
from onnxq.runtime.samples import Shard
from onnxq.types import Placement, QuantPlan, QuantSpec
from tests.runtime.small_graphs import bits, build, constant, info

ALONE = Engine(workers=1)


def graph_with_loop() -> Graph:
    """Three times h = tanh(h w + b) inside of a loop, around it a Relu in the main graph."""
    shape: list[int | str | None] = [1, 8]
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["product"], name="product"),
            helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
            helper.make_node("Tanh", ["sum"], ["next"], name="next"),
            helper.make_node("Identity", ["go"], ["go_on"], name="go"),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("h", shape)],
        [info("go_on", [], TensorProto.BOOL), info("next", shape)],
        value_info=[info("product", shape), info("sum", shape)],
    )
    random = np.random.default_rng(4)
    return build(
        [
            helper.make_node("Relu", ["x"], ["before"], name="before"),
            helper.make_node("Loop", ["three", "", "before"], ["last"], name="loop", body=body),
            helper.make_node("Relu", ["last"], ["y"], name="after"),
        ],
        [info("x", shape)],
        [info("y", shape)],
        [
            onnx.numpy_helper.from_array(np.array(3), "three"),
            constant("w", random.normal(size=(8, 8))),
            constant("b", random.normal(size=8)),
        ],
    )


def observing(*tensors: str) -> list[Placement]:
    return [Placement(name, QuantSpec("int8"), "activation", "test", observe=(name,)) for name in tensors]


def samples(count: int = 5) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(5)
    return [{"x": random.normal(size=(1, 8)).astype(np.float32)} for _ in range(count)]


def test_every_float_tensor_of_the_main_graph_is_pinned_and_none_of_a_body() -> None:
    graph = graph_with_loop()
    assert pinned_tensors(graph) == ["before", "last", "y"]
    assert pinned_beyond(graph, ["x", "before", "y", "w"]) == ()
    assert pinned_beyond(graph, ["sum", "before", "product"]) == ("product", "sum")


def test_other_tensors_of_a_body_are_collected_together_with_the_rest_once_more(tmp_path: Path) -> None:
    graph, path, direct = graph_with_loop(), tmp_path / "stats.npz", tmp_path / "direct.npz"
    assert gather_into(path, graph, observing("before", "sum"), samples(), engine=ALONE).notes == ()
    more = observing("before", "sum", "next")
    again = gather_into(path, graph, more, samples(), engine=ALONE)
    gather_into(direct, graph, more, samples(), engine=ALONE)
    (note,) = again.notes
    assert all(words in note for words in ("stats.npz", "'next'", "collected again"))
    assert path.read_bytes() == direct.read_bytes()
    assert gather_into(path, graph, more, samples(), engine=ALONE).notes == ()


def test_more_tensors_of_the_main_graph_are_added_to_what_is_there(tmp_path: Path) -> None:
    graph, path = graph_with_loop(), tmp_path / "stats.npz"
    gather_into(path, graph, observing("sum"), samples(), engine=ALONE)
    gathered = gather_into(path, graph, observing("before", "sum", "y"), samples(), engine=ALONE)
    assert gathered.notes == ()
    assert gathered.statistics.keys() == {"before", "sum", "y"}


def test_what_is_left_of_a_run_beside_other_tensors_is_not_gone_on_with(tmp_path: Path) -> None:
    graph, path, direct = graph_with_loop(), tmp_path / "stats.npz", tmp_path / "direct.npz"
    gather_into(path, graph, observing("sum"), samples(3), engine=ALONE)
    begun = replace(read_statistics(path), complete=False, path=None)
    write_statistics(path.with_name("stats.npz.partial"), begun)
    path.unlink()
    again = gather_into(path, graph, observing("next"), samples(), engine=ALONE)
    gather_into(direct, graph, observing("next"), samples(), engine=ALONE)
    assert "stats.npz.partial" in again.notes[0]
    assert path.read_bytes() == direct.read_bytes()
    assert not path.with_name("stats.npz.partial").exists()


def test_shards_beside_other_tensors_are_not_merged(tmp_path: Path) -> None:
    graph, files = graph_with_loop(), []
    for number, observed in ((1, ("sum",)), (2, ("sum",))):
        path = tmp_path / f"{number}.npz"
        gather_into(path, graph, observing(*observed), samples(), engine=ALONE, shard=Shard(number, 2))
        files.append(read_statistics(path))
    merge_statistics(files)
    other = replace(files[1].facts, pinned=("next", "sum"))
    with pytest.raises(DataError, match=r"2\.npz and .*1\.npz disagree about pinned"):
        merge_statistics([files[0], replace(files[1], facts=other)])


def test_a_plan_that_observes_others_is_told_where_there_is_no_data_to_collect_again(tmp_path: Path) -> None:
    graph, path = graph_with_loop(), tmp_path / "stats.npz"
    gather_into(path, graph, observing("sum", "next"), samples(), engine=ALONE)
    plans = [QuantPlan("test", {p.tensor: p for p in observing(*names)}) for names in (("sum", "next"), ("sum",))]
    stored = gathered_from(read_statistics(path))
    notes = [calibrate(graph, plan, statistics=stored).report.notes for plan in plans]
    assert [sum("other tensors inside of If, Loop or Scan" in note for note in found) for found in notes] == [0, 1]


@pytest.mark.parametrize("limit", [None, 40, 100])
def test_passes_with_different_tensors_of_a_body_have_the_same_bits(limit: int | None) -> None:
    graph, leaders = graph_with_loop(), observing("before", "h", "product", "sum", "next", "last", "y")
    expected = gather(graph, leaders, samples(), engine=ALONE)
    found = gather(graph, leaders, samples(), engine=Engine(workers=1, memory_limit=limit))
    assert (found.passes > 1) == (limit is not None)
    assert not found.unreachable
    held = [{name: list(kinds.values()) for name, kinds in each.statistics.items()} for each in (expected, found)]
    assert bits(held[0]) == bits(held[1])
