"""Training of a toy network: it learns, freezes and stops when told, keeps the best, and repeats to the bit."""

from __future__ import annotations

import csv
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.config.training import TrainSettings
from onnxq.errors import CheckFailed, ConfigError, DataError
from onnxq.qat.evaluate import Evaluation
from onnxq.qat.history import Training
from onnxq.qat.loop import train
from onnxq.qat.losses import Loss
from onnxq.qat.optimizers import parameter_groups
from onnxq.qat.training_data import open_training_data
from onnxq.runtime import input_infos
from tests.qat.digits_qat import prepared
from tests.qat.toy_net import ToyNet, toy_data, toy_net

QUICK = {"epochs": 3, "batch_size": 10, "lr": 0.02}


def state_of(net: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in net.state_dict().items()}


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert list(first) == list(second)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def accuracy(net: ToyNet, samples: int = 200) -> Evaluation:
    data = open_training_data(toy_data(samples, seed=1), input_infos(net.graph))
    return Evaluation(data, Loss("y", {"y": "logits"}, "cross_entropy"), "accuracy")


class Watched(ToyNet):
    """Notes in which step what is on."""

    def __init__(self) -> None:
        net = toy_net()
        super().__init__(net.graph)
        self.seen: list[tuple[bool, bool, bool]] = []

    def forward(self, *inputs: Any) -> Any:
        if self.training:
            module = self.fake_quantizers["hidden"]
            self.seen.append((module.observing, module.quantizing and not module.muted, self.mode.live_statistics))
        return super().forward(*inputs)


def test_a_network_learns_from_labels() -> None:
    net = toy_net()
    evaluate = accuracy(net)
    before = evaluate(net)
    training = train(net, toy_data(200), {"epochs": 15, "batch_size": 20, "lr": 0.02}, evaluate=evaluate)
    assert training.metrics[0] == before < 0.5
    assert training.best.value == evaluate(net) > 0.9
    assert training.losses[-1] < 0.3 * training.losses[0]
    assert training.steps == len(training.losses) == 150


def test_a_network_learns_from_its_float_self_without_labels() -> None:
    net = toy_net(scale=1.5)
    training = train(net, toy_data(200)["x"], {"epochs": 15, "batch_size": 20, "lr": 0.01})
    assert np.mean(training.losses[-10:]) < 0.5 * np.mean(training.losses[:10])


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    results = []
    for seed in (0, 0, 1):
        net = toy_net()
        torch.rand(seed + 3)  # what was drawn before does not matter
        train(net, toy_data(), {**QUICK, "seed": seed})
        results.append(state_of(net))
    assert_same(results[0], results[1])
    assert not np.array_equal(results[0]["first.weight"], results[2]["first.weight"])


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(toy_net(), toy_data(), QUICK)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_observers_statistics_and_quantization_have_their_time() -> None:
    net = Watched()
    train(net, toy_data(60), {**QUICK, "observer_freeze": 1, "batch_norm_freeze": 0.5, "quantize_from": 2})
    observing, quantizing, live = zip(*net.seen, strict=True)
    assert observing == (True,) * 6 + (False,) * 12
    assert live == (True,) * 9 + (False,) * 9
    assert quantizing == (False,) * 12 + (True,) * 6
    assert net.fake_quantizers["hidden"].quantizing
    assert not net.fake_quantizers["hidden"].muted
    assert not net.training


