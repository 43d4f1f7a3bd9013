"""Batch size, order, shards, workers and memory change no bit of what any observer makes of a real network.

The tensors of a network are gathered once for each way of running, with statistics for every observer together; the
observers are then evaluated on what was gathered.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.calibrate import (
    Gathered,
    StatisticsFile,
    activation_leaders,
    calibrate,
    gather,
    gathered_from,
    merge_statistics,
)
from onnxq.demo import load_data, model_path
from onnxq.observers import OBSERVERS, make_observer
from onnxq.runtime import input_infos, open_dataset
from onnxq.runtime.collect import Engine
from onnxq.runtime.feeds import Feed
from onnxq.runtime.samples import Shard
from onnxq.session.prepare import Prepared, make_plan, prepare
from onnxq.types import QuantPlan, QuantSpec
from tests.zoo_graphs.attention import HEADS, TOKENS, WIDTH, gelu, heads, layer_norm
from tests.zoo_graphs.net import Net

SAMPLES = 34
"""Batches of 32 leave a shorter last one."""

NETWORKS = ("digits", "transformer", "depthwise")
BACKENDS = ("tensorrt", "onnxruntime")

ORDERED = [name for name in OBSERVERS.names() if make_observer(name).new_statistic(None, QuantSpec("int8")).ordered]
FREE = [name for name in OBSERVERS.names() if name not in ORDERED]
BY_SAMPLE = [*ORDERED, "pot_mode"]
"""They search each sample on its own, which takes long: one tensor of a network has to do."""

WAYS: dict[str, tuple[int | None, Engine]] = {
    "batches of 4, two workers": (4, Engine(workers=2)),
    "batches of 32, four workers": (32, Engine(workers=4)),
    "one array, one tensor in memory": (None, Engine(workers=1, memory_limit=1)),
}
"""Rows of a feed (None: the whole data as one array), and how to run. Every observer is the same for all of them."""


def transformer() -> tuple[onnx.ModelProto, np.ndarray]:
    """One block of attention and feed-forward, LayerNorm and GELU written out."""
    net = Net("transformer_of_any_batch")
    x = net.input("x", ["batch", TOKENS, WIDTH])
    normal = layer_norm(net, x)
    query, value = heads(net, normal, [0, 2, 1, 3]), heads(net, normal, [0, 2, 1, 3])
    scores = net.node("MatMul", query, heads(net, normal, [0, 2, 3, 1]))
    weights = net.node("Softmax", net.node("Div", scores, net.floats(np.sqrt(WIDTH / HEADS))), axis=-1)
    context = net.node("Transpose", net.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    y = net.node("Add", x, net.linear(net.node("Reshape", context, net.ints(0, -1, WIDTH)), WIDTH, WIDTH))
    deep = net.linear(gelu(net, net.linear(layer_norm(net, y), WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)
    net.output(net.node("Add", y, deep), ["batch", TOKENS, WIDTH])
    return net.model(), net.normal(SAMPLES, TOKENS, WIDTH)


def depthwise() -> tuple[onnx.ModelProto, np.ndarray]:
    """Two inverted residuals, as in mobile networks."""
    net = Net("depthwise_of_any_batch")
    x = net.input("x", ["batch", 3, 12, 12])
    y = net.relu(net.batch_norm(net.conv(x, 3, 8, bias=False), 8))
    for _ in range(2):
        wide = net.node("HardSwish", net.batch_norm(net.conv(y, 8, 24, 1, bias=False), 24))
        deep = net.relu(net.batch_norm(net.conv(wide, 24, 24, bias=False, group=24), 24))
        y = net.node("Add", y, net.conv(deep, 24, 8, 1))
    net.output(net.classifier(y, 8), ["batch", 10])
    return net.model(), net.image(SAMPLES, 3, 12, 12)


@dataclass(frozen=True, eq=False)
class Subject:
    """A network placed for a backend, and its data as one array."""

    prepared: Prepared
    plan: QuantPlan
    data: np.ndarray

    def feeds(self, batch: int, order: Iterable[int] | None = None) -> list[Feed]:
        data = self.data if order is None else self.data[list(order)]
        name = self.prepared.graph.input_names[0]
        return [{name: data[start : start + batch]} for start in range(0, len(data), batch)]

    def plan_with(self, observer: str) -> QuantPlan:
        leaders = [placement.tensor for placement in activation_leaders(self.plan)]
        chosen = {leaders[len(leaders) // 2]} if observer in BY_SAMPLE else set(leaders)
        placements = {
            name: replace(placement, observer=observer) if name in chosen else placement
            for name, placement in self.plan.placements.items()
        }
        return replace(self.plan, placements=placements)

    def gather(
        self,
        dataset: Iterable[Feed],
        observers: Iterable[str] | None = None,
        *,
        engine: Engine | None = None,
        shard: Shard | None = None,
    ) -> Gathered:
        """What all the observers need, gathered together; a single worker unless told otherwise."""
        names = OBSERVERS.names() if observers is None else observers
        leaders = [placement for name in names for placement in activation_leaders(self.plan_with(name))]
        return gather(
            self.prepared.graph, leaders, dataset, engine=engine or Engine(workers=1), shard=shard, reusable=True
        )

    def qparams(self, gathered: Gathered, observers: Iterable[str]) -> dict[str, str]:
        """Observer -> the table of all parameters as text, which shows every bit of a float32."""
        graph = self.prepared.graph
        return {
            name: json.dumps(calibrate(graph, self.plan_with(name), statistics=gathered).qparams.to_json())
            for name in observers
        }


@functools.cache
def subject(network: str, backend: str) -> Subject:
    if network == "digits":
        model, data = onnx.load(model_path()), load_data().calibration[:SAMPLES]
    else:
        model, data = {"transformer": transformer, "depthwise": depthwise}[network]()
    prepared = prepare(model, backend)
    return Subject(prepared, make_plan(prepared), data)


@functools.cache
def reference(network: str, backend: str) -> dict[str, str]:
    """Samples one by one, in order, by one worker, in one pass."""
    one = subject(network, backend)
    gathered = one.gather(one.feeds(1))
    assert (gathered.samples, gathered.passes) == (SAMPLES, 1)
    return one.qparams(gathered, OBSERVERS.names())


def assert_same(found: dict[str, str], network: str, backend: str) -> None:
    expected = reference(network, backend)
    assert [name for name in found if found[name] != expected[name]] == []


OFTEN = [("digits", "onnxruntime"), ("transformer", "tensorrt"), ("depthwise", "onnxruntime")]
"""Every network and every backend at least once; the slow tests take all pairs."""


def pairs() -> list[Any]:
    every = [(network, backend) for network in NETWORKS for backend in BACKENDS]
    return [pytest.param(*pair, marks=() if pair in OFTEN else pytest.mark.slow) for pair in every]


each_pair = pytest.mark.parametrize(("network", "backend"), pairs())


@each_pair
def test_the_observers_are_told_apart(network: str, backend: str) -> None:
    """So that equal texts mean something: the tables hold several activations, and observers differ in them."""
    tables = reference(network, backend)
    assert len(activation_leaders(subject(network, backend).plan)) >= 5
    assert set(ORDERED) == {name for name in tables if name.startswith("ema_")}
    assert tables["minmax"] != tables["percentile"] or network == "digits"  # 99.999 % of few values is nearly all
    for name in ("absmax", "clip_std", "mse", "kl", "ema_minmax", "pot_mode"):
        assert tables["minmax"] != tables[name], name


@each_pair
@pytest.mark.parametrize("way", WAYS)
def test_batch_size_workers_and_memory_change_nothing(way: str, network: str, backend: str) -> None:
    """With little memory each session returns one tensor, so what onnxruntime fuses must not show in the values."""
    one = subject(network, backend)
    batch, engine = WAYS[way]
    dataset = open_dataset(one.data, input_infos(one.prepared.graph)) if batch is None else one.feeds(batch)
    gathered = one.gather(dataset, engine=engine)
    assert gathered.samples == SAMPLES
    assert (gathered.passes > 4) == (engine.memory_limit is not None)
    assert_same(one.qparams(gathered, OBSERVERS.names()), network, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("network", ["transformer"])
def test_many_nodes_and_few_feeds_change_nothing(network: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of thousands of nodes are optimized less; how far must not depend on how many feeds there are."""
    monkeypatch.setattr("onnxq.runtime.collect.FULL_OPTIMIZATION_NODES", 0, raising=False)
    monkeypatch.setattr("onnxq.runtime.tap.FULL_OPTIMIZATION_NODES", 0)
    one = subject(network, backend)
    many, few = (one.qparams(one.gather(one.feeds(batch), ["kl"]), ["minmax", "kl"]) for batch in (1, 32))
    assert many == few


