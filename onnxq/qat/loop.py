"""Training: batches through a network, losses into steps, and everything that has its time in between.

What happens in a step depends on its number and on the parameters before it alone. So a run that was cut off and goes
on from a checkpoint ends with the same bits as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from onnxq.config.training import TrainSettings, idle_settings, train_settings
from onnxq.distributed import Ranks
from onnxq.errors import CheckFailed, ConfigError
from onnxq.json_file import JsonMapping
from onnxq.qat.batches import Batch, TrainingData
from onnxq.qat.checkpoint import ADVICE, Checkpoints, check_parameters, identity_of
from onnxq.qat.distributed import Team
from onnxq.qat.fixed_batch import fixed_batch, takes_rows
from onnxq.qat.history import Best, History, Training
from onnxq.qat.losses import Loss, fitted_to, make_loss
from onnxq.qat.net import QatNet
from onnxq.qat.optimizers import make_optimizer, set_learning_rates
from onnxq.qat.randomness import generators_kept, seed_everything
from onnxq.qat.roundings import let_decide, undecided
from onnxq.qat.scales import ScaleCourse
from onnxq.qat.schedules import Schedule
from onnxq.qat.training_data import open_training_data
from onnxq.runtime import input_infos
from onnxq.torchnet import TorchNet, to_torch

STEP = 3
"""What random numbers within a step are drawn for, as part of their seed."""


class Evaluate(Protocol):
    """Gives the metric of a network; `higher_is_better` and `name` are read where it has them."""

    def __call__(self, net: QatNet) -> float: ...


@dataclass(frozen=True)
class Moment:
    """Where training is, for whoever shows it."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float | None
    lr: float
    metric: float | None
    seconds_per_step: float
    new_epoch: bool = False
    metric_name: str = "metric"


def train(
    net: QatNet,
    batches: Any,
    settings: TrainSettings | JsonMapping | None = None,
    *,
    evaluate: Evaluate | None = None,
    teacher: TorchNet | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[Moment], None] | None = None,
    ranks: Ranks | None = None,
) -> Training:
    """Train a network of `onnxq.qat.prepare`; it ends with the parameters of its best evaluation, or the last ones.

    batches   what `open_training_data` takes
    evaluate  gives the metric of the network; called before training and after epochs
    teacher   the float network, for distillation; made from the model as it was given when left out
    folder    where checkpoints go; None keeps none
    resume    go on from the newest checkpoint in `folder`, if there is one
    ranks     the processes of a torchrun (`onnxq.distributed`) that train together
    """
    settings = train_settings(settings)
    data = batches if isinstance(batches, TrainingData) else open_training_data(batches, input_infos(net.graph))
    loss = make_loss(settings, net.original, labelled=data.labelled)
    if loss.share > 0 and teacher is None:
        teacher = to_torch(net.original)
    run = _Run(net, data, settings, loss, evaluate, teacher, Team(ranks), progress)
    if folder is not None:
        identity = identity_of(net, settings, data.identity(), getattr(net, "plan", None))
        run.checkpoints = Checkpoints(Path(folder), identity)
    with generators_kept():
        return run.whole(resume=resume)


