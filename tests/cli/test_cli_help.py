"""--help: options in groups, examples that can be copied, and the completion of shells."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from onnxq.cli.app import app
from onnxq.cli.commands import names
from onnxq.cli.help_texts import COMMANDS as GROUPS
from onnxq.cli.help_texts import EXAMPLES, PANELS, example_lines, examples

COMMANDS: Any = typer.main.get_command(app)
LINES = [(name, line) for name in names() for line in example_lines(name)]


@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_every_example_is_a_line_that_the_command_takes(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("onnxq", name)
    made = COMMANDS.commands[name]
    context = made.make_context(name, list(arguments))  # raises for an option that there is not
    assert set(context.params) == {parameter.name for parameter in made.params if parameter.name != "help"}


def test_examples_are_of_commands_that_there_are() -> None:
    assert set(EXAMPLES) <= set(names())


def test_every_command_is_in_one_group(run: Any) -> None:
    listed = [name for group in GROUPS.values() for name in group.split()]
    assert sorted(listed) == sorted(names())
    shown = run("--help").stdout
    assert all(title in shown for title in GROUPS)
    assert shown.index("quantize ") < shown.index("diagnose ") < shown.index("place ") < shown.index("demo ")


def test_groups_name_options_that_there_are() -> None:
    known = {parameter.name for name in names() for parameter in COMMANDS.commands[name].params}
    listed = [name for group in PANELS.values() for name in group.split()]
    assert set(listed) <= known
    assert len(listed) == len(set(listed))


def test_options_of_a_long_command_are_in_groups() -> None:
    panels = {parameter.name: parameter.rich_help_panel for parameter in COMMANDS.commands["quantize"].params[1:]}
    assert panels["effort"] == "Accuracy"
    assert panels["data"] == "Data"
    assert panels["out"] is None
    assert len({panel for panel in panels.values() if panel}) >= 5


def completed(words: str) -> str:
    environment = {
        **os.environ,
        "_ONNXQ_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "onnxq"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


def test_a_shell_completes_commands_options_and_targets() -> None:
    assert completed("onnxq qua").split() == ["quantize"]
    assert completed("onnxq quantize --time").split() == ["--time-limit"]
    assert "onnxruntime" in completed("onnxq quantize -b onnx").split()


def test_help_says_values_in_words_and_flags_have_none() -> None:
    for name in names():
        command = COMMANDS.commands[name]
        for option in command.get_params(typer.Context(command)):
            if option.param_type_name == "option":
                told = option.metavar if option.metavar is not None else option.display_type_rich(None)
                assert (told == "") == option.is_flag, (name, option.name)
                assert told[:1] != "<" or "|" in told, (name, option.name, told)  # a choice, not a type of Python


def test_long_examples_are_folded_into_lines_that_a_shell_takes_as_they_stand() -> None:
    shown = examples("quantize")
    assert all(len(line) <= 80 for line in shown.split("\n"))
    lines = [line for line in shown.replace(" \\\n      ", " ").split("\n") if line.startswith("   ")]
    assert lines == [f"   {line}" for line in EXAMPLES["quantize"]]
