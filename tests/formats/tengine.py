"""A strict reader of Tengine's scale table, written from the rules of its quantization tool.

The tool takes the text up to the first space as the name, the number behind it as the scale, and the number behind the
last space as the zero point.
"""

from __future__ import annotations

from pathlib import Path


def scale_table(path: Path) -> dict[str, tuple[float, int]]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert "\r" not in text
    found: dict[str, tuple[float, int]] = {}
    for line in text[:-1].split("\n"):
        assert line.count(" ") == 2, f"a line has three columns: {line!r}"
        name = line[: line.index(" ")]
        scale, zero_point = float(line[line.index(" ") + 1 :].split(" ")[0]), line[line.rindex(" ") + 1 :]
        assert name
        assert name not in found, f"{name} stands twice"
        assert scale > 0
        assert zero_point.isdigit()
        assert 0 <= int(zero_point) <= 255
        found[name] = (scale, int(zero_point))
    return found
