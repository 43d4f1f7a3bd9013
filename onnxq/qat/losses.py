"""What training makes small: the distance to the labels, the distance to the float network, or both.

    total = (1 - d) * label + d * distill

with d the share of distillation. For outputs o of the network and t of the float network,

    kl    T^2 * sum(p * log(p / q)) / samples, with p = softmax(t / T) and q = softmax(o / T)    (Hinton et al., 2015)
    mse   sum((o - t)^2) / sum(t^2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from onnxq.config.training import TrainSettings
from onnxq.errors import ConfigError, DataError, did_you_mean
from onnxq.graph import Graph, Node
from onnxq.user_code import find_function, users_errors

Outputs = Mapping[str, Tensor]

SMALLEST = 1e-7
"""Probabilities that a quantizer has made 0 count as this much where a logarithm is taken."""

IGNORED = -100
"""The label that cross entropy leaves out."""


def output_form(graph: Graph, name: str) -> str:
    """What an output holds: "softmax", "log_softmax", "sigmoid" where the graph ends so, otherwise "logits"."""
    producer = _last_node(graph, name)
    forms = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Sigmoid": "sigmoid"}
    return "logits" if producer is None else forms.get(producer.op, "logits")


def class_axis(graph: Graph, name: str) -> int:
    """The axis with the classes of an output: that of the Softmax which it ends in, otherwise 1."""
    producer = _last_node(graph, name)
    if producer is None or producer.op not in ("Softmax", "LogSoftmax"):
        return 1
    return int(producer.attrs.get("axis", -1 if graph.opset >= 13 else 1))


def _last_node(graph: Graph, name: str) -> Node | None:
    """The node that computes an output; Identity only gives it another name."""
    producer = graph.producer(name)
    while producer is not None and producer.op == "Identity":
        producer = graph.producer(producer.inputs[0].name)
    return producer


def log_probabilities(output: Tensor, form: str, temperature: float = 1.0) -> Tensor:
    """Logarithms of the probabilities of classes, which are on axis 1."""
    if form == "softmax":
        output = output.clamp_min(SMALLEST).log()
    return functional.log_softmax(output / temperature, dim=1)


@dataclass(frozen=True)
class Loss:
    """The loss of a batch and its parts.

    output   the output that labels belong to
    forms    output -> what it holds (`output_form`)
    label    the loss against labels: a name of LABEL_LOSSES, or a function of (outputs, labels)
    share    d of the formula
    axes     output -> the axis with its classes (`class_axis`), 1 where it has no entry
    """

    output: str
    forms: Mapping[str, str]
    label: str | Callable[[Outputs, Tensor], Any] = "auto"
    share: float = 0.0
    distill: str = "auto"
    temperature: float = 1.0
    axes: Mapping[str, int] = field(default_factory=dict)

    def by_class(self, values: Tensor, name: str) -> Tensor:
        """Values of an output with its classes on axis 1, where torch wants them."""
        axis = self.axes.get(name, 1)
        return values.movedim(axis, 1) if values.ndim > 2 and axis != 1 else values

    def __call__(self, outputs: Outputs, labels: Tensor | None, teacher: Outputs | None) -> dict[str, Tensor]:
        """The parts and their "loss"; distillation needs the outputs of the teacher, the rest needs labels."""
        parts: dict[str, Tensor] = {}
        if self.share < 1:
            if labels is None:
                raise DataError("the training data has no labels: give them, or train with distill = 1")
            parts["label"] = self.against_labels(outputs, labels)
        if self.share > 0:
            assert teacher is not None
            parts["distill"] = self.against_teacher(outputs, teacher)
        if len(parts) == 1:
            return {"loss": next(iter(parts.values()))}
        return {"loss": (1 - self.share) * parts["label"] + self.share * parts["distill"], **parts}

    def against_labels(self, outputs: Outputs, labels: Tensor) -> Tensor:
        if not isinstance(self.label, str):
            with users_errors("the label loss"):
                value = self.label(outputs, labels)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ConfigError(f"the label loss returned a {type(value).__name__}: return a tensor with one number")
            if not value.requires_grad and torch.is_grad_enabled():
                raise ConfigError(
                    "the label loss returned a tensor without a gradient: compute it from the outputs with torch, "
                    "without .detach(), .item() or numpy"
                )
            return value.reshape(())
        output, form = outputs[self.output], self.forms[self.output]
        kind = self.label_kind(labels)
        if kind == "cross_entropy":
            output = self.by_class(output, self.output)
            if labels.is_floating_point() and labels.ndim == output.ndim:
                labels = self.by_class(labels, self.output)
            check_classes(output, labels, self.output)
            if labels.is_floating_point():  # probabilities of all classes
                return functional.cross_entropy(log_probabilities(output, form), labels)
            return functional.nll_loss(log_probabilities(output, form), labels, ignore_index=IGNORED)
        wanted = _alike(output, labels, self.output, kind)
        if kind == "mse":
            return functional.mse_loss(output, wanted)
        if form == "sigmoid":
            return functional.binary_cross_entropy(output.clamp(SMALLEST, 1 - SMALLEST), wanted)
        return functional.binary_cross_entropy_with_logits(output, wanted)

    def label_kind(self, labels: Tensor) -> str:
        """Which loss fits the labels where none was chosen: whole numbers are classes."""
        assert isinstance(self.label, str)
        if self.label != "auto":
            return self.label
        return "mse" if labels.is_floating_point() else "cross_entropy"

    def against_teacher(self, outputs: Outputs, teacher: Outputs) -> Tensor:
        """The mean over all outputs of floating point."""
        names = [name for name, values in outputs.items() if values.is_floating_point()]
        losses = [self._distance(outputs[name], teacher[name].detach(), name) for name in names]
        if not losses:
            raise ConfigError("distillation needs an output of floating point, and the model has none")
        return torch.stack(losses).mean()

    def _distance(self, output: Tensor, wanted: Tensor, name: str) -> Tensor:
        form = self.forms[name]
        classes = form in ("softmax", "log_softmax") or (name == self.output and self.label == "cross_entropy")
        if output.ndim < 2 or not (self.distill == "kl" or (self.distill == "auto" and classes)):
            return ((output - wanted) ** 2).sum() / (wanted**2).sum().clamp_min(torch.finfo(wanted.dtype).tiny)
        output, wanted = self.by_class(output, name), self.by_class(wanted, name)
        is_log = log_probabilities(output, form, self.temperature)
        target = log_probabilities(wanted, form, self.temperature)
        terms = functional.kl_div(is_log, target, log_target=True, reduction="sum")
        return self.temperature**2 * terms / (output.numel() / output.shape[1])


def make_loss(settings: TrainSettings, graph: Graph, *, labelled: bool) -> Loss:
    """The loss that settings describe, for data with or without labels.

    `graph` is the model as it was given: passes may hide a Softmax at its end.
    """
    outputs = graph.output_names
    output = settings.label_output or _first_float(graph)
    if output not in outputs:
        raise ConfigError(
            f"the model has no output '{output}'.{did_you_mean(output, outputs)} It has {', '.join(outputs)}"
        )
    share = settings.distill
    if share is None:
        share = 0.0 if labelled else 1.0
    if share < 1 and not labelled:
        raise ConfigError(
            f"distill = {share:g} leaves a part of the loss to labels, but the training data has none: give labels, or "
            "set distill to 1"
        )
    label: str | Callable[[Outputs, Tensor], Any] = settings.label_loss
    if ":" in settings.label_loss:
        label = find_function(settings.label_loss, "label loss")
    forms = {name: output_form(graph, name) for name in outputs}
    axes = {name: class_axis(graph, name) for name in outputs}
    return Loss(output, forms, label, share, settings.distill_loss, settings.temperature, axes)


def _first_float(graph: Graph) -> str:
    """The output to learn: indices of classes, such as those of an ArgMax, may come before it."""
    kinds = {name: graph.dtype(name) for name in graph.output_names}
    floats = [name for name, kind in kinds.items() if kind is None or kind.kind not in "iub"]
    return (floats or graph.output_names)[0]


def fitted_to(loss: Loss, labels: Tensor | None) -> Loss:
    """The loss with what labels of the data decide, so that distillation knows whether outputs are classes."""
    if loss.label != "auto" or labels is None:
        return loss
    return replace(loss, label=loss.label_kind(labels))


def check_classes(output: Tensor, labels: Tensor, name: str) -> None:
    """Labels of classes fit the output: its classes are on axis 1, and labels are below their number."""
    if output.ndim < 2:
        raise DataError(f"cross entropy needs classes on axis 1, output '{name}' has the shape {list(output.shape)}")
    if labels.is_floating_point():
        _alike(output, labels, name, "cross_entropy")
        return
    wanted = (output.shape[0], *output.shape[2:])
    if tuple(labels.shape) != wanted:
        raise DataError(
            f"labels have the shape {list(labels.shape)}, but output '{name}' {list(output.shape)} needs classes of "
            f"the shape {list(wanted)}"
        )
    wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= output.shape[1]))]
    if wrong.numel():
        raise DataError(
            f"label {int(wrong[0])} is out of range: output '{name}' has {output.shape[1]} classes, 0 .. "
            f"{output.shape[1] - 1}; {IGNORED} leaves a sample out"
        )


def _alike(output: Tensor, labels: Tensor, name: str, kind: str) -> Tensor:
    """The labels as floats of the output's shape; only axes of length 1 may be missing, since torch would broadcast."""
    if labels.numel() != output.numel() or [n for n in labels.shape if n > 1] != [n for n in output.shape if n > 1]:
        raise DataError(
            f"{kind} compares values one by one: labels have the shape {list(labels.shape)}, output '{name}' has "
            f"{list(output.shape)}. Labels that are classes have to be whole numbers"
        )
    return labels.to(output.dtype).reshape(output.shape)
