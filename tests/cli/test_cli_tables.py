"""Tables of the terminal: names stay whole, whatever the width of the window."""

from __future__ import annotations

import io
from importlib import import_module

import pytest
from rich.console import Console

from onnxq.pipeline.summary import nodes_line

ROWS = [
    (
        "extra_qconfig_dict.module_name['layer1.conv1'].wfakequantize",
        "'LearnableFakeQuantize'",
        "fake_quantizer = lsq_plus",
    ),
    ("extra_qconfig_dict.w_observer", "'MinMaxObserver'", "[weight] observer = minmax, as the backend has it anyway"),
    ("preserve_attr", "{}", ""),
]


def printed(width: int, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> str:
    module = import_module("onnxq.cli.console")
    stream = io.StringIO()
    made = Console(file=stream, width=width, force_terminal=terminal, color_system=None, markup=False)
    monkeypatch.setattr(module, "console", lambda **_: made)
    module.print_table("what became", ("key", "value", "became"), ROWS)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_names_are_whole_at_every_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(width, monkeypatch)
    for row in ROWS:
        for word in " ".join(row).split():
            assert word in text
    assert max(len(line) for line in text.splitlines()) <= max(width, len(ROWS[0][0]))


def test_a_wide_window_has_a_row_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(200, monkeypatch).splitlines()
    assert lines[1].split() == ["key", "value", "became"]
    assert all(row[0] in line and row[2] in line for row, line in zip(ROWS, lines[2:], strict=False))


def test_a_narrow_window_has_a_paragraph_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line.rstrip() for line in printed(60, monkeypatch).splitlines()]
    assert lines[1:4] == [ROWS[0][0], f"  value   {ROWS[0][1]}", f"  became  {ROWS[0][2]}"]
    assert lines[-3:] == ["preserve_attr", "  value   {}", ""]  # an empty cell has no line


def test_what_goes_into_a_file_stays_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(60, monkeypatch, terminal=False).splitlines()[1].split() == ["key", "value", "became"]


def test_the_share_of_nodes_is_rounded_once() -> None:
    coverage = {"nodes": 17, "quantized": 9, "fused": 5, "float": 3, "fraction": 0.8235}
    assert nodes_line(coverage).endswith("(82.4 % quantized or fused)")
