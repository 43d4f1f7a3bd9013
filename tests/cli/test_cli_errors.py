"""Bad input of every kind: exit code 2, a message that names the problem, no traceback, no files left behind."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer

from onnxq.cli import app as cli_app
from onnxq.cli.commands import SUMMARIES, function_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path, data: Path) -> Path:
    """A working folder with good and bad files; MODEL and DATA in the tables below are in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MODEL").write_bytes(model.read_bytes())
    (tmp_path / "DATA.npz").write_bytes(data.read_bytes())
    np.savez(tmp_path / "wrong_name.npz", picture=np.zeros((4, 1, 8, 8), np.float32), other=np.zeros(4, np.float32))
    np.savez(tmp_path / "wrong_shape.npz", image=np.zeros((4, 1, 9, 9), np.float32))
    (tmp_path / "text.onnx").write_text("this is not a model, but a text of some length\n" * 10)
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "unknown.toml").write_text('obsrver = "mse"\n')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "broken.py").write_text("import onnxq_does_not_exist\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.onnx").write_bytes(model.read_bytes())
    return tmp_path


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


QUANTIZE = "quantize MODEL -b onnxruntime -d DATA.npz -o out"

BAD = {
    "missing model": ("quantize missing.onnx -b onnxruntime -d DATA.npz -o out", "missing.onnx"),
    "text as model": ("quantize text.onnx -b onnxruntime -d DATA.npz -o out", "text.onnx"),
    "empty model": ("quantize empty.onnx -b onnxruntime -d DATA.npz -o out", "empty.onnx"),
    "folder as model": ("inspect folder", "is a folder"),
    "no data": ("quantize MODEL -b onnxruntime -o out", "--random"),
    "missing data": ("quantize MODEL -b onnxruntime -d missing.npz -o out", "missing.npz"),
    "wrong input name": ("quantize MODEL -b onnxruntime -d wrong_name.npz -o out", "image"),
    "wrong shape": ("quantize MODEL -b onnxruntime -d wrong_shape.npz -o out", "image"),
    "data and random": (f"{QUANTIZE} --random 3", "not both"),
    "random zero": ("quantize MODEL -b onnxruntime --random 0 -o out", "at least 1"),
    "misspelled backend": ("quantize MODEL -b onnxrutime -d DATA.npz -o out", "Did you mean 'onnxruntime'"),
    "folder as backend": ("quantize MODEL -b folder -d DATA.npz -o out", "-b ./folder"),
    "file as backend": ("quantize MODEL -b broken:x=1 -d DATA.npz -o out", "-b ./broken.py"),
    "format of nobody": (f"{QUANTIZE} --set weight.dtype=apot6", "--plugin FILE.py"),
    "missing backend file": ("quantize MODEL -b missing.py -d DATA.npz -o out", "missing.py"),
    "unknown config key": (f"{QUANTIZE} --config unknown.toml", "Did you mean 'observer'"),
    "missing config": (f"{QUANTIZE} --config missing.toml", "missing.toml"),
    "broken config": (f"{QUANTIZE} --config broken.json", "broken.json"),
    "misspelled skip": (f"{QUANTIZE} --skip stem.cnv", "stem.conv"),
    "bad regular expression": (f"{QUANTIZE} --skip re:(", "regular expression"),
    "misspelled observer": (f"{QUANTIZE} --observer minmx", "Did you mean 'minmax'"),
    "misspelled pass": (f"{QUANTIZE} --pass remove_ded", "Did you mean 'remove_dead'"),
    "missing plugin": (f"{QUANTIZE} --plugin missing.py", "missing.py"),
    "broken plugin": (f"{QUANTIZE} --plugin broken.py", "broken.py, line 1"),
    "negative samples": (f"{QUANTIZE} --samples -1", "samples"),
    "unknown option": (f"{QUANTIZE} --fast", "--fast"),
    "missing option": ("quantize MODEL -d DATA.npz -o out", "-b BACKEND"),
    "out is a file": ("quantize MODEL -b onnxruntime -d DATA.npz -o text.onnx", "is a file"),
    "out below a file": ("quantize MODEL -b onnxruntime -d DATA.npz -o text.onnx/out", "text.onnx"),
    "unwritable out": ("quantize MODEL -b onnxruntime -d DATA.npz -o /proc/onnxq", "/proc/onnxq"),
    "out overwrites the model": ("quantize folder/model.onnx -b onnxruntime -d DATA.npz -o folder", "overwrite"),
    "plan overwrites the model": ("place MODEL -b onnxruntime -o MODEL", "overwrite"),
    "place in unwritable": ("place MODEL -b onnxruntime -o /proc/onnxq/plan.json", "/proc/onnxq"),
    "calibrate for nobody": ("calibrate MODEL -d DATA.npz -o q.json", "-b BACKEND"),
    "calibrate without data": ("calibrate MODEL -b onnxruntime -o q.json", "--random"),
    "emit without plan": ("emit MODEL --plan missing.json --qparams q.json -o out", "missing.json"),
    "emit with something else": ("emit MODEL --plan MODEL --qparams q.json -o out", "MODEL"),
    "compare with nothing": ("compare MODEL missing.onnx -d DATA.npz", "missing.onnx"),
    "explain nothing": ("explain folder stem.conv", "plan.json"),
    "list of what": ("list backend", "backends"),
    "unknown command": ("quantise MODEL", "quantise"),
}


