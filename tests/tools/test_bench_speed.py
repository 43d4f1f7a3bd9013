"""The benchmark of quantized files: a table for each model, float first, and what could not be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bench import quantized_speed
from tools.bench.quantized_speed import FLOAT, OWN, Settings


def test_every_file_is_timed_against_float(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quantized_speed, "OWN", {"onnxq": OWN["onnxq"]})
    monkeypatch.setattr(quantized_speed, "SHORTEST_TURN", 0.0)
    seen: list[list[str]] = []
    settings = Settings(folders={"gone": tmp_path}, made=["tiny"], samples=4, unseen=2, rounds=3)
    tables = quantized_speed.measure(settings, lambda found: seen.append(list(found)))
    assert seen == [["gone"], ["gone", "tiny"]]
    assert "there is no model.onnx" in str(tables["gone"][0]["note"])
    first, second = tables["tiny"]
    assert (first["file"], first["times as fast"], second["file"]) == (FLOAT, 1.0, "onnxq")
    assert first["integer layers"] == 0
    assert int(str(second["integer layers"])) > 0
    assert float(str(second["times as fast"])) > 0
