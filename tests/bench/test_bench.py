"""`onnxq.bench`: models in turns, ratios round by round, layers, and why some of them are float."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.bench import Contender
from onnxq.bench.batches import in_batches
from onnxq.bench.text import tables
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError, DataError
from onnxq.pipeline.report import NO_KERNEL
from onnxq.runtime.engines import ENGINES, Computes, Engine, Kernel
from onnxq.runtime.feeds import Feed


class Machine:
    """An engine whose time is made up: every model takes what it is said to take, and the machine gets slower."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.now, self.ran, self.slower = seconds, 0.0, list[str](), 1.0

    def open(self, model: Path, threads: int, profile: Path | None) -> Opened:
        assert threads == 1
        return Opened(self, model.parent.name if model.name == "model.onnx" else "float", profile is not None)


class Opened:
    def __init__(self, machine: Machine, name: str, profiled: bool) -> None:
        self.machine, self.name, self.profiled, self.times = machine, name, profiled, list[float]()

    def run(self, feed: Feed) -> None:
        taken = self.machine.seconds[self.name] * self.machine.slower
        self.machine.now += taken
        self.machine.slower *= 1.01
        self.machine.ran.append(self.name)
        self.times.append(taken)

    def kernels(self) -> list[Kernel]:
        assert self.profiled
        kind = Computes.FLOAT if self.name == "float" else Computes.INTEGERS
        half = tuple(one / 2 for one in self.times)
        last = Computes.FLOAT
        return [
            Kernel("stem.conv", "Conv", kind, "Conv", (), half),
            Kernel("flatten", "Flatten", last, "Flatten", (), half),
            Kernel("Reorder", "Reorder", Computes.CONVERSION, "Reorder", (), half),
        ]


@pytest.fixture
def machine() -> Iterator[Machine]:
    found = Machine({"float": 0.3, "run": 0.1})
    ENGINES.add("made up", Engine(found.open, lambda: "1.0", lambda: found.now))
    yield found
    ENGINES.forget("made up")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "run"
    data = [{"image": load_data().calibration[n : n + 1]} for n in range(8)]
    config = {"effort": 0, "report": "no", "skip": ["classifier"]}
    onnxq.quantize(model_path(), backend="onnxruntime", data=data, out=folder, config=config)
    return folder


def test_models_run_there_and_back_and_are_compared_round_by_round(machine: Machine, run: Path) -> None:
    """A machine that gets slower all the time changes no ratio: each round has its own."""
    found = onnxq.bench(model_path(), run, engines=["made up"], rounds=8, warm_up=1, seconds=1e9, layers=False)
    (engine,) = found.engines
    reference, quantized = engine.models
    assert machine.ran[2:] == ["float", "run", "run", "float"] * 8
    assert reference.times_as_fast is None
    assert quantized.times_as_fast is not None
    assert quantized.times_as_fast.median == pytest.approx(3.0, rel=1e-3)
    assert quantized.times_as_fast.high - quantized.times_as_fast.low < 1e-3
    assert reference.ms.high > 1.2 * reference.ms.low  # of the times themselves it does
    assert "3.00 times as fast in made up" in repr(found)


def test_layers_are_rows_beside_those_of_float_with_reasons(machine: Machine, run: Path) -> None:
    found = onnxq.bench(model_path(), run, engines=["made up"], rounds=6, warm_up=2, seconds=1e9)
    reference, quantized = found.engines[0].models
    assert [layer.node for layer in quantized.layers] == ["stem.conv", "flatten", "Reorder"]
    assert [layer.inserted for layer in quantized.layers] == [False, False, True]
    assert reference.floating == []  # of a float model nothing has to be explained
    (flatten,) = quantized.floating
    plan = Contender.of(run).plan
    assert plan is not None
    assert flatten.why_float == plan.left_float.get("flatten", f"made up {NO_KERNEL}")
    by_title = {title: rows for title, _, rows in tables(found)}
    rows = by_title[next(title for title in by_title if "the slowest first" in title)]
    assert {row[0] for row in rows} == {"stem.conv", "flatten", "(by made up) Reorder"}


