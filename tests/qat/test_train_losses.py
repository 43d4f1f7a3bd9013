"""Losses are those of torch for what the output holds, and labels that do not fit are errors with their numbers."""

from __future__ import annotations

import onnx
import pytest
import torch
import torch.nn.functional as functional
from onnx import helper

from onnxq.config.training import TrainSettings
from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.qat.evaluate import Evaluation
from onnxq.qat.losses import Loss, make_loss
from onnxq.qat.training_data import open_training_data
from onnxq.runtime import input_infos
from tests.qat.toy_net import toy_graph

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.3, -0.2]])
TEACHER = torch.tensor([[1.5, -1.0, 0.0], [0.1, 0.6, -0.4]])
LABELS = torch.tensor([0, 2])


def loss_of(form: str = "logits", **given: object) -> Loss:
    return Loss("y", {"y": form}, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "output"),
    [("logits", LOGITS), ("softmax", LOGITS.softmax(1)), ("log_softmax", LOGITS.log_softmax(1))],
)
def test_cross_entropy_and_kl_know_what_the_output_holds(form: str, output: torch.Tensor) -> None:
    found = loss_of(form)({"y": output}, LABELS, None)["loss"]
    torch.testing.assert_close(found, functional.cross_entropy(LOGITS, LABELS), rtol=1e-5, atol=0)
    wanted = {"softmax": TEACHER.softmax(1), "log_softmax": TEACHER.log_softmax(1)}.get(form, TEACHER)
    distilled = loss_of(form, share=1.0, distill="kl", temperature=2.0)({"y": output}, None, {"y": wanted})["loss"]
    p, q = (TEACHER / 2).softmax(1), (LOGITS / 2).softmax(1)
    torch.testing.assert_close(distilled, 4 * (p * (p / q).log()).sum(1).mean(), rtol=1e-4, atol=0)


def test_mse_of_distillation_is_relative_to_the_size_of_the_output() -> None:
    loss = loss_of(share=1.0, distill="mse")
    found = loss({"y": LOGITS}, None, {"y": TEACHER})["loss"]
    torch.testing.assert_close(found, ((LOGITS - TEACHER) ** 2).sum() / (TEACHER**2).sum())
    torch.testing.assert_close(loss({"y": 1e3 * LOGITS}, None, {"y": 1e3 * TEACHER})["loss"], found)


def test_both_parts_are_weighted_and_told_apart() -> None:
    parts = loss_of(share=0.25, distill="kl")({"y": LOGITS}, LABELS, {"y": TEACHER})
    torch.testing.assert_close(parts["loss"], 0.75 * parts["label"] + 0.25 * parts["distill"])


def test_losses_for_numbers() -> None:
    wanted = torch.rand(2, 3)
    found = loss_of()({"y": LOGITS}, wanted, None)["loss"]
    torch.testing.assert_close(found, functional.mse_loss(LOGITS, wanted))
    binary = functional.binary_cross_entropy_with_logits(LOGITS, wanted)
    torch.testing.assert_close(loss_of(label="bce")({"y": LOGITS}, wanted, None)["loss"], binary)
    found = loss_of("sigmoid", label="bce")({"y": LOGITS.sigmoid()}, wanted, None)["loss"]
    torch.testing.assert_close(found, binary, rtol=1e-5, atol=0)


def test_classes_of_every_place_of_an_image_are_on_axis_one() -> None:
    output, labels = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    labels[0, 0] = -100
    found = loss_of()({"y": output}, labels, None)["loss"]
    torch.testing.assert_close(found, functional.cross_entropy(output, labels))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (torch.tensor([0, 3]), "label 3 is out of range: output 'y' has 3 classes"),
        (torch.tensor([-1, 0]), "label -1 is out of range"),
        (torch.tensor([[0], [1]]), r"needs classes of the shape \[2\]"),
        (torch.rand(2), "compares values one by one"),
    ],
)
def test_labels_that_do_not_fit(labels: torch.Tensor, said: str) -> None:
    with pytest.raises(DataError, match=said):
        loss_of()({"y": LOGITS}, labels, None)


