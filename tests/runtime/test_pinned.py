"""A tensor has the same bits whatever else is looked at: every session runs the same kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxq.demo import load_data, model_path
from onnxq.graph import Graph, load
from onnxq.observers import HistogramStatistic, RangeStatistic
from onnxq.runtime import tap as tap_module
from onnxq.runtime.collect import Engine, _Run, collect
from onnxq.runtime.pinned import pinned_beside, pinned_tensors
from onnxq.runtime.session import ModelInMemory, Optimize, float_model
from onnxq.runtime.tap import Tap
from onnxq.session.prepare import prepare
from tests.networks.exported import exported
from tests.networks.exported import samples as exported_samples
from tests.runtime.kernel_expressions import kernel_expressions
from tests.runtime.small_graphs import bits, build, constant, info

SETS = 6
NETWORKS = ("digits", "resnet_torchscript", "transformer_torchscript")


def network(name: str) -> Graph:
    return prepare(load(model_path() if name == "digits" else exported(name)), "onnxruntime").graph


def feeds_of(name: str, count: int) -> list[dict[str, np.ndarray]]:
    if name == "digits":
        return [{"image": load_data().calibration[i : i + 1]} for i in range(count)]
    arrays = exported_samples(name, count)
    return [{key: values[i : i + 1] for key, values in arrays.items()} for i in range(count)]


def computed(graph: Graph) -> list[str]:
    """The float tensors that nodes make."""
    made = [tensor.name for node in graph.gs.nodes for tensor in node.outputs]
    return [name for name in made if graph.dtype(name) == np.float32 and not graph.is_constant(name)]


def neighbourhoods(graph: Graph, seed: int) -> Iterator[list[str]]:
    """Nothing, everything, and random sets of tensors that are looked at together."""
    names, random = computed(graph), np.random.default_rng(seed)
    yield []
    yield names
    for share in np.linspace(0.1, 0.9, SETS):
        yield [name for name in names if random.random() < share]


@contextmanager
def models_of_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The models that taps give to onnxruntime."""
    seen: list[bytes] = []
    make = tap_module.look_session

    def noted(model: Any, **options: Any) -> Any:
        seen.append(model)
        return make(model, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tap_module, "look_session", noted)
        yield seen


