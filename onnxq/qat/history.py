"""What a training leaves behind besides parameters: its course, its best moment, and the summary for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from onnxq.config.training import TrainSettings
from onnxq.files import json_number
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.qat.curve import COLUMNS, MOST_ROWS, Row, write_csv, write_svg
from onnxq.qat.scales import ScaleCourse

CSV_NAME, SVG_NAME = "training.csv", "training.svg"


@dataclass
class History:
    """Rows of the course; `every` steps become one, so that long trainings have short files."""

    every: int
    rows: list[Row] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0
    pending: tuple[int, int, float] | None = None

    @classmethod
    def for_steps(cls, steps: int) -> History:
        return cls(max(-(-steps // MOST_ROWS), 1))

    def add(self, step: int, epoch: int, losses: Mapping[str, float], lr: float) -> None:
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.count += 1
        self.pending = (step, epoch, lr)
        if self.count == self.every:
            self.flush()

    def flush(self) -> None:
        """Make a row of the steps since the last one."""
        if self.pending is None:
            return
        step, epoch, lr = self.pending
        loss, label, distill = (
            self.sums[name] / self.count if name in self.sums else None for name in ("loss", "label", "distill")
        )
        self.rows.append(Row(step, epoch, loss, label, distill, lr, None))
        self.sums, self.count, self.pending = {}, 0, None

    def evaluated(self, step: int, epoch: int, metric: float) -> None:
        self.flush()
        self.rows.append(Row(step, epoch, None, None, None, None, metric))

    @property
    def last_loss(self) -> float | None:
        return next((row.loss for row in reversed(self.rows) if row.loss is not None), None)

    @property
    def last_metric(self) -> float | None:
        return next((row.metric for row in reversed(self.rows) if row.metric is not None), None)

    def to_json(self) -> JsonObject:
        return {
            "every": self.every,
            "rows": [row.to_list() for row in self.rows],
            "sums": self.sums,
            "count": self.count,
            "pending": None if self.pending is None else list(self.pending),
        }

    @classmethod
    def from_json(cls, data: JsonMapping) -> History:
        rows = [Row(**dict(zip(COLUMNS, values, strict=True))) for values in data["rows"]]
        pending = None if data["pending"] is None else tuple(data["pending"])
        return cls(data["every"], rows, dict(data["sums"]), data["count"], pending)  # type: ignore[arg-type]


@dataclass
class Best:
    """The best evaluation so far; `stale` counts those since, and `state` has the parameters of then."""

    higher_is_better: bool = True
    value: float | None = None
    step: int = 0
    epoch: int = 0
    stale: int = 0
    state: dict[str, Tensor] | None = None

    def take(self, step: int, epoch: int, value: float) -> bool:
        """Whether an evaluation is the best so far; of equal ones the later, which has seen more data."""
        better = self.value is None or (value >= self.value if self.higher_is_better else value <= self.value)
        progress = self.value is None or (value > self.value if self.higher_is_better else value < self.value)
        self.stale = 0 if progress else self.stale + 1
        if math.isnan(value) or not better:
            return False
        self.value, self.step, self.epoch = value, step, epoch
        return True

    def to_json(self) -> JsonObject:
        names = ("higher_is_better", "value", "step", "epoch", "stale")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, data: JsonMapping) -> Best:
        return cls(**data)


@dataclass(frozen=True, eq=False)
class Training:
    """A finished training.

    rows   its course
    scales  how the scales of quantizers moved
    best   the best evaluation; the network has its parameters now
    last   the parameters after the last step
    """

    settings: TrainSettings
    steps: int
    epochs: int
    batch_size: int
    metric: str | None
    rows: tuple[Row, ...]
    scales: ScaleCourse
    best: Best
    last: Mapping[str, Tensor]
    seconds: float
    ended_early: bool = False
    notes: tuple[str, ...] = ()

    @property
    def losses(self) -> list[float]:
        return [row.loss for row in self.rows if row.loss is not None]

    @property
    def metrics(self) -> list[float]:
        """The values of all evaluations; the first is of the network before training."""
        return [row.metric for row in self.rows if row.metric is not None]

    def write(self, folder: Path) -> list[Path]:
        """training.csv, training.svg and scales.csv."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / CSV_NAME, folder / SVG_NAME]
        write_csv(files[0], self.rows)
        write_svg(files[1], self.rows, self.metric or "metric")
        return [*files, self.scales.write(folder)]

    def to_json(self, *, last: bool = False) -> JsonObject:
        """The summary for report.json; with `last` the parameters after the last step were written, not the best."""
        losses = self.losses
        final = next((row for row in reversed(self.rows) if row.metric is not None), None)
        last = last or self.best.value is None  # no evaluation gave a number
        after, epoch = (final.metric, final.epoch) if last and final is not None else (self.best.value, self.best.epoch)
        return {
            "steps": self.steps,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "seconds": round(self.seconds, 3),
            "ended_early": self.ended_early,
            "loss": {"first": json_number(losses[0]), "last": json_number(losses[-1])} if losses else None,
            "metric": self.metric,
            "before": json_number(self.metrics[0]) if self.metrics else None,
            "after": None if after is None else json_number(after),
            "after_epoch": epoch,
            "best_step": self.best.step,
            "best_epoch": self.best.epoch,
            "settings": self.settings.to_json(),
        }
