"""The benchmark of encoders: a cell is a run of its own, measured on samples that the run has not seen, and kept."""

import json

import pytest

from tools.bench import encoders
from tools.bench.encoders import Cell


def test_a_cell_is_run_once_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(encoders, "HELD", 8)
    monkeypatch.setattr(encoders, "DEFAULT_EFFORT", 0)
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    arguments = ["encoders", str(results), "--models", "digits", "--targets", "qnn", "--samples", "8"]
    monkeypatch.setattr("sys.argv", arguments)
    encoders.main()
    (line,) = results.read_text().splitlines()
    cell = Cell(**json.loads(line))
    assert cell.db is not None
    assert cell.db > 10
    assert cell.work == 1
    assert f"| digits | `qnn` | {cell.db:.1f} | {cell.agreement:.0%} | 100% |" in capsys.readouterr().out
    page.write_text("before\n<!-- encoders: begin --><!-- encoders: end -->\nbehind\n")
    monkeypatch.setattr("sys.argv", [*arguments, "--page", str(page)])
    encoders.main()
    assert results.read_text().splitlines() == [line]
    assert "| digits | `qnn` |" in page.read_text()


@pytest.mark.parametrize(("db", "agreement", "good"), [(20.0, 0.9, True), (19.9, 1.0, False), (30.0, 0.89, False)])
def test_a_low_cell_says_why(db, agreement, good):
    cell = Cell("model", "target", db, agreement, said="clipped")
    assert cell.good is good
    assert cell.row()[""] == ("" if good else "clipped")
