"""How good a network is: accuracy, the loss, or how near it is to the float network, over data of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.errors import ConfigError, DataError
from onnxq.qat.batches import Batch, TrainingData
from onnxq.qat.distributed import Team
from onnxq.qat.losses import IGNORED, Loss, check_classes
from onnxq.qat.net import QatNet
from onnxq.user_code import users_errors

METRICS = ("accuracy", "loss", "agreement", "sqnr_db")
LOWER_IS_BETTER = ("loss",)

Run = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Inputs by name -> outputs by name."""

UserMetric = Callable[[Mapping[str, np.ndarray], np.ndarray | None], float]


@dataclass
class Evaluation:
    """A metric over data; called with a network, it gives a number.

    metric         one of METRICS, or a function of (outputs, labels) over all samples
    teacher        runs the float network, for agreement, sqnr_db and a loss with distillation
    whole_batches  leave out samples that do not fill the last batch, for models with a fixed one
    """

    data: TrainingData
    loss: Loss
    metric: str | UserMetric
    batch_size: int = 64
    teacher: Run | None = None
    team: Team | None = None
    higher_is_better: bool = True
    whole_batches: bool = False

    @property
    def name(self) -> str:
        if isinstance(self.metric, str):
            return self.metric
        return getattr(self.metric, "__name__", "metric")

    def __call__(self, net: QatNet) -> float:
        with evaluating(net):
            return self.of(net.run)

    @torch.no_grad()
    def of(self, run: Run) -> float:
        """The metric of anything that gives outputs for inputs, such as the float network."""
        team = self.team or Team(None)
        if not isinstance(self.metric, str):
            with team.together():
                value = self._of_user(run)
            return value
        sums = [0.0, 0.0, 0.0]
        with team.together():
            for number, batch in enumerate(self._batches()):
                if number % team.count == team.number:
                    parts = (*self._parts(run, batch), batch.rows)
                    sums = [total + part for total, part in zip(sums, parts, strict=True)]
        above, below, rows = team.total(sums)
        if not rows:
            raise self._no_samples()
        if self.metric == "sqnr_db":
            return math.inf if below == 0 else 10 * math.log10(max(above, 1e-300) / below)
        return above / below if below else math.nan

    def _batches(self) -> Iterator[Batch]:
        for batch in self.data.ordered(self.batch_size):
            if not self.whole_batches:
                yield batch
                continue
            for start in range(0, batch.rows - self.batch_size + 1, self.batch_size):
                yield batch.part(start, start + self.batch_size)

    def _no_samples(self) -> DataError:
        needed = f"; the model takes batches of {self.batch_size}" if self.whole_batches else ""
        return DataError(f"the data to evaluate on ({self.data.description}) is not enough for one batch{needed}")

    def _parts(self, run: Run, batch: Batch) -> tuple[float, float]:
        """What the metric is the quotient of, for one batch."""
        outputs = _on_processor(run(batch.inputs))
        teacher = None if self.teacher is None else _on_processor(self.teacher(batch.inputs))
        if self.metric == "loss":
            return float(self.loss(outputs, batch.labels, teacher)["loss"]) * batch.rows, float(batch.rows)
        if self.metric == "accuracy":
            assert batch.labels is not None
            classes = self.loss.by_class(outputs[self.loss.output], self.loss.output)
            check_classes(classes, batch.labels, self.loss.output)
            counted = batch.labels != IGNORED
            right = classes.argmax(dim=1) == batch.labels
            return float((right & counted).sum()), float(counted.sum())
        assert teacher is not None
        output, wanted = outputs[self.loss.output], teacher[self.loss.output]
        if self.metric == "agreement":
            if output.ndim < 2:
                raise DataError(
                    f"agreement needs classes on axis 1, output '{self.loss.output}' has the shape "
                    f"{list(output.shape)}: choose another metric, or another output with label_output"
                )
            first, second = (self.loss.by_class(each, self.loss.output).argmax(dim=1) for each in (output, wanted))
            same = first == second
            return float(same.sum()), float(same.numel())
        wanted = wanted.double()
        return float((wanted**2).sum()), float(((wanted - output.double()) ** 2).sum())

    def _of_user(self, run: Run) -> float:
        """Every process sees all samples, because a metric of the user's cannot be put together from parts."""
        outputs: dict[str, list[np.ndarray]] = {}
        labels: list[np.ndarray] = []
        for batch in self._batches():
            for name, values in run(batch.inputs).items():
                outputs.setdefault(name, []).append(values.cpu().numpy())
            if batch.labels is not None:
                labels.append(batch.labels.numpy())
        if not outputs:
            raise self._no_samples()
        joined = {name: np.concatenate(parts) for name, parts in outputs.items()}
        with users_errors(f"metric '{self.name}'"):
            value = self.metric(joined, np.concatenate(labels) if labels else None)  # type: ignore[operator]
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"metric '{self.name}' returned a {type(value).__name__}: return a number") from None


def _on_processor(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of any device beside the labels."""
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in outputs.items()}


def default_metric(data: TrainingData, loss: Loss) -> str:
    """Accuracy for classes, the loss for other labels; without labels the nearness to the float network."""
    if not data.labelled:
        softmax = loss.forms[loss.output] in ("softmax", "log_softmax")
        return "agreement" if softmax or loss.distill == "kl" else "sqnr_db"
    if loss.label == "cross_entropy":
        return "accuracy"
    return "loss"


@contextmanager
def evaluating(net: QatNet) -> Iterator[None]:
    """The network as it would be written now, with the quantizers that are on; afterwards as it was."""
    fake_quantizers: list[Any] = list(net.fake_quantizers.values())
    before = [(each.observing, each.muted) for each in fake_quantizers]
    training = net.training
    net.eval()
    for each in fake_quantizers:
        each.observing, each.muted = False, False
    try:
        yield
    finally:
        for each, (observing, muted) in zip(fake_quantizers, before, strict=True):
            each.observing, each.muted = observing, muted
        net.train(training)
