"""One version: of the package, the installed metadata, the citation and the newest section of the changelog."""

import re
import tomllib
from pathlib import Path

import yaml

import onnxq

ROOT = Path(__file__).resolve().parents[1]


def test_every_place_names_the_same_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == onnxq.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == onnxq.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest, date = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (.+)$", changelog, re.MULTILINE).groups()
    assert newest == onnxq.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert f"@v{onnxq.__version__}" in (ROOT / "examples/github-action/quantize.yml").read_text(encoding="utf-8")
