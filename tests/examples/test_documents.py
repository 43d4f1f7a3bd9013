"""What README.md and docs/ say is true: their code runs, their tables are current, their links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.config import Config, QuantizerSettings
from onnxq.types import Placement, QuantSpec
from tests.examples.runnable import (
    ROOT,
    Shell,
    blocks,
    both_ways,
    commands,
    named_files,
    run_commands,
    write_model_and_data,
)

README = ROOT / "README.md"
BUILT_IN = tuple(onnxq.BACKENDS)
"""The names of the targets before any test adds its own."""
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = [path for path in DOCUMENTS if blocks(path, "bash") or blocks(path, "python")]
EVERY_PAGE = [
    *DOCUMENTS,
    *sorted((ROOT / "docs" / "targets").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "examples").glob("**/README.md")),
]


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.usefixtures("plugins_forgotten")
@both_ways
@pytest.mark.parametrize("document", RUNNABLE, ids=identify)
def test_the_code_of_a_document_runs(
    document: Path, as_printed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_model_and_data(folder)
    files = named_files(document)
    for name, text in files.items():
        (folder / name).write_text(text)
    shell = Shell(folder, tmp_path / "bin")
    script = "".join(block for block in blocks(document, "python") if block not in files.values())
    if script:
        (folder / "script.py").write_text(script)
        run_commands(["python script.py"], shell, as_printed=as_printed)
    run_commands(commands(document), shell, as_printed=as_printed)


def test_the_files_to_follow_with_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(named_files(ROOT / "docs" / "getting-started.md")["make_files.py"], {})
    (tmp_path / "smaller").mkdir()
    write_model_and_data(tmp_path / "smaller")
    for path in (tmp_path / "smaller").iterdir():
        made = tmp_path / path.name
        if path.suffix == ".npz":
            with np.load(path) as wanted, np.load(made) as found:
                assert set(found) == set(wanted)
                assert all(found[name].shape[1:] == wanted[name].shape[1:] for name in wanted)
        else:
            assert made.read_bytes() == path.read_bytes()


def test_the_quick_start_of_the_readme_is_among_the_code_that_runs() -> None:
    assert commands(README)[0] == "onnxq quantize model.onnx -b tensorrt -d calib.npz -o out/"
    makes_data, quantizes = blocks(README, "python")
    assert 'np.savez("calib.npz"' in makes_data
    assert "onnxq.quantize(" in quantizes


def test_the_readme_is_short_and_names_every_target() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 1000
    assert [name for name in BUILT_IN if f"`{name}`" not in text] == []


def test_the_table_of_contents_has_every_page() -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in DOCUMENTS if path.parent.name == "docs" and path.name != "README.md"]
    assert [name for name in pages if f"({name})" not in text] == []


def test_the_generated_tables_are_up_to_date() -> None:
    # In a process of its own: other tests register backends and passes in this one.
    tool = [sys.executable, str(ROOT / "tools" / "readme_tables.py"), "--check"]
    done = subprocess.run(tool, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python tools/readme_tables.py\n{done.stdout}{done.stderr}"


def test_the_configuration_page_has_every_key() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    keys = [*Config.model_fields, *QuantizerSettings.model_fields]
    assert [key for key in keys if f"| `{key}` |" not in page] == []


def test_the_formats_page_has_every_key_of_the_json_files(tmp_path: Path) -> None:
    write_model_and_data(tmp_path)
    out = onnxq.quantize(
        tmp_path / "model.onnx", backend="onnxruntime", data=tmp_path / "calib.npz", out=tmp_path / "out"
    ).model.parent
    report, plan, qparams = (json.loads((out / f"{name}.json").read_text()) for name in ("report", "plan", "qparams"))
    inner = [report[key] for key in ("coverage", "checks", "config", "kernels")]
    keys = {
        "QuantSpec": set(QuantSpec.__dataclass_fields__),
        "plan.json": {*plan, *plan["nodes"], *Placement.__dataclass_fields__} - {"tensor"},
        "qparams.json": {*qparams, *next(iter(qparams["tensors"].values()))},
        "report.json": {*report, *report["passes"][0], *(key for part in inner for key in part)},
    }
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    for name, wanted in keys.items():
        assert sorted(key for key in wanted if f"`{key}`" not in sections[name]) == [], name


@pytest.mark.parametrize("document", EVERY_PAGE, ids=identify)
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, heading = target.partition("#")
        page = document if not path else document.parent / path
        if not page.exists() or (heading and heading not in _headings(page)):
            broken.append(target)
    assert broken == []


def _headings(page: Path) -> set[str]:
    """Headings as GitHub spells them in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