def test_slices_of_a_batch_add_up_to_the_batch() -> None:
    whole, sliced = toy_net(), toy_net()
    train(whole, toy_data(), {**QUICK, "optimizer": "sgd"})
    train(sliced, toy_data(), {**QUICK, "optimizer": "sgd", "accumulate": 5})
    for name, value in state_of(whole).items():
        np.testing.assert_allclose(state_of(sliced)[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    with pytest.raises(ConfigError, match="cannot be cut into 3 equal slices"):
        train(toy_net(), toy_data(), {**QUICK, "accumulate": 3})


def test_recomputing_changes_nothing() -> None:
    plain, recomputed = toy_net(), toy_net()
    train(plain, toy_data(), QUICK)
    train(recomputed, toy_data(), {**QUICK, "recompute": 2})
    assert recomputed.checkpoint_segments == 2
    for name in ("first.weight", "second.weight", "fake_quantizers.hidden.scale"):
        np.testing.assert_allclose(state_of(recomputed)[name], state_of(plain)[name], rtol=1e-5, atol=1e-7)


def test_scales_have_their_own_rate_and_only_weights_decay() -> None:
    groups = {group["name"]: group for group in parameter_groups(toy_net(), TrainSettings(lr=0.1, weight_decay=0.01))}
    assert [len(groups[name]["params"]) for name in ("weights", "biases and norms", "fake-quantizers")] == [2, 2, 1]
    assert [group["lr"] for group in groups.values()] == [0.1, 0.1, 0.01]
    assert [group["weight_decay"] for group in groups.values()] == [0.01, 0.0, 0.0]


def test_clipped_gradients_make_small_steps() -> None:
    before, moved = state_of(toy_net()), {}
    for clip in (None, 1e-3):
        net = toy_net()
        train(net, toy_data(), {"steps": 1, "optimizer": "sgd", "lr": 1.0, "scale_lr": 1.0, "clip_gradient": clip})
        squares = [(state_of(net)[name] - before[name]) ** 2 for name, _ in net.named_parameters()]
        moved[clip] = math.sqrt(sum(float(part.sum()) for part in squares))
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-2)
    assert moved[None] > 0.1


def test_the_best_evaluation_is_what_stays() -> None:
    net = toy_net()
    values = iter([0.1, 0.5, 0.9, 0.3])
    states = []

    def evaluate(given: nn.Module) -> float:
        states.append(state_of(given))
        return next(values)

    training = train(net, toy_data(), QUICK, evaluate=evaluate)
    assert (training.best.value, training.best.epoch, training.best.step) == (0.9, 2, 12)
    assert_same(state_of(net), states[2])
    assert_same({name: value.numpy() for name, value in training.last.items()}, states[3])


def test_a_metric_may_have_its_good_end_below() -> None:
    values = iter([0.4, 0.2, 0.3, 0.5])
    training = train(toy_net(), toy_data(), {**QUICK, "best_by": "min"}, evaluate=lambda net: next(values))
    assert (training.best.value, training.best.epoch) == (0.2, 1)


def test_patience_ends_a_training_that_does_not_get_better() -> None:
    values = iter([0.5, 0.6, 0.4, 0.4, 0.9])
    settings = {**QUICK, "epochs": 10, "patience": 2}
    training = train(toy_net(), toy_data(), settings, evaluate=lambda net: next(values))
    assert training.ended_early
    assert (training.epochs, training.best.value) == (3, 0.6)


def test_evaluation_leaves_the_network_as_it_was() -> None:
    net = toy_net()
    net.train()
    net.quantize(False)
    before = state_of(net)
    accuracy(net)(net)
    module = net.fake_quantizers["hidden"]
    assert (net.training, module.observing, module.quantizing) == (True, True, False)
    assert_same(state_of(net), before)


def test_metrics_without_labels_compare_with_the_float_network() -> None:
    net = toy_net()
    data = open_training_data(toy_data(50)["x"], input_infos(net.graph))
    with torch.no_grad():
        x = torch.from_numpy(toy_data(50)["x"])
        net.eval().quantize(False)
        wanted = net(x).numpy()
        net.quantize(True)
        net.observe(False)
        found = net(x).numpy()
    teacher = {"y": torch.from_numpy(wanted)}
    loss = Loss("y", {"y": "logits"}, share=1.0)
    evaluation = Evaluation(data, loss, "sqnr_db", 50, lambda feeds: teacher)
    assert evaluation(net) == pytest.approx(10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()), rel=1e-5)
    evaluation = Evaluation(data, loss, "agreement", 50, lambda feeds: teacher)
    assert evaluation(net) == pytest.approx((wanted.argmax(1) == found.argmax(1)).mean())
    own = Evaluation(data, loss, lambda outputs, labels: float(np.abs(outputs["y"]).max()), 7)
    assert own(net) == pytest.approx(np.abs(found).max())


