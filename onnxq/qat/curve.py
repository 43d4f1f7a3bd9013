"""The course of a training for people and programs: training.csv with its numbers, training.svg with its curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxq.chart import Axis, svg_text
from onnxq.files import replace_file

MOST_ROWS = 2000
"""Rows of a long training; each is the mean over the steps since the one before."""

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 70, 40, 50
LOSS_COLOR, METRIC_COLOR = "#1f5fa8", "#c25a12"


@dataclass(frozen=True)
class Row:
    """The mean loss of the steps up to `step`, its parts, the learning rate there, and the metric if measured."""

    step: int
    epoch: int
    loss: float | None
    label: float | None
    distill: float | None
    lr: float | None
    metric: float | None

    def to_list(self) -> list[Any]:
        return [getattr(self, name) for name in COLUMNS]


COLUMNS = ("step", "epoch", "loss", "label", "distill", "lr", "metric")


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow("" if value is None else value for value in row.to_list())
    replace_file(path, lambda out: out.write(stream.getvalue().encode()))


def write_svg(path: Path, rows: Sequence[Row], metric: str) -> None:
    text = draw(rows, metric)
    replace_file(path, lambda out: out.write(text.encode()))


def draw(rows: Sequence[Row], metric: str) -> str:
    """An SVG with the loss on the left axis and the metric on the right one, over the steps."""
    losses = [(row.step, row.loss) for row in rows if row.loss is not None and math.isfinite(row.loss)]
    metrics = [(row.step, row.metric) for row in rows if row.metric is not None and math.isfinite(row.metric)]
    last = max((row.step for row in rows), default=1) or 1
    steps = Axis(0, last, LEFT, WIDTH - RIGHT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for value in steps.ticks():
        x = steps.at(value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
        parts.append(svg_text(x, HEIGHT - BOTTOM + 18, steps.label(value), "middle"))
    parts.append(svg_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "step", "middle"))
    legend = []
    for points, name, color, x, anchor, shift, dots in (
        (losses, "loss", LOSS_COLOR, LEFT, "end", -8, False),
        (metrics, metric, METRIC_COLOR, WIDTH - RIGHT, "start", 8, True),
    ):
        if not points:
            continue
        axis = Axis.around([value for _, value in points], HEIGHT - BOTTOM, TOP)
        for value in axis.ticks():
            y = axis.at(value)
            if name == "loss":
                parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>')
            parts.append(svg_text(x + shift, y + 4, axis.label(value), anchor, color))
        places = [(steps.at(step), axis.at(value)) for step, value in points]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        if dots:
            parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{color}"/>' for px, py in places]
        legend.append((name, color))
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    parts.append(f'<rect {frame} fill="none" stroke="#777777"/>')
    for number, (name, color) in enumerate(legend):
        x = LEFT + 10 + 160 * number
        parts.append(f'<line x1="{x}" y1="22" x2="{x + 24}" y2="22" stroke="{color}" stroke-width="3"/>')
        parts.append(svg_text(x + 30, 26, name, "start"))
    return "\n".join([*parts, "</svg>", ""])
