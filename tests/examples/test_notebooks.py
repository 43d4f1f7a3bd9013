"""The notebooks of examples/ run from their first to their last cell, and show what they say they show."""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runnable import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))

SHOWN = {
    "quantize-a-cnn": ["Graph", "Quantized for onnxruntime", "Plan for onnxruntime", "layers, quantized alone"],
    "diagnose-and-mend": ["Quantized for qnn", "Diagnosis for qnn", "Quantized for qnn"],
}
"""The tables that a notebook shows, by their titles."""

PRINTED = {
    "quantize-a-cnn": ["quantized for onnxruntime", "because:", "report.html"],
    "diagnose-and-mend": ["sample 5 alone sets the range", "leave sample 5 out of the data", "dB after"],
}

named = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks_without_outputs_and_the_overview_names_them() -> None:
    overview = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)
    for path in NOTEBOOKS:
        assert f"(notebooks/{path.name})" in overview
        assert all(cell.get("outputs", []) == [] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


@named
def test_the_cells_run_in_this_process(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a kernel, which not every environment has: the last expression of a cell is what it shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                values.append(run_cell("".join(cell["source"]), names))
    html = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert [title for title, text in zip(SHOWN[notebook.stem], html, strict=True) if title not in text] == []
    printed = capsys.readouterr().out
    assert [line for line in PRINTED[notebook.stem] if line not in printed] == []


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; its last expression, if it ends with one."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.slow
@named
def test_a_kernel_runs_the_notebook(notebook: Path, tmp_path: Path) -> None:
    """With the bar, the tables and the page as people see them."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    document = nbformat.read(notebook, as_version=4)
    nbformat.validate(document)
    nbclient.NotebookClient(document, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in document.cells for output in cell.get("outputs", [])]
    html = "".join(output["data"].get("text/html", "") for output in outputs if "data" in output)
    assert [title for title in SHOWN[notebook.stem] if title not in html] == []
    printed = "".join(output.get("text", "") for output in outputs if output["output_type"] == "stream")
    assert [line for line in PRINTED[notebook.stem] if line not in printed] == []
    if notebook.stem == "quantize-a-cnn":
        assert '<iframe sandbox="allow-scripts"' in html
    else:
        assert "OnnxqWarning: output 'logits' has only" in printed