class _Run:
    """One training: its parts, and where it is."""

    def __init__(
        self,
        net: QatNet,
        data: TrainingData,
        settings: TrainSettings,
        loss: Loss,
        evaluate: Evaluate | None,
        teacher: TorchNet | None,
        team: Team,
        progress: Callable[[Moment], None] | None,
    ) -> None:
        self.net, self.data, self.settings, self.loss = net, data, settings, loss
        self.evaluate, self.team = evaluate, team
        self.say = progress or (lambda moment: None)
        self.device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
        self.teacher = None if teacher is None else teacher.eval().to(self.device)
        self.accumulate = settings.accumulate
        self.batch_size = self._batch_size()
        self._obey_fixed_batch()
        self.schedule = Schedule.of(settings, data.steps(self.batch_size))
        if settings.quantize_from is not None and not self.schedule.quantizing(self.schedule.steps - 1):
            raise ConfigError(
                f"quantize_from = {settings.quantize_from:g} is after the last of {self.schedule.steps} steps, so no "
                "quantizer would be trained with: choose an earlier moment"
            )
        distills_by_kl = loss.share > 0 and loss.distill != "mse"
        for line in idle_settings(settings, batch_norms=net.batch_norms, distills_by_kl=distills_by_kl):
            data.note(line)
        self.optimizer = make_optimizer(net, settings)
        self.history = History.for_steps(self.schedule.steps)
        self.scales = ScaleCourse.of(net, self.schedule.steps)
        self.best = Best(_higher_is_better(settings, evaluate))
        self.metric_name = str(getattr(evaluate, "name", "metric"))
        self.checkpoints: Checkpoints | None = None
        self.best_is_saved = False
        self.step = 0
        self.began = time.perf_counter()
        self.wrapped: nn.Module = net

    @property
    def slices(self) -> int:
        """The parts of a batch that go through the network one by one, over all processes."""
        return self.team.count * self.accumulate

    def _obey_fixed_batch(self) -> None:
        """Cut batches into slices of the length that a model was exported for, if it can do no other."""
        length, rows = fixed_batch(self.net.graph), self.batch_size // self.slices
        if length is None or length == rows or takes_rows(self.net, self.data, length, rows):
            return
        if rows % length:
            raise ConfigError(
                f"the model was exported for batches of {length} and can do no other: choose a batch_size that is a "
                f"multiple of {length * self.slices}, or give batches of such a length"
            )
        self.accumulate *= rows // length
        self.data.note(
            f"the model was exported for batches of {length} and can do no other: its slices are that small, which is "
            "slow. Export it with a free first dimension"
        )

    def _batch_size(self) -> int:
        if self.data.own_batch is not None:
            return self.data.own_batch
        wanted = self.settings.batch_size
        if wanted % self.slices:
            raise ConfigError(
                f"a batch of {wanted} cannot be cut into {self.slices} equal slices ({self.team.count} processes, "
                f"accumulate {self.settings.accumulate}): choose a batch_size that can"
            )
        samples = len(self.data) if hasattr(self.data, "__len__") else wanted
        if samples < self.slices:
            raise ConfigError(f"{samples} samples are too few for {self.slices} slices of a batch")
        if samples < wanted:
            self.data.note(f"batches have {samples // self.slices * self.slices} samples, because there are no more")
            return samples // self.slices * self.slices
        return wanted

    # ---- the whole -----------------------------------------------------------------------------------------------

    def whole(self, *, resume: bool) -> Training:
        restored = self._restore() if resume else False
        if not resume and self.checkpoints is not None:
            with self.team.together():
                self.checkpoints.refuse_others()
        self.net.checkpoint_segments = max(self.settings.recompute, 1)
        self.wrapped = self.team.wrap(self.net)
        if not restored:
            self.scales.take(0, self.net)
            self._evaluate(epoch=0)
        ended_early = False
        while self.step < self.schedule.steps and not ended_early:
            self._epoch(self.step // self.schedule.per_epoch)
            ended_early = self.settings.patience is not None and self.best.stale >= self.settings.patience
        self._apply_schedule(self.schedule.steps)
        self.net.mute(False)
        return self._finished(ended_early=ended_early)

    def _epoch(self, epoch: int) -> None:
        """The rest of an epoch, then its evaluation and its checkpoint."""
        settings, first = self.settings, self.step % self.schedule.per_epoch
        end = min((epoch + 1) * self.schedule.per_epoch, self.schedule.steps)
        batches = self.data.epoch(settings.seed, epoch, self.batch_size, skip=first)
        self.net.train()
        while self.step < end:
            with self.team.together():
                batch = next(batches)
            began = time.perf_counter()
            losses, rate = self._step(batch)
            self.step += 1
            self.history.add(self.step, epoch + 1, losses, rate)
            if self.scales.due(self.step):
                self.scales.take(self.step, self.net)
            self._tell(epoch, losses["loss"], rate, time.perf_counter() - began)
            every = settings.checkpoint_every
            if every is not None and self.step % every == 0 and self.step < end:
                self._save(rate)
        self.history.flush()
        last = self.step >= self.schedule.steps
        if last or (epoch + 1) % settings.evaluate_every == 0:
            self._evaluate(epoch + 1)
        self._save(self.settings.lr * self.schedule.factor(self.step - 1))
        self._tell(epoch, self.history.last_loss, self.settings.lr * self.schedule.factor(self.step - 1), 0.0, True)

    # ---- a step --------------------------------------------------------------------------------------------------

    def _step(self, batch: Batch) -> tuple[dict[str, float], float]:
        settings, step = self.settings, self.step
        self._apply_schedule(step)
        factor = self.schedule.factor(step)
        set_learning_rates(self.optimizer, settings, factor)
        self.optimizer.zero_grad(set_to_none=True)
        seed_everything(STEP, settings.seed, step, self.team.number)
        rows = batch.rows // self.slices
        if not rows:
            raise ConfigError(f"a batch of {batch.rows} cannot be cut into {self.slices} slices: give larger batches")
        if batch.rows % self.slices:
            self.data.note(f"rows that cannot be cut into {self.slices} equal slices are left out of their batch")
        sums: dict[str, float] = {}
        for number in range(self.accumulate):
            start = (self.team.number * self.accumulate + number) * rows
            part = batch.part(start, start + rows).to(self.device)
            with self.team.no_sync(self.wrapped, last=number == self.accumulate - 1):
                with self.team.together():
                    losses = self._losses(part)
                (losses["loss"] / self.accumulate).backward()  # type: ignore[no-untyped-call]
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach()) / self.accumulate
        totals = [value / self.team.count for value in self.team.total(list(sums.values()))]
        means = dict(zip(sums, totals, strict=True))
        self._check_loss(means["loss"], settings.lr * factor)
        if settings.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), settings.clip_gradient)
        self.optimizer.step()
        return means, settings.lr * factor

    def _losses(self, part: Batch) -> dict[str, Tensor]:
        names = self.net.graph.input_names
        found: Any = self.wrapped(*[part.inputs[name] for name in names])
        outputs = dict(zip(self.net.output_names, found if isinstance(found, tuple) else (found,), strict=True))
        wanted = None
        if self.loss.share > 0:
            assert self.teacher is not None
            with torch.no_grad():
                wanted = self.teacher.run(part.inputs)
        losses = fitted_to(self.loss, part.labels)(outputs, part.labels, wanted)
        rounding = undecided(self.net, self.step / self.schedule.steps)
        return losses if rounding is None else {**losses, "loss": losses["loss"] + rounding}

    def _apply_schedule(self, step: int) -> None:
        self.net.observe(self.schedule.observing(step))
        self.net.mute(not self.schedule.quantizing(step))
        let_decide(self.net, step / self.schedule.steps)
        self.net.mode.live_statistics = self.net.batch_norms == "live" and self.schedule.live_statistics(step)

    def _check_loss(self, value: float, rate: float) -> None:
        if value - value == 0.0:  # neither NaN nor infinite
            return
        where = ""
        if self.checkpoints is not None and self.checkpoints.any():
            where = f". The checkpoints before it are in {self.checkpoints.folder}"
        raise CheckFailed(
            f"the loss is {value} in step {self.step + 1} of {self.schedule.steps} "
            f"(learning rate {rate:g}): {ADVICE}{where}"
        )

    # ---- around the steps ----------------------------------------------------------------------------------------

    def _evaluate(self, epoch: int) -> None:
        if self.evaluate is None:
            return
        value = float(self.evaluate(self.net))
        self.history.evaluated(self.step, epoch, value)
        if self.best.take(self.step, epoch, value):
            self.best.state = {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}
            self.best_is_saved = False

    def _save(self, rate: float) -> None:
        if self.checkpoints is None:
            return
        with self.team.together():
            check_parameters(self.net, self.step, rate)
            if self.team.first:
                self._save_best()
                state = {
                    "step": self.step,
                    "seconds": self._seconds(),
                    "net": self.net.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "history": self.history.to_json(),
                    "scales": self.scales.to_json(),
                    "best": self.best.to_json(),
                }
                self.checkpoints.save(self.step, state)

    def _save_best(self) -> None:
        """With the next checkpoint and not before: nothing could go on from it alone."""
        if self.checkpoints is not None and self.best.state is not None and not self.best_is_saved:
            self.checkpoints.save_best({"net": self.best.state, **self.best.to_json()})
            self.best_is_saved = True

    def _restore(self) -> bool:
        if self.checkpoints is None:
            raise ConfigError("there is no folder with checkpoints to go on from: name it with folder (--checkpoint)")
        with self.team.together():
            state = self.checkpoints.newest()
            best = None if state is None else self.checkpoints.best()
        if state is None:
            return False
        self.step = int(state["step"])
        self.began -= float(state["seconds"])
        try:
            self.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:  # parameters of a file
            raise self.checkpoints.damaged(error) from error
        self.history = History.from_json(state["history"])
        if state.get("scales") is not None:  # checkpoints of 0.2.0 have none
            found = ScaleCourse.from_json(state["scales"])
            if found.tensors != self.scales.tensors:
                raise self.checkpoints.damaged(ValueError("its scales are those of other tensors"))
            self.scales = found
        self.best = Best.from_json(state["best"])
        if best is not None and best["step"] == self.best.step:
            self.best.state = best["net"]
            self.best_is_saved = True
        return True

    def _finished(self, *, ended_early: bool) -> Training:
        last = {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}
        check_parameters(self.net, self.step, self.settings.lr)
        self.scales.take(self.step, self.net)
        if self.best.state is not None:
            self.net.load_state_dict(self.best.state)
        self.net.eval()
        return Training(
            settings=self.settings,
            steps=self.step,
            epochs=-(-self.step // self.schedule.per_epoch),
            batch_size=self.batch_size,
            metric=None if self.evaluate is None else self.metric_name,
            rows=tuple(self.history.rows),
            scales=self.scales,
            best=self.best,
            last=last,
            seconds=self._seconds(),
            ended_early=ended_early,
            notes=self.data.notes,
        )

    def _seconds(self) -> float:
        """How long the training has run, with the time before the checkpoint that it goes on from."""
        return time.perf_counter() - self.began

    def _tell(self, epoch: int, loss: float | None, rate: float, seconds: float, new_epoch: bool = False) -> None:
        self.say(
            Moment(
                self.step,
                self.schedule.steps,
                epoch + 1,
                -(-self.schedule.steps // self.schedule.per_epoch),
                loss,
                rate,
                self.history.last_metric,
                seconds,
                new_epoch,
                self.metric_name,
            )
        )


def _higher_is_better(settings: TrainSettings, evaluate: Evaluate | None) -> bool:
    if settings.best_by is not None:
        return settings.best_by == "max"
    return bool(getattr(evaluate, "higher_is_better", True))
