"""docs/configuration.md shows what onnxq really prints, and the schema beside it is the one of today."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.config import config_schema, read_config
from onnxq.types.fake_quantizers import KINDS
from tests.examples.runnable import ROOT, named_files, run_here, write_model_and_data

PAGE = ROOT / "docs" / "configuration.md"
SCHEMA = ROOT / "docs" / "config-schema.json"
SHOWN = re.compile(r"^```text\n\$ (onnxq [^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
WRONG = ("typo.toml",)
"""Files of the page that show an error of the configuration itself."""


def _lines(text: str) -> list[str]:
    """The lines without the spaces that fill a table, and without digits that depend on the processor."""
    masked = re.sub(r"\d+\.\d+(e-?\d+)?", "NUMBER", text)
    return [" ".join(line.split()) for line in masked.splitlines() if line.strip()]


def _parsed(name: str, text: str) -> Any:
    return {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}[name.rpartition(".")[2]](text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model, the data and the files of the page, as the current folder."""
    monkeypatch.chdir(tmp_path)
    write_model_and_data(tmp_path)
    for name, text in named_files(PAGE).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_the_page_shows_is_what_is_printed(folder: Path) -> None:
    shown = SHOWN.findall(PAGE.read_text(encoding="utf-8"))
    assert len(shown) >= 5
    run_here("onnxq quantize model.onnx -c settings.toml -d calib.npz --effort 0 -o out/")
    for command, expected in shown:
        result = CliRunner().invoke(app, command.split()[1:], prog_name="onnxq")
        assert _lines(result.stdout + result.stderr) == _lines(expected), f"$ {command}"
        assert result.exit_code == (2 if expected.startswith("error:") else 0)


def test_config_json_repeats_the_run_of_the_page(folder: Path) -> None:
    run_here("onnxq quantize model.onnx -c settings.toml -d calib.npz -o out/")
    run_here("onnxq quantize model.onnx -c out/config.json -d calib.npz -o again/")
    for name in ("model.onnx", "qparams.json", "config.json"):
        assert (folder / "out" / name).read_bytes() == (folder / "again" / name).read_bytes(), name


def test_the_published_schema_is_that_of_onnxq() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == config_schema(), "run python tools/readme_tables.py"


def test_the_schema_command_writes_the_published_file(folder: Path) -> None:
    run_here("onnxq schema -o written.json")
    assert (folder / "written.json").read_bytes() == SCHEMA.read_bytes()


def test_the_schema_takes_the_files_of_the_page_and_marks_the_wrong_ones() -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    files = {name: _parsed(name, text) for name, text in named_files(PAGE).items()}
    assert {name for name, values in files.items() if not validator.is_valid(values)} == set(WRONG)


@pytest.mark.parametrize("name", ["settings.json", "settings.yaml"])
def test_the_three_languages_of_the_page_say_the_same(name: str, folder: Path) -> None:
    settings = read_config(folder / "settings.toml")
    other = read_config(folder / name)
    assert (other.backend, other.weight, other.node) == (settings.backend, settings.weight, settings.node)


def test_the_page_has_every_fake_quantizer() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in KINDS if f"| `{name}` |" not in page] == []