@pytest.mark.parametrize(("command", "words"), BAD.values(), ids=list(BAD))
def test_bad_input_is_named_and_leaves_nothing_behind(run, here: Path, command: str, words: str) -> None:
    before = files_in(here)
    result = run(*command.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert "rror" in result.stderr
    assert "Traceback" not in result.stderr
    assert files_in(here) == before
    assert not (here / "out").exists()


def test_results_that_belong_to_another_model_are_refused(run, here: Path, finished: Path) -> None:
    from onnx import TensorProto, helper, save

    node = helper.make_node("Relu", ["a"], ["b"])
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])] for name in "ab"]
    save(helper.make_model(helper.make_graph([node], "other", *ports), ir_version=10), here / "other.onnx")
    plan, qparams = finished / "plan.json", finished / "qparams.json"
    result = run("emit", "other.onnx", "--plan", plan, "--qparams", qparams, "-o", "out")
    assert result.exit_code == 2
    assert "another model" in result.stderr


def test_interruption_exits_with_130_and_leaves_no_files(run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("onnxq.pipeline.written"), "verify", interrupted)
    result = run(*QUANTIZE.split())
    assert result.exit_code == 130
    assert result.stderr.strip().endswith("interrupted")
    assert not (here / "out").exists()


def test_a_system_error_names_its_file(run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "out/model.onnx")

    monkeypatch.setattr(import_module("onnxq.pipeline.written"), "emit", full)
    result = run(*QUANTIZE.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: out/model.onnx: No space left on device (")
    assert result.stderr.endswith("bytes are free). Make room, or choose another folder: the model is not at fault\n")
    assert not (here / "out").exists()


def test_a_bug_is_not_hidden(run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(import_module("onnxq.session.prepare"), "place", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(*QUANTIZE.split())
    assert not (here / "out").exists()


def test_every_command_has_help(run) -> None:
    names = list(typer.main.get_command(cli_app.app).commands)  # type: ignore[attr-defined]
    assert names == [
        *(
            "quantize",
            "qat",
            "huggingface",
            "diagnose",
            "sensitivity",
            "search",
            "inspect",
            "init",
            "place",
            "calibrate",
            "merge",
            "emit",
            "compare",
        ),
        *(
            "evaluate",
            "bench",
            "explain",
            "report",
            "diff",
            "simulate",
            "lint",
            "strip",
            "translate",
            "schema",
            "list",
            "demo",
        ),
    ]
    for name in names:
        result = run(name, "--help")
        assert result.exit_code == 0
        assert "--help" in result.stdout
        assert (function_of(name).__doc__ or "").splitlines()[0] == SUMMARIES[name]