def test_the_end_of_the_graph_says_what_the_output_holds() -> None:
    for operator, form in (("Softmax", "softmax"), ("Sigmoid", "sigmoid"), ("Relu", "logits")):
        assert make_loss(TrainSettings(), toy_graph(last=operator), labelled=True).forms == {"y": form}


def _ends_in(nodes: list[onnx.NodeProto], opset: int) -> Graph:
    """x [batch, 5, 3] through some nodes to y."""
    shapes = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 5, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "ends", shapes[:1], shapes[1:])
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))


@pytest.mark.parametrize(
    ("opset", "given", "axis"), [(17, {"axis": 2}, 2), (17, {}, -1), (11, {}, 1), (11, {"axis": 2}, 2)]
)
def test_classes_are_on_the_axis_of_the_softmax(opset: int, given: dict[str, int], axis: int) -> None:
    graph = _ends_in(
        [helper.make_node("Softmax", ["x"], ["s"], **given), helper.make_node("Identity", ["s"], ["y"])], opset
    )
    loss = make_loss(TrainSettings(), graph, labelled=False)
    assert (loss.forms, loss.axes) == ({"y": "softmax"}, {"y": axis})


def test_indices_of_classes_are_not_the_output_to_learn() -> None:
    graph = _ends_in([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("ArgMax", ["y"], ["k"], axis=1)], 17)
    proto = graph.to_model()
    proto.graph.output.insert(0, helper.make_tensor_value_info("k", onnx.TensorProto.INT64, ["batch", 1, 3]))
    assert make_loss(TrainSettings(), Graph.from_model(proto), labelled=True).output == "y"
    chosen = make_loss(TrainSettings(label_output="k"), Graph.from_model(proto), labelled=False)
    data = open_training_data(torch.zeros(2, 5, 3).numpy(), input_infos(graph))
    single = {"k": torch.zeros(2)}
    nearness = Evaluation(data, chosen, "agreement", teacher=lambda inputs: single)
    with pytest.raises(DataError, match="agreement needs classes on axis 1, output 'k'"):
        nearness.of(lambda inputs: single)


def test_kl_cross_entropy_and_metrics_read_classes_on_the_last_axis() -> None:
    generator = torch.Generator().manual_seed(0)
    output, teacher = (torch.randn(4, 5, 3, generator=generator) for _ in range(2))
    labels = torch.randint(0, 3, (4, 5), generator=generator)
    given = {"y": "logits"}, {"y": -1}
    distilled = Loss("y", given[0], share=1.0, distill="kl", axes=given[1])({"y": output}, None, {"y": teacher})["loss"]
    p, q = teacher.softmax(-1), output.softmax(-1)
    torch.testing.assert_close(distilled, (p * (p / q).log()).sum(-1).mean())
    labelled = Loss("y", given[0], axes=given[1])
    found = labelled({"y": output}, labels, None)["loss"]
    torch.testing.assert_close(found, functional.cross_entropy(output.reshape(20, 3), labels.reshape(20)))
    data = open_training_data(
        {"x": output.numpy(), "labels": labels.numpy()},
        input_infos(_ends_in([helper.make_node("Relu", ["x"], ["y"])], 17)),
    )
    right = float((output.argmax(-1) == labels).float().mean())
    assert Evaluation(data, labelled, "accuracy").of(lambda inputs: {"y": output}) == pytest.approx(right)
    same = float((output.argmax(-1) == teacher.argmax(-1)).float().mean())
    nearness = Evaluation(data, labelled, "agreement", teacher=lambda inputs: {"y": teacher})
    assert nearness.of(lambda inputs: {"y": output}) == pytest.approx(same)


def test_without_labels_only_distillation_is_left() -> None:
    assert make_loss(TrainSettings(), toy_graph(), labelled=False).share == 1.0
    with pytest.raises(ConfigError, match="give labels, or set distill to 1"):
        make_loss(TrainSettings(distill=0.5), toy_graph(), labelled=False)
    with pytest.raises(ConfigError, match="no output 'z'"):
        make_loss(TrainSettings(label_output="z"), toy_graph(), labelled=True)
