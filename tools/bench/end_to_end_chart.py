"""The picture of `e2e`: a panel for each model, accuracy against processor time, a point for each tool and setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple

from onnxq.chart import Axis, svg_text
from tools.bench.ptq_overview import EQUAL, OWN, SQNR
from tools.bench.results import Row

PANEL_WIDTH, PANEL_HEIGHT, LEFT, RIGHT, ABOVE, BELOW, HEAD = 380, 260, 48, 24, 34, 44, 66
COLUMNS = 2
OWN_COLOR, LINE_COLOR = "#1f6f8b", "#e3e3e3"
PEER_COLORS = ("#d1495b", "#e09f3e", "#6a4c93", "#5f7a3d")
RADIUS, LETTER, ASCENT, DESCENT = 5.5, 6.6, 9.0, 3.0
"""Of a dot, and of a letter of text: its width, above and below its line."""

PLACES = (
    *(("start", 10.0, 4.0), ("end", -10.0, 4.0), ("middle", 0.0, -10.0), ("middle", 0.0, 18.0)),
    *(("start", 8.0, 16.0), ("start", 8.0, -7.0), ("end", -8.0, 16.0), ("end", -8.0, -7.0)),
    *(("middle", 0.0, -24.0), ("middle", 0.0, 32.0), ("start", 24.0, 20.0), ("end", -24.0, 20.0)),
)
"""Where a label may stand, from its dot: the first place at which it hides nothing is taken."""


@dataclass(frozen=True)
class Point:
    tool: str
    label: str
    times: float
    sqnr: float


def points_of(rows: Sequence[Row]) -> list[Point]:
    """What has both a time and an accuracy."""
    return [
        Point(str(row["tool"]), _label(row), float(row["x floor"]), float(row[SQNR]))
        for row in rows
        if row.get(SQNR, "") not in ("", EQUAL) and row.get("x floor", "") != ""
    ]


def _label(row: Row) -> str:
    setting = str(row.get("setting", ""))
    return setting if row["tool"] == OWN else "" if setting == "default" else setting


def picture(tables: Mapping[str, Sequence[Row]]) -> str:
    """An SVG with all models of which something was measured."""
    panels = {name: found for name, rows in tables.items() if (found := points_of(rows))}
    tools = dict.fromkeys(point.tool for found in panels.values() for point in found)
    peers = [tool for tool in tools if tool != OWN]
    colors = {OWN: OWN_COLOR} | {tool: PEER_COLORS[i % len(PEER_COLORS)] for i, tool in enumerate(peers)}
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * PANEL_WIDTH, HEAD + rows * PANEL_HEIGHT + 8
    parts = [f'<rect width="{width}" height="{height}" fill="white"/>']
    parts.append(svg_text(16, 24, "8-bit quantization, float file to written file: accuracy against time", "start"))
    x = 22.0
    for tool, color in colors.items():
        if tool in tools:
            parts += [_dot(x, 44, color), svg_text(x + 11, 48, tool, "start")]
            x += 34 + LETTER * len(tool)
    for number, (name, found) in enumerate(panels.items()):
        row, column = divmod(number, COLUMNS)
        parts += _panel(name, found, colors, column * PANEL_WIDTH, HEAD + row * PANEL_HEIGHT)
    style = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {style}>', *parts, "</svg>"]) + "\n"


def _panel(name: str, found: Sequence[Point], colors: Mapping[str, str], left: float, top: float) -> list[str]:
    low, high = left + LEFT, left + PANEL_WIDTH - RIGHT
    across = Axis(0.0, math.log10(max(10.0, *(point.times for point in found)) * 2.0), low, high)
    upward = Axis.around([point.sqnr for point in found], top + PANEL_HEIGHT - BELOW - 14, top + ABOVE + 8)
    parts = [f'<g font-weight="bold">{svg_text(left + LEFT, top + 20, name, "start")}</g>']
    for tick in upward.ticks():
        y = upward.at(tick)
        parts.append(f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{LINE_COLOR}"/>')
        parts.append(svg_text(low - 6, y + 4, upward.label(tick), "end"))
    for value in _decades(10**across.high):
        x = across.at(math.log10(value))
        parts.append(f'<path d="M{x:.1f} {top + ABOVE:.1f}V{top + PANEL_HEIGHT - BELOW:.1f}" stroke="{LINE_COLOR}"/>')
        parts.append(svg_text(x, top + PANEL_HEIGHT - BELOW + 16, f"{value:g}x", "middle"))
    below = top + PANEL_HEIGHT - 10
    parts.append(svg_text((low + high) / 2, below, "processor time / inference over the samples", "middle", "#666666"))
    parts.append(svg_text(low - 6, top + ABOVE - 2, "dB", "end", "#666666"))
    places = {one: (across.at(math.log10(max(1.0, one.times))), upward.at(one.sqnr)) for one in found}
    own = sorted((point for point in found if point.tool == OWN), key=lambda point: point.times)
    way = [places[point] for point in own]
    if len(way) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in way)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{OWN_COLOR}" stroke-width="1.5" opacity="0.5"/>')
    taken = [Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places.values()]
    taken += [Box(x, y, x, y) for x, y in _between(way)]
    inside = Box(low, top + ABOVE - 6, high + RIGHT, top + PANEL_HEIGHT - BELOW)
    for point in sorted(found, key=lambda one: -one.sqnr):
        x, y = places[point]
        title = f"{point.tool} {point.label}: {point.sqnr:g} dB, {point.times:g} times inference".replace(" :", ":")
        parts.append(_dot(x, y, colors[point.tool], title))
        if point.label:
            label, anchor, baseline = _placed(x, y, point.label, taken, inside)
            taken.append(label)
            beside = {"start": label.left, "middle": (label.left + label.right) / 2, "end": label.right}[anchor]
            parts.append(svg_text(beside, baseline, point.label, anchor))
    return parts


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right + 1
            and other.left < self.right + 1
            and self.top < other.bottom + 1
            and other.top < self.bottom + 1
        )


def _placed(x: float, y: float, label: str, taken: Sequence[Box], inside: Box) -> tuple[Box, str, float]:
    """What the label of a dot at (x, y) covers where it hides least, with its anchor and its line."""
    width = LETTER * len(label)
    found = []
    for anchor, across, down in PLACES:
        left = x + across - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        box = Box(left, y + down - ASCENT, left + width, y + down + DESCENT)
        found.append((_hidden(box, taken, inside), box, anchor, y + down))
    return min(found, key=lambda place: place[0])[1:]


def _hidden(box: Box, taken: Sequence[Box], inside: Box) -> int:
    """How much a label would hide; where it leaves its panel it is no better than on everything."""
    out = box.left < inside.left or box.right > inside.right or box.top < inside.top or box.bottom > inside.bottom
    return sum(box.meets(other) for other in taken) + (len(taken) if out else 0)


def _between(way: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points of a line, so near to one another that no label lies between them."""
    found = []
    for (x, y), (to_x, to_y) in pairwise(way):
        steps = max(1, round(max(abs(to_x - x), abs(to_y - y)) / 4))
        found += [(x + (to_x - x) * step / steps, y + (to_y - y) * step / steps) for step in range(1, steps)]
    return found


def _decades(most: float) -> list[float]:
    steps = (1, 10, 100, 1000, 10000) if most > 200 else (1, 2, 5, 10, 20, 50, 100, 200)
    return [float(value) for value in steps if value <= most]


def _dot(x: float, y: float, color: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{color}">{inside}</circle>'
