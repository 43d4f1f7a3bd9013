"""front.svg: everything that a search has evaluated over its cost, the front as a line, the chosen point marked."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from onnxq.chart import Axis, svg_text
from onnxq.escapes import one_line
from onnxq.mixed_precision.found import Found, Point

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 40, 50
FRONT, OTHERS, CHOSEN = "#1f5fa8", "#9a9a9a", "#c25a12"

UNITS = {"bytes": "bytes of weights", "bits": "mean bits of weights", "bit_operations": "bit operations"}


def draw_front(found: Found) -> str:
    """An SVG with the cost to the right and the metric upwards."""

    def cost(point: Point) -> float:
        return point.costs.mean_bits if found.measure == "bits" else float(found.cost(point))

    points = [point for point in found.points if math.isfinite(point.score.value)]
    front = [point for point in found.front if math.isfinite(point.score.value)]
    across = Axis.around([cost(point) for point in points] or [0.0], LEFT, WIDTH - RIGHT)
    upwards = Axis.around([point.score.value for point in points] or [0.0], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f"<title>{escape(one_line(found.goal))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for value in across.ticks():
        x = across.at(value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
        parts.append(svg_text(x, HEIGHT - BOTTOM + 18, across.label(value), "middle"))
    for value in upwards.ticks():
        y = upwards.at(value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(svg_text(LEFT - 8, y + 4, upwards.label(value), "end"))
    line = " ".join(f"{across.at(cost(point)):.1f},{upwards.at(point.score.value):.1f}" for point in front)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{FRONT}" stroke-width="1.5"/>')
    for point in (*points, *front, found.chosen):
        color = CHOSEN if point is found.chosen else FRONT if point in front else OTHERS
        place = f'cx="{across.at(cost(point)):.1f}" cy="{upwards.at(point.score.value):.1f}"'
        parts.append(f'<circle {place} r="{5 if point is found.chosen else 3}" fill="{color}"/>')
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    parts.append(f'<rect {frame} fill="none" stroke="#777777"/>')
    parts.append(svg_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, UNITS[found.measure], "middle"))
    improved = ", with improvements on the front" if found.improvements else ""
    parts.append(svg_text(LEFT, 24, f"{found.metric}{improved}; chosen: {found.chosen.score.value:.4g}", "start"))
    return "\n".join([*parts, "</svg>", ""])
