"""The picture of `e2e`: a panel for each model, accuracy against processor time, a point for each tool and setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from onnxq.chart import Axis, svg_text
from tools.bench.ptq_overview import EQUAL, OWN, SQNR
from tools.bench.results import Row

PANEL_WIDTH, PANEL_HEIGHT, LEFT, RIGHT, ABOVE, BELOW, HEAD = 380, 260, 48, 24, 34, 44, 66
COLUMNS = 2
OWN_COLOR, LINE_COLOR = "#1f6f8b", "#e3e3e3"
PEER_COLORS = ("#d1495b", "#e09f3e", "#6a4c93", "#5f7a3d")
LABEL_HEIGHT = 13


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
            x += 34 + 7.4 * len(tool)
    for number, (name, found) in enumerate(panels.items()):
        row, column = divmod(number, COLUMNS)
        parts += _panel(name, found, colors, column * PANEL_WIDTH, HEAD + row * PANEL_HEIGHT)
    style = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {style}>', *parts, "</svg>"]) + "\n"


def _panel(name: str, found: Sequence[Point], colors: Mapping[str, str], left: float, top: float) -> list[str]:
    low, high = left + LEFT, left + PANEL_WIDTH - RIGHT
    across = Axis(0.0, math.log10(max(10.0, *(point.times for point in found)) * 1.6), low, high)
    upward = Axis.around([point.sqnr for point in found], top + PANEL_HEIGHT - BELOW, top + ABOVE + 8)
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
    own = sorted((point for point in found if point.tool == OWN), key=lambda point: point.times)
    if len(own) > 1:
        line = " ".join(f"{across.at(math.log10(one.times)):.1f},{upward.at(one.sqnr):.1f}" for one in own)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{OWN_COLOR}" stroke-width="1.5" opacity="0.5"/>')
    taken: list[tuple[float, float]] = []
    for point in sorted(found, key=lambda one: -one.sqnr):
        x, y = across.at(math.log10(max(1.0, point.times))), upward.at(point.sqnr)
        title = f"{point.tool} {point.label}: {point.sqnr:g} dB, {point.times:g} times inference".replace(" :", ":")
        parts.append(_dot(x, y, colors[point.tool], title))
        if point.label:
            there = y + 4
            while any(abs(there - other) < LABEL_HEIGHT and abs(x - beside) < 70 for beside, other in taken):
                there += LABEL_HEIGHT
            taken.append((x, there))
            right = x + 60 < high
            parts.append(svg_text(x + 9 if right else x - 9, there, point.label, "start" if right else "end"))
    return parts


def _decades(most: float) -> list[float]:
    steps = (1, 10, 100, 1000, 10000) if most > 100 else (1, 2, 5, 10, 20, 50, 100)
    return [float(value) for value in steps if value <= most]


def _dot(x: float, y: float, color: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{color}">{inside}</circle>'