@pytest.mark.parametrize("optimize", ["all", "none"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_values_of_a_tensor_do_not_depend_on_its_neighbours(name: str, optimize: Optimize) -> None:
    graph, (feed,) = network(name), feeds_of(name, 1)
    (output,) = graph.output_names
    first: dict[str, bytes] = {}
    for others in neighbourhoods(graph, seed=1):
        values = Tap(graph, [*others, output], pinned=pinned_tensors(graph), threads=1, optimize=optimize).run(feed)
        for tensor, array in values.items():
            assert first.setdefault(tensor, array.tobytes()) == array.tobytes(), (tensor, others)
    assert first.keys() == set(computed(graph))


@pytest.mark.parametrize(("name", "optimize"), [*((name, "all") for name in NETWORKS), ("digits", "none")])
def test_every_session_runs_the_same_kernels(
    name: str, optimize: Optimize, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = network(name)
    (output,) = graph.output_names
    first: dict[str, str] = {}
    with models_of_sessions(monkeypatch) as models:
        for others in neighbourhoods(graph, seed=2):
            reduced = others[::3]
            pinned = pinned_tensors(graph)
            Tap(graph, [*others, output], reduce=reduced, pinned=pinned, threads=1, optimize=optimize)
            looked_at = [output, *others]
            made = kernel_expressions(models[-1], tmp_path, computed(graph), optimize=optimize)
            assert made.keys() >= set(looked_at)
            for tensor, expression in made.items():
                assert first.setdefault(tensor, expression) == expression, (tensor, others)


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(("channels", "out", "group"), [(3, 32, 1), (16, 33, 1), (32, 32, 32), (20, 48, 2)])
def test_an_activation_has_the_bits_of_its_convolution_apart(
    channels: int, out: int, group: int, kernel: int, activation: str
) -> None:
    random = np.random.default_rng(channels + out + kernel)
    weight = random.normal(0, 0.3, (out, channels // group, kernel, kernel))
    limits = ["low", "high"] if activation == "Clip" else []
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[kernel] * 2, group=group, name="conv"),
        helper.make_node(activation, ["c", *limits], ["a"], name="activation"),
        helper.make_node("Conv", ["a", "v"], ["y"], name="last"),
    ]
    stored = [constant("w", weight), constant("b", random.normal(size=out)), constant("low", -0.1)]
    stored += [constant("high", 0.9), constant("v", random.normal(0, 0.3, (16, out, 1, 1)))]
    graph = build(nodes, [info("x", [1, channels, 13, 13])], [info("y", [1, 16, None, None])], stored)
    graph.infer_shapes()
    feed = {"x": random.normal(size=(1, channels, 13, 13)).astype(np.float32)}

    assert pinned_beside(graph, ["a"]) == ["a", "y"]
    assert pinned_beside(graph, ["c"]) == ["a", "y", "c"]
    taps = [Tap(graph, ["a", "y"], pinned=pinned_beside(graph, names), threads=1) for names in (["a"], ["c"])]
    together, apart = (tap.run(feed) for tap in taps)
    assert all(together[name].tobytes() == apart[name].tobytes() for name in ("a", "y"))


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
def test_an_average_has_the_same_bits_whatever_is_looked_at(activation: str) -> None:
    """Its sums have another order in the layout of convolutions, so it must not depend on what stands in front."""
    random = np.random.default_rng(0)
    stored = [
        constant("w", random.normal(0, 0.3, (64, 16, 1, 1))),
        constant("v", random.normal(0, 0.3, (64, 64, 1, 1))),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first"),
        helper.make_node(activation, ["c"], ["a"], name="activation"),
        helper.make_node("Conv", ["a", "v"], ["d"], name="second"),
        helper.make_node(activation, ["d"], ["b"], name="another"),
        helper.make_node("GlobalAveragePool", ["b"], ["y"], name="average"),
    ]
    graph = build(nodes, [info("x", [1, 16, 13, 13])], [info("y", [1, 64, 1, 1])], stored)
    graph.infer_shapes()
    feed = {"x": random.normal(size=(1, 16, 13, 13)).astype(np.float32)}
    assert pinned_beside(graph, ["b"]) == ["a", "d", "b", "y"]
    sets = (["y"], ["y", "c"], ["y", "d"], ["y", "a", "b"], ["y", "a", "b", "c", "d"])
    found = {
        Tap(graph, names, pinned=pinned_beside(graph, names), threads=1).run(feed)["y"].tobytes() for names in sets
    }
    assert len(found) == 1


def test_what_others_read_of_a_convolution_stays_pinned() -> None:
    weight = constant("w", np.ones((4, 4, 1, 1)))
    relu, softmax = (
        helper.make_node("Relu", ["c"], ["a"], name="a"),
        helper.make_node("Softmax", ["c"], ["s"], name="s"),
    )
    for reader, others, outputs in ((relu, [softmax], ["a", "s"]), (relu, [], ["a", "c"]), (softmax, [], ["s"])):
        nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="c"), reader, *others]
        graph = build(nodes, [info("x", [1, 4, 5, 5])], [info(name, [1, 4, 5, 5]) for name in outputs], [weight])
        graph.infer_shapes()
        assert pinned_beside(graph, []) == pinned_tensors(graph)


def test_without_pins_other_kernels_would_run(tmp_path: Path) -> None:
    """The check above can fail: onnxruntime fuses what nobody looks at."""
    graph = network("resnet_torchscript")
    (output,) = graph.output_names
    found = []
    for others in ([], computed(graph)):
        with float_model(graph, others) as model:
            assert isinstance(model, ModelInMemory)
            found.append(kernel_expressions(model, tmp_path, [output])[output])
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("name", "optimize", "limit"),
    [("digits", "all", 20_000), ("digits", "none", 20_000), ("resnet_dynamo", "all", 100_000)],
)
def test_statistics_do_not_depend_on_what_else_is_collected(
    name: str, optimize: Optimize, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, data = network(name), feeds_of(name, 2)
    engines = [Engine(workers=1), Engine(workers=2), Engine(workers=1, memory_limit=limit)]
    first: dict[str, Any] = {}
    passes: list[int] = []
    for number, others in enumerate(neighbourhoods(graph, seed=3)):
        # As many samples as would make it pay, or not, to take more time over the session.
        monkeypatch.setattr(_Run, "_arranging_pays", lambda self, pinned, number=number: number % 2 == 0)
        found = {tensor: [RangeStatistic(), HistogramStatistic()] for tensor in [*others, *graph.output_names]}
        passes.append(collect(graph, data, found, engine=engines[number % 3], optimize=optimize).passes)
        for tensor, held in bits(found).items():
            assert first.setdefault(tensor, held) == held, (tensor, others)
    assert max(passes) > 1