def test_a_loss_that_is_no_number_ends_training_with_advice(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"the loss is (nan|inf) in step \d+ of .* learning rate .*--lr"):
        train(toy_net(), toy_data(), {**QUICK, "optimizer": "sgd", "lr": 1e20, "schedule": "constant"}, folder=tmp_path)


def test_labels_out_of_range_are_named() -> None:
    data = toy_data(20)
    data["labels"][7] = 3
    with pytest.raises(DataError, match="label 3 is out of range"):
        train(toy_net(), data, QUICK)


def test_few_samples_make_smaller_batches() -> None:
    training = train(toy_net(), toy_data(7), {"epochs": 2, "batch_size": 32})
    assert (training.batch_size, training.steps) == (7, 2)
    assert "because there are no more" in " ".join(training.notes)


def course(training: Training, folder: Path) -> list[dict[str, str]]:
    training.write(folder)
    with (folder / "training.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_the_course_is_written_for_people_and_programs(tmp_path: Path) -> None:
    net = toy_net()
    training = train(net, toy_data(), {**QUICK, "distill": 0.5, "label_loss": "cross_entropy"}, evaluate=accuracy(net))
    rows = course(training, tmp_path)
    steps = [row for row in rows if row["loss"]]
    assert [int(row["step"]) for row in steps] == list(range(1, 19))
    assert [int(row["step"]) for row in rows if row["metric"]] == [0, 6, 12, 18]
    for row in steps:
        assert float(row["loss"]) == pytest.approx(0.5 * float(row["label"]) + 0.5 * float(row["distill"]), rel=1e-5)
    drawing = ElementTree.parse(tmp_path / "training.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    lines = drawing.findall(f"{space}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [18, 4]
    texts = [element.text for element in drawing.findall(f"{space}text")]
    assert {"step", "loss", "accuracy"} <= set(texts)
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 < x < 760
            assert 0 < y < 400


@pytest.mark.parametrize(
    ("kind", "rates"), [("lsq", {1e-4}), ("pact", {1e-3, 1e-4}), ("tqt", {1e-2}), ("lsq_plus", {1e-4, 1e-2})]
)
def test_what_is_learnt_in_other_units_has_a_rate_that_fits(kind: str, rates: set[float]) -> None:
    weight = "tqt" if kind == "tqt" else "lsq"
    config = {"activation": {"fake_quantizer": kind}, "weight": {"fake_quantizer": weight}}
    net = prepared("academic:a_symmetric=no" if kind != "tqt" else "academic", config)
    found = {group["lr"] for group in parameter_groups(net, TrainSettings()) if group["name"] == "fake-quantizers"}
    assert sorted(found) == pytest.approx(sorted(rates))
    plain = parameter_groups(net, TrainSettings(optimizer="sgd"))
    assert {group["lr"] for group in plain if group["name"] == "fake-quantizers"} == {1e-4}


def test_settings_without_effect_are_noted() -> None:
    idle = {"momentum": 0.5, "gamma": 0.5, "step_size": 2.0, "temperature": 3.0}
    training = train(toy_net(), toy_data(), {"steps": 1, **idle})
    noted = [name for name in idle if any(note.startswith(f"{name} = ") for note in training.notes)]
    assert noted == list(idle)
    used = train(toy_net(), toy_data(), {"steps": 1, "optimizer": "sgd", "schedule": "step", **idle, "distill": 0.5})
    assert not any("has no effect" in note for note in used.notes)
