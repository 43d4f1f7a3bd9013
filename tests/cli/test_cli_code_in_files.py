"""A file of data never names code: plans say names, configurations need --allow-code, what the user types is free."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import onnxq
from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS

CHIP = """
from pathlib import Path
from onnxq.targets import BACKENDS, get_backend

Path({witness!r}).write_text("ran")
BACKENDS.add("own_chip", get_backend("onnxruntime").replace(name="own_chip"))
"""
FUNCTION = """
from pathlib import Path
import numpy as np

Path({witness!r}).write_text("ran")

def samples():
    return np.load({data!r})["image"]
"""


@pytest.fixture
def chip(tmp_path: Path) -> Any:
    """A backend file, and the file that it writes when it is run."""
    witness = tmp_path / "witness"
    path = tmp_path / "chip.py"
    path.write_text(CHIP.format(witness=str(witness)))
    yield path, witness
    BACKENDS.forget("own_chip")


def edited(source: Path, target: Path, **changes: Any) -> Path:
    target.write_text(json.dumps({**json.loads(source.read_text()), **changes}))
    return target


COMMANDS = {
    "emit": "emit MODEL --plan PLAN --qparams QPARAMS -o OUT",
    "calibrate": "calibrate MODEL --plan PLAN -d DATA -o OUT/qparams.json",
    "simulate": "simulate MODEL --plan PLAN --qparams QPARAMS -o OUT/simulated.onnx",
    "explain": "explain PLAN stem.conv --model MODEL",
}


def words(command: str, **places: Path) -> list[str]:
    text = command
    for name, path in places.items():
        text = text.replace(name, str(path))
    return text.split()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_plan_that_names_a_file_as_its_backend_does_not_run_it(
    command: str, run: Any, model: Path, data: Path, finished: Path, tmp_path: Path, chip: tuple[Path, Path]
) -> None:
    path, witness = chip
    plan = edited(finished / "plan.json", tmp_path / "plan.json", backend=str(path))
    places = {"QPARAMS": finished / "qparams.json", "MODEL": model, "PLAN": plan, "DATA": data, "OUT": tmp_path / "out"}
    result = run(*words(command, **places))
    assert result.exit_code == 2
    assert f"-b {path}" in result.stderr
    assert not witness.exists()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_plan_of_a_target_from_a_file_needs_that_file_said_again(
    command: str, run: Any, model: Path, data: Path, finished: Path, tmp_path: Path, chip: tuple[Path, Path]
) -> None:
    path, witness = chip
    plan = edited(finished / "plan.json", tmp_path / "plan.json", backend="own_chip")
    places = {"QPARAMS": finished / "qparams.json", "MODEL": model, "PLAN": plan, "DATA": data, "OUT": tmp_path / "out"}
    alone = run(*words(command, **places))
    assert alone.exit_code == 2
    assert "give its file with -b or --plugin" in alone.stderr
    another = run(*words(command, **places), "-b", "tensorrt")
    assert another.exit_code == 2
    assert "the plan was made for backend 'own_chip', not for 'tensorrt'" in another.stderr
    assert not witness.exists()
    said = run(*words(command, **places), "-b", path)
    assert said.exit_code == 0, said.stderr
    assert witness.exists()


@pytest.mark.parametrize(
    ("file", "text", "key", "option"),
    [
        ("given.toml", 'samples = 4\nbackend = "CHIP"\n', "given.toml:2: 'backend'", "-b"),
        ("given.yaml", "backend: onnxruntime\ndata: own_data:samples\n", "given.yaml:2: 'data'", "-d"),
        ("given.json", '{\n"data":\n"own_data:samples", "backend": "onnxruntime"}', "given.json:2: 'data'", "-d"),
    ],
)
def test_a_configuration_file_runs_code_only_where_that_is_allowed(
    file: str,
    text: str,
    key: str,
    option: str,
    run: Any,
    model: Path,
    data: Path,
    tmp_path: Path,
    chip: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_data", raising=False)
    path, witness = chip
    Path("own_data.py").write_text(FUNCTION.format(witness=str(witness), data=str(data)))
    Path(file).write_text(text.replace("CHIP", str(path)))
    arguments = ["place", model] if option == "-b" else ["quantize", model, "--effort", 0, "-o", "out"]
    refused = run(*arguments, "-c", file)
    assert refused.exit_code == 2
    assert key in refused.stderr
    assert "--allow-code" in refused.stderr
    assert f"with {option}" in refused.stderr
    assert not witness.exists()
    own = run(*arguments, "-c", file, *((option, path if option == "-b" else data)))
    assert own.exit_code == 0, own.stderr
    witness.unlink(missing_ok=True)
    allowed = run(*arguments, "-c", file, "--allow-code")
    assert allowed.exit_code == 0, allowed.stderr
    assert witness.exists()


def test_from_python_a_path_needs_allow_code_and_a_dict_is_free(tmp_path: Path, chip: tuple[Path, Path]) -> None:
    path, witness = chip
    file = tmp_path / "given.toml"
    file.write_text(f'backend = "{path}"\n')
    with pytest.raises(ConfigError, match="allow_code=True"):
        onnxq.read_config(file)
    with pytest.raises(ConfigError, match="allow_code=True"):
        onnxq.quantize(onnxq.demo.model_path(), config=str(file), data=None)  # type: ignore[attr-defined]
    assert onnxq.read_config(file, allow_code=True).backend == str(path)
    assert onnxq.read_config({"backend": str(path)}).backend == str(path)
    assert not witness.exists()


def test_a_plan_has_no_settings_that_name_code(run: Any, model: Path, finished: Path, tmp_path: Path) -> None:
    plan = edited(finished / "plan.json", tmp_path / "plan.json", config={"data": "os:getcwd"})
    result = run("emit", model, "--plan", plan, "--qparams", finished / "qparams.json", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "config.data" in result.stderr


@pytest.mark.parametrize("name", ["mqbench", "sophgo"])
def test_a_python_file_of_another_tool_is_read_where_its_values_are_plain_and_not_run_otherwise(
    name: str, run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variable = {"mqbench": "extra_config", "sophgo": "prepare_custom_config_dict"}[name]
    values = {"mqbench": "{}", "sophgo": "{'quant_dict': {'chip': 'BM1690', 'quantmode': 'weight_activation'}}"}[name]
    backend = ["-b", "Tensorrt"] if name == "mqbench" else []
    plain = f"'''A configuration.'''\nimport a_module_that_is_not_there\n{variable}: dict = {values}\n"
    Path("plain.py").write_text(plain)
    Path("computed.py").write_text(f"open('witness', 'w').close()\n{variable} = {values}\n")
    read = run("translate", model, *backend, f"--{name}", "plain.py")
    refused = run("translate", model, *backend, f"--{name}", "computed.py")
    assert refused.exit_code == 2
    assert "computed.py computes its values" in refused.stderr
    assert "--allow-code" in refused.stderr
    assert not Path("witness").exists()
    allowed = run("translate", model, *backend, f"--{name}", "computed.py", "--allow-code")
    assert Path("witness").exists()
    assert (read.exit_code, read.stdout) == (allowed.exit_code, allowed.stdout)


def test_options_of_a_name_are_never_a_file(run: Any, model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('witness', 'w').close()\n")
    Path("given.toml").write_text('backend = "vitis:strategy=/../evil.py"\n')
    result = run("place", model, "-c", "given.toml", "--allow-code")
    assert result.exit_code == 2
    assert "option 'strategy' of backend 'vitis' cannot be" in result.stderr
    assert not Path("witness").exists()