def test_onnxruntime_says_which_layers_compute_in_integers(run: Path) -> None:
    data = [{"image": load_data().calibration[n : n + 1]} for n in range(2)]
    found = onnxq.bench(model_path(), run, data=data, engines=["onnxruntime"], rounds=2, warm_up=1)
    reference, quantized = found.engines[0].models
    kinds = {layer.node: layer.computes for layer in quantized.layers}
    assert kinds["stem.conv"] is Computes.INTEGERS
    assert kinds["classifier"] is Computes.FLOAT
    assert {layer.node for layer in reference.layers} >= {"stem.conv", "classifier"}
    (classifier,) = (layer for layer in quantized.floating if layer.node == "classifier")
    assert classifier.why_float == "excluded by 'classifier'"
    assert all(layer.ms.median >= 0 for layer in quantized.layers)
    assert sum(layer.ms.median for layer in quantized.layers) > 0
    assert "<script" not in found._repr_html_()
    assert found.to_json()["engines"][0]["models"][1]["layers"]


def test_a_file_beside_its_plan_has_reasons_and_one_alone_says_what_is_missing(run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.onnx"
    alone.write_bytes((run / "model.onnx").read_bytes())
    assert Contender.of(run / "model.onnx").plan is not None
    assert Contender.of(alone).plan is None
    found = onnxq.bench(model_path(), alone, engines=["onnxruntime"], rounds=1)
    assert "name the folder of the run" in str(found.engines[0].models[1].floating[0].why_float)


def test_a_batch_is_the_first_size_of_inputs() -> None:
    found = onnxq.bench(model_path(), engines=["onnxruntime"], batch=3, rounds=1, layers=False)
    assert found.batch == 3
    data = {"image": load_data().calibration[:2]}
    with pytest.raises((ConfigError, DataError)):
        onnxq.bench(model_path(), data=data, engines=["onnxruntime"], batch=3, rounds=1)


def test_files_of_single_samples_are_put_together_to_a_batch(tmp_path: Path) -> None:
    for number, image in enumerate(load_data().calibration[:7]):
        np.savez(tmp_path / f"{number}.npz", image=image[None])
    found = onnxq.bench(model_path(), data=tmp_path, engines=["onnxruntime"], batch=3, rounds=1, layers=False)
    assert found.batch == 3
    with pytest.raises(ConfigError, match="fewer samples than a batch of 8"):
        onnxq.bench(model_path(), data=tmp_path, engines=["onnxruntime"], batch=8, rounds=1)


def test_only_samples_of_equal_shapes_make_a_batch() -> None:
    feeds = [{"x": np.full((1, size), size, np.float32)} for size in (2, 3, 2, 3, 3)] + [{"x": np.zeros((2, 5))}]
    assert [feed["x"].tolist() for feed in in_batches(feeds, 2)] == [[[2, 2]] * 2, [[3, 3, 3]] * 2, [[0] * 5] * 2]


def test_what_cannot_be_measured_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="engine 'fast'"):
        onnxq.bench(model_path(), engines=["fast"])
    with pytest.raises(ConfigError, match="rounds is at least 1"):
        onnxq.bench(model_path(), rounds=0)
    ENGINES.add("elsewhere", Engine(Machine({}).open, lambda: None, lambda: 0.0))
    try:
        with pytest.raises(ConfigError, match="elsewhere is not installed here"):
            onnxq.bench(model_path(), engines=["elsewhere"])
    finally:
        ENGINES.forget("elsewhere")
    fixed = onnxq.load(model_path())
    fixed.gs.inputs[0].shape = [1, *fixed.gs.inputs[0].shape[1:]]
    with pytest.raises(ConfigError, match="fixed first size of 1"):
        onnxq.bench(fixed, batch=2, engines=["onnxruntime"])


def test_data_of_another_model_is_refused(run: Path) -> None:
    with pytest.raises(DataError, match="no input of the model"):
        onnxq.bench(model_path(), run, data={"picture": np.zeros((2, 1, 8, 8), np.float32)})