@each_pair
def test_order_changes_nothing_for_observers_without_one(network: str, backend: str) -> None:
    one = subject(network, backend)
    shuffled = np.random.default_rng(3).permutation(SAMPLES)
    gathered = one.gather(one.feeds(4, shuffled))
    assert_same(one.qparams(gathered, FREE), network, backend)


@each_pair
@pytest.mark.parametrize("count", [1, 2, 3])
def test_merged_shards_are_the_whole(count: int, network: str, backend: str) -> None:
    one = subject(network, backend)
    parts = []
    for number in range(1, count + 1):
        part = one.gather(one.feeds(4), FREE, shard=Shard(number, count))
        parts.append(StatisticsFile("", "0", part.samples, part.statistics, shard=(number, count)))
    whole = gathered_from(merge_statistics(reversed(parts)))
    assert whole.samples == SAMPLES
    assert_same(one.qparams(whole, FREE), network, backend)


@each_pair
def test_ranges_taken_inside_the_graph_are_those_of_the_values(network: str, backend: str) -> None:
    """Alone, minmax does not fetch the tensors; it must find what the histograms of all observers found."""
    one = subject(network, backend)
    table = calibrate(one.prepared.graph, one.plan_with("minmax"), one.feeds(1)).qparams
    assert_same({"minmax": json.dumps(table.to_json())}, network, backend)
