"""`onnxq init`: a configuration that is read as it is, says only the target, and tells the truth about defaults."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from onnxq.config import Config, read_config
from onnxq.config.resolve import resolve
from onnxq.config.template import ModelInput, ModelLayer, ModelParts, config_template
from onnxq.targets import BACKENDS, get_backend
from tests.examples.conftest import plugins_forgotten  # noqa: F401

SETTING = re.compile(r"^#(\w\S* = [^ \n][^\n]*)", re.MULTILINE)
EXAMPLES = ("op.", "node.", "tensor.", "inputs.", "data ", "observer ", "weight_observer ")
"""Lines that are no defaults, or hold where they are said in a way that a default does not."""

PARTS = ModelParts(
    "model.onnx",
    [ModelInput("x", "float", ("batch", 3, "?")), ModelInput("open", "float", None)],
    [ModelLayer("layer\n#injected = 1\x1b", "Conv\nbackend = 1")],
    {"Conv": 2, "com.example.Own": 1},
)


def said(text: str) -> str:
    """Every default of a template, said."""
    return "\n".join(line for line in SETTING.findall(text) if not line.startswith(EXAMPLES))


@pytest.mark.parametrize("name", sorted(BACKENDS.names()))
def test_what_is_called_a_default_changes_nothing(name: str) -> None:
    backend = get_backend(name)
    text = config_template(name, backend, PARTS, "onnxq quantize")
    assert tomllib.loads(text) == {"backend": name}
    defaults = tomllib.loads(said(text))
    assert {"effort", "name", "skip"} <= defaults.keys()
    made = resolve(read_config(defaults), backend)
    assert made.replace(configure=None) == resolve(Config(), backend).replace(configure=None)


@pytest.mark.parametrize("name", ["onnxruntime", "tensorrt", "weight_only"])
def test_every_key_is_there_that_applies(name: str) -> None:
    backend = get_backend(name)
    text = config_template(name, backend, PARTS, "onnxq quantize")
    present = {key for key in Config.model_fields if re.search(rf"^#?{key}\b[. ]", text, re.MULTILINE)}
    here = backend.runs_in_onnxruntime
    assert ("optimize_for" in present) == ("portable" in present) == here
    of_activations = {"activation", "input", "output", "observer", "tensor"}
    assert of_activations & present == (of_activations if backend.scheme.activation is not None else set())
    may_be_missing = {"optimize_for", "portable", "skip_steps", *of_activations}
    may_be_missing |= {"skip_ties", "skip_refinements", "skip_emitters", "skip_simulations"}
    assert set(Config.model_fields) - present <= may_be_missing
    for option in backend.options:
        assert f"{option.name}={'|'.join(option.values)}" in " ".join(text.split())


def test_names_of_a_model_stay_inside_their_lines() -> None:
    text = config_template("onnxruntime", get_backend("onnxruntime"), PARTS, "onnxq quantize")
    assert tomllib.loads(text) == {"backend": "onnxruntime"}
    assert "\x1b" not in text
    examples = tomllib.loads("\n".join(line for line in SETTING.findall(text) if line.startswith("inputs.")))
    assert examples == {"inputs": {"x": {"shape": ["batch", 3, 1]}}}
    line = next(line for line in text.splitlines() if line.startswith("#node."))
    assert tomllib.loads(line[1:]) == {"node": {"layer\n#injected = 1\x1b": {"skip": True}}}


def test_quantize_reads_it_unchanged(
    run: Any, model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("init", model, "-b", "onnxruntime")
    assert result.exit_code == 0, result.stderr
    assert f"next: onnxq quantize {model} -c onnxq.toml -d DATA -o FOLDER" in result.stderr
    words = ("-d", data, "--effort", 0, "--report", "no", "-o", "out", "-q")
    assert run("quantize", model, "-c", "onnxq.toml", *words).exit_code == 0
    layer = re.search(r'^#(node\."?([^"\n]+)"?\.skip = true)$', Path("onnxq.toml").read_text(), re.MULTILINE)
    assert layer is not None
    Path("onnxq.toml").write_text(Path("onnxq.toml").read_text().replace(layer[0], layer[1]))
    placed = run("place", model, "-c", "onnxq.toml", "--json")
    assert placed.exit_code == 0, placed.stderr
    assert "onnxq.toml" in json.loads(placed.stdout)["nodes"]["float"][layer[2]]


def test_nothing_is_overwritten(run: Any, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("mine")
    result = run("init", model, "-b", "onnxruntime", "-o", path)
    assert result.exit_code == 2
    assert "is there already and is not overwritten" in result.stderr
    assert path.read_text() == "mine"
    assert run("init", model, "-b", "onnxruntime", "-o", tmp_path / "settings").exit_code == 0
    assert (tmp_path / "settings" / "onnxq.toml").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("init", "MODEL", "-b", "nobody"), "unknown backend 'nobody'"),
        (("init", "NOTHING", "-b", "onnxruntime"), "nothing.onnx"),
        (("init", "MODEL", "-b", "onnxruntime", "-o", "x.yaml"), "ends in .toml"),
    ],
)
def test_bad_input_leaves_no_file(
    words: tuple[str, ...], told: str, run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"MODEL": str(model), "NOTHING": "nothing.onnx"}
    result = run(*(places.get(word, word) for word in words))
    assert result.exit_code == 2
    assert told in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("plugins_forgotten")
def test_a_backend_of_ones_own_needs_a_word(run: Any, model: Path, tmp_path: Path) -> None:
    chip = Path(__file__).parents[2] / "examples" / "17-new-hardware" / "quill"
    result = run("init", model, "-b", chip, "-o", tmp_path / "c.toml")
    assert result.exit_code == 0, result.stderr
    assert "--allow-code" in result.stderr
    assert run("place", model, "-c", tmp_path / "c.toml", "--allow-code", "--json").exit_code == 0
