"""`--set KEY=VALUE` reaches any key of the configuration; options follow from the models of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pytest
import typer
from pydantic import Field

from onnxq.cli import commands as package
from onnxq.cli.app import app
from onnxq.cli.options import OPTIONS
from onnxq.config import Config
from onnxq.config.option import Option, options_of
from onnxq.config.training import TrainSettings

WITH_CONFIGURATION = ("quantize", "qat", "diagnose", "sensitivity", "search", "place", "calibrate", "emit", "explain",
                      "simulate", "huggingface")  # fmt: skip


def placed(run, model: Path, *arguments: object) -> dict:
    result = run("place", model, "-b", "tensorrt", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_value_is_set_over_that_of_the_file_beside_its_other_keys(run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('skip = ["stem.conv"]\n[weight]\nobserver = "mse"\nminimum_scale = 0.5\n')
    plan = placed(run, model, "-c", file, "--set", "weight.observer=minmax", "--set", "weight.power_of_two=true")
    weight = plan["tensors"]["classifier.weight"]
    assert weight["observer"] == "minmax"
    assert weight["minimum_scale"] == 0.5
    assert weight["spec"]["power_of_two"] is True
    assert weight["set_by"]["observer"] == "--set weight.observer=minmax"
    assert weight["set_by"]["minimum_scale"] == f"{file}:4"
    assert "stem.conv" in plan["nodes"]["float"]


def test_a_node_is_named_in_quotes_and_a_list_is_toml(run, model: Path) -> None:
    plan = placed(run, model, "--set", 'node."stem.conv".weight.bits=4', "--set", 'skip=["classifier"]')
    assert plan["tensors"]["stem.conv.weight"]["spec"]["dtype"] == "int4"
    assert plan["tensors"]["stem.conv.weight"]["set_by"] == {"bits": '--set node."stem.conv".weight.bits=4'}
    assert "(--set skip=[" in plan["nodes"]["float"]["classifier"]


@pytest.mark.parametrize("line", ['observer = "mse"', '[activation]\nobserver = "mse"'])
@pytest.mark.parametrize("key", ["observer", "activation.observer"])
def test_either_spelling_of_a_key_takes_the_place_of_that_in_the_file(
    run, model: Path, tmp_path: Path, line: str, key: str
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(line)
    assert placed(run, model, "-c", file, "--set", f"{key}=kl")["tensors"]["image"]["observer"] == "kl"


def test_explain_says_what_was_set(run, model: Path, tmp_path: Path) -> None:
    assert run("place", model, "-b", "tensorrt", "--set", "activation.observer=kl", "-o", tmp_path).exit_code == 0
    told = run("explain", tmp_path, "image")
    assert "--set activation.observer=kl: observer" in told.stdout


def test_keys_of_a_run_are_set_as_their_options_are(run, model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wanted = {"backend": "onnxruntime", "data": data, "effort": 0, "name": "digits", "samples": 4}
    settings = [word for key, value in wanted.items() for word in ("--set", f"{key}={value}")]
    result = run("quantize", model, *settings, "-o", out, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads((out / "config.json").read_text())["samples"] == 4
    assert (out / "digits.onnx").is_file()


WRONG = {
    "no value": (["--set", "samples"], "--set samples: give KEY=VALUE"),
    "no key": (["--set", "=4"], "--set =4: give KEY=VALUE"),
    "unknown key": (["--set", "weigth.bits=4"], "--set weigth.bits=4: unknown key 'weigth'. Did you mean 'weight'?"),
    "unknown key of a table": (["--set", "weight.bit=4"], "unknown key 'weight.bit'. Did you mean 'bits'"),
    "name with dots": (["--set", "node.stem.conv.weight.bits=4"], 'stands in quotes: node."NAME".KEY=VALUE'),
    "wrong type": (["--set", "weight.bits=four"], "--set weight.bits=four: 'weight.bits': must be a whole number"),
    "wrong value": (["--set", "samples=0"], "--set samples=0: 'samples': must be 1 or more (got 0)"),
    "no TOML": (["--set", "skip=[a]"], "--set skip=[a]: the value is no TOML"),
    "no table": (["--set", "skip.a=1"], "--set skip.a=1: 'skip': must be a list"),
    "option and set": (["--skip", "a", "--set", "skip=[]"], "--skip and --set skip=[] both set 'skip'"),
    "twice": (["--set", "name=a", "--set", "name=b"], "--set name=a and --set name=b both set 'name'"),
    "a part of a table": (
        ["--set", "bias.bits=32", "--set", "bias={}"],
        "--set bias.bits=32 and --set bias={} both set",
    ),
    "short and long": (
        ["--set", "observer=kl", "--set", "activation.observer=mse"],
        "--set observer=kl and --set activation.observer=mse both set 'activation.observer'",
    ),
    "backend": (["--set", "backend=qnn"], "--backend and --set backend=qnn both set 'backend'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_the_words_of_the_option(run, model: Path, case: str) -> None:
    arguments, message = WRONG[case]
    result = run("place", model, "-b", "tensorrt", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_what_a_plan_has_decided_is_not_set_behind_it(run, model: Path, finished: Path, tmp_path: Path) -> None:
    files = ("--plan", finished / "plan.json", "--qparams", finished / "qparams.json")
    late = run("emit", model, *files, "-o", tmp_path / "out", "--set", "weight.bits=4")
    assert late.exit_code == 2
    assert "--set weight.bits=4 belongs to placing: give it to 'onnxq place'" in late.stderr
    named = run("emit", model, *files, "-o", tmp_path / "out", "--set", "name=digits")
    assert named.exit_code == 0, named.stderr
    assert (tmp_path / "out" / "digits.onnx").is_file()


def test_a_setting_of_training_has_its_own_option(run, model: Path, tmp_path: Path) -> None:
    result = run("qat", model, "-b", "academic", "--train", "train.npz", "-o", tmp_path, "--set", "lr=0.1")
    assert result.exit_code == 2
    assert "--set lr=0.1: 'lr' is a setting of training, give it with --lr" in result.stderr


def test_every_command_that_takes_a_configuration_takes_single_keys_too() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    taking = {word: [name for name, command in commands.items() for p in command.params if word in p.opts]
              for word in ("--config", "--set")}  # fmt: skip
    assert taking["--set"] == taking["--config"]
    assert sorted(taking["--set"]) == sorted(WITH_CONFIGURATION)


def test_every_key_that_has_an_option_has_it_in_a_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    offered = {option for command in commands.values() for parameter in command.params for option in parameter.opts}
    assert [option.name for option in OPTIONS.values() if option.name not in offered] == []
    assert set(TrainSettings.__dataclass_fields__) <= set(OPTIONS)


class More(Config):
    """A configuration with one key more."""

    tuning_rounds: Annotated[int | None, Option("engine")] = Field(None, description="rounds of tuning")


def test_an_option_follows_from_the_type_and_the_description_of_its_key() -> None:
    option = options_of(More)["tuning_rounds"]
    assert (option.names, option.help, option.kind) == ("--tuning-rounds", "Rounds of tuning.", int)


def test_a_command_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "count.py").write_text("def count() -> None:\n    pass\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert package.names() == [*package.SUMMARIES, "count"]
    assert package.function_of("quantize").__name__ == "quantize"


def test_a_quoted_key_that_is_no_toml_is_an_error_of_the_user(run, model: Path) -> None:
    done = run("place", model, "-b", "tensorrt", "--set", r'node."re:\d".weight.bits=4')
    assert done.exit_code == 2
    assert r'"re:\d" is no text of TOML' in done.stderr


@pytest.mark.parametrize("command", ["calibrate", "sensitivity"])
def test_settings_that_are_for_quantize_alone_are_not_silent_elsewhere(
    command: str, run, model: Path, data: Path, tmp_path: Path
) -> None:
    settings = ("--set", "time_limit=5s", "--set", "optimize_for=latency")
    out = ("-o", tmp_path / "qparams.json") if command == "calibrate" else ("--samples", 4)
    result = run(command, model, "-b", "onnxruntime", "-d", data, *out, *settings)
    assert result.exit_code == 0, result.stderr
    said = " ".join((result.stdout + result.stderr).split())
    assert "a limit of time is for 'onnxq quantize'" in said
    assert "nodes are timed by 'onnxq quantize' alone" in said
