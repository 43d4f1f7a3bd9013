"""The tool that keeps the environments of the readers: all or nothing, nothing twice, clear refusals. No network."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.readers.environment import reader_python, record, run_check
from tools.readers import catalogue, environments, repairs
from tools.readers import report as report_module
from tools.readers.__main__ import main
from tools.readers.catalogue import READERS, Reader
from tools.readers.environments import INSTALLED, ReaderError, find_python, install, python_of, state
from tools.readers.results import RESULTS_VARIABLE, Finding, findings_table, read_findings, with_table


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of environments, which the tool uses instead of the user's."""
    monkeypatch.setenv(environments.FOLDER_VARIABLE, str(tmp_path / "readers"))
    return tmp_path / "readers"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader that needs no package: its module is part of Python, and pip only sees an empty list."""
    folder = tmp_path / "catalogue" / "toy"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("# nothing to install\n")
    (folder / "check.py").write_text(
        "import json, sys\nprint('chatter')\nprint(json.dumps({'arguments': sys.argv[1:], 'prefix': sys.prefix}))\n"
    )
    monkeypatch.setattr(catalogue, "FOLDER", folder.parent)
    reader = Reader("toy", "toy", "json", "nothing")
    monkeypatch.setitem(READERS, "toy", reader)
    return reader


def make_ready(reader: Reader, readers: Path) -> None:
    """An environment as the tool leaves it, around the interpreter of the tests."""
    python = python_of(readers / reader.name)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (readers / reader.name / INSTALLED).write_text(reader.pins())


def visible(folder: Path) -> list[str]:
    """What is in a folder of environments besides its locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


# The catalogue


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_every_reader_pins_its_package(reader: Reader) -> None:
    assert reader.version()[0].isdigit(), reader.pins()
    assert reader.reads


def test_pins_ignore_comments_and_name_their_file(toy: Reader) -> None:
    folder = catalogue.FOLDER / "toy"
    (folder / "requirements.txt").write_text("# why\nnumpy==1.0  # old\n\ntoy[onnx]==2.5\n")
    (folder / "without_dependencies.txt").write_text("heavy==3\n")
    assert toy.pins() == "[requirements.txt]\nnumpy==1.0\ntoy[onnx]==2.5\n[without_dependencies.txt]\nheavy==3\n"
    assert toy.version() == "2.5"


# Commands


def test_list_shows_every_reader_with_its_state(readers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (readers / "openvino").mkdir(parents=True)
    make_ready(READERS["aimet"], readers)
    assert main(["list"]) == 0
    lines = {line.split(" | ")[0].strip("| "): line for line in capsys.readouterr().out.splitlines() if "|" in line}
    assert READERS.keys() <= lines.keys()
    assert "| incomplete |" in lines["openvino"]
    assert f"| aimet-onnx {READERS['aimet'].version()} |" in lines["aimet"]
    assert "| ready |" in lines["aimet"]
    assert "| absent |" in lines["quark"]
    assert "| 3.10 |" in lines["tpu_mlir"]


@pytest.mark.parametrize("arguments", [["install", "ncnn", "openvno"], ["check", "openvno", "folder"]])
def test_an_unknown_name_is_refused_before_anything_happens(
    arguments: list[str], readers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "no reader 'openvno'" in message
    assert "Did you mean 'openvino'?" in message
    assert "onnxruntime_qnn" in message
    assert not readers.exists()


@pytest.mark.parametrize("arguments", [["install"], ["install", "--all", "ncnn"], ["report", "--no-run"], []])
def test_a_question_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_check_says_how_to_install_what_is_not_there(readers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "ncnn", "folder"]) == 2
    assert "python -m tools.readers install ncnn" in capsys.readouterr().err


# Installing


def test_an_installation_is_made_once_and_again_for_other_pins(
    toy: Reader, readers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "_build", lambda reader, folder: (folder / "bin").mkdir(parents=True))
    assert state(toy, readers) == "absent"
    assert install(toy, readers)
    assert state(toy, readers) == "ready"
    assert visible(readers) == ["toy"]

    witness = readers / "toy" / "witness"
    witness.touch()
    assert not install(toy, readers)
    assert witness.exists()

    (catalogue.FOLDER / "toy" / "without_dependencies.txt").write_text("")
    assert state(toy, readers) == "other pins"
    assert install(toy, readers)
    assert not witness.exists()
    assert state(toy, readers) == "ready"
    assert visible(readers) == ["toy"]


@pytest.mark.slow
def test_a_real_environment_works_at_the_place_it_was_moved_to(
    toy: Reader, readers: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "toy"]) == 0
    assert main(["check", "toy", "a", "--b"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1]) == {
        "arguments": ["a", "--b"],
        "prefix": str(readers / "toy"),
    }
    scripts = [path for path in (readers / "toy" / "bin").iterdir() if not path.is_symlink()]
    assert scripts
    assert not [path.name for path in scripts if b"toy.partial" in path.read_bytes()]


def test_a_failed_installation_leaves_nothing_and_keeps_what_was_there(
    toy: Reader, readers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = readers / "toy.partial" / "bin"

    def fail(command: Sequence[str], doing: str) -> None:
        built.mkdir(parents=True)
        raise ReaderError(f"{doing} failed")

    monkeypatch.setattr(environments, "_run", fail)
    (readers / "toy").mkdir(parents=True)
    assert main(["install", "toy"]) == 1
    assert "toy: making an environment for 'toy' failed" in capsys.readouterr().err
    assert visible(readers) == ["toy"]
    assert state(toy, readers) == "incomplete"


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_fails_the_installation(toy: Reader, readers: Path) -> None:
    broken = Reader("toy", "toy", "there_is_no_such_module", "nothing")
    with pytest.raises(ReaderError, match=r"importing there_is_no_such_module failed .*\n(.*\n)*ModuleNotFoundError"):
        install(broken, readers)
    assert visible(readers) == []


def test_what_an_interrupted_installation_left_is_cleaned_up(
    toy: Reader, readers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = readers / "toy.partial" / "left"
    left.mkdir(parents=True)

    def build(reader: Reader, folder: Path) -> None:
        assert not left.exists()
        (folder / "bin").mkdir(parents=True)

    monkeypatch.setattr(environments, "_build", build)
    assert install(toy, readers)
    assert visible(readers) == ["toy"]


def test_two_installations_of_a_reader_wait_for_each_other(
    toy: Reader, readers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def build(reader: Reader, folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)  # fails if the other one is at work here
        built.append(folder)
        time.sleep(0.2)

    monkeypatch.setattr(environments, "_build", build)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: install(toy, readers), range(2)))
    assert sorted(made) == [False, True]
    assert len(built) == 1


def test_an_interpreter_is_found_behind_a_shim_that_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    shim = tmp_path / "shims" / f"python{wanted}"
    real = tmp_path / "pyenv" / "versions" / f"{wanted}.99" / "bin" / "python"
    for path in (shim, real):
        path.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    real.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python(wanted) == str(real)
    assert find_python(None) == sys.executable
    with pytest.raises(ReaderError, match=r"Python 2\.99 is needed"):
        find_python("2.99")


@pytest.mark.parametrize(("version", "kept"), [((2, 35), 6), ((2, 36), 1), ((), 6)])
def test_bundled_c_libraries_go_only_where_the_system_is_newer(
    version: tuple[int, ...], kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lib/python3.10/site-packages/tpu_mlir/lib/third_party"
    folder.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libstdc++.so.6", "libgcc_s.so.1", "libcuda.so.1"):
        (folder / name).touch()
    monkeypatch.setattr(repairs, "glibc_version", lambda: version)
    repairs.remove_bundled_c_library(tmp_path)
    assert len(list(folder.iterdir())) == kept
    assert (folder / "libcuda.so.1").exists()


# What tests of readers use


def test_a_check_answers_with_its_last_line(toy: Reader, readers: Path) -> None:
    make_ready(toy, readers)
    assert run_check("toy", "a", Path("b"))["arguments"] == ["a", "b"]


@pytest.mark.parametrize(
    ("script", "message"),
    [("raise SystemExit('no such file')", "no such file"), ("print('almost')", "not JSON"), ("", "not JSON")],
)
def test_a_check_that_fails_fails_the_test(toy: Reader, readers: Path, script: str, message: str) -> None:
    make_ready(toy, readers)
    toy.check.write_text(script)
    with pytest.raises(pytest.fail.Exception, match=message):
        run_check("toy")


def test_a_reader_that_is_not_there_skips_the_test(toy: Reader, readers: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"'toy' is absent: python -m tools\.readers install toy"):
        reader_python("toy")


# The report


def test_figures_are_kept_only_where_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RESULTS_VARIABLE, raising=False)
    record("openvino", "1", "tensorrt", "residual", "difference", 0.5)
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path / "results"))
    record("openvino", "1", "tensorrt", "residual", "difference", 0.123456)
    record("openvino", "1", "tensorrt", "residual", "layers", 3)
    record("openvino", "2", "tensorrt", "residual", "layers", 4)
    record("ncnn", "1", "ncnn", "residual", "layers", 5)
    with pytest.raises(AssertionError, match="is no reader"):
        record("opnvino", "1", "tensorrt", "residual", "layers", 3)
    assert read_findings(tmp_path / "results") == [
        Finding("openvino", "1", "tensorrt", "residual", "difference", "0.1235"),
        Finding("openvino", "2", "tensorrt", "residual", "layers", "4"),
        Finding("ncnn", "1", "ncnn", "residual", "layers", "5"),
    ]


def test_the_table_names_versions_figures_and_what_was_not_run() -> None:
    findings = [Finding("ncnn", "1.2", "ncnn", model, "layers | all", "5") for model in ("residual", "concat")]
    table = findings_table(findings, ["onnx 9"])
    assert "| ncnn 1.2 | ncnn | layers \\| all | residual: 5; concat: 5 |" in table
    assert "Measured with onnx 9." in table
    assert "Not run: openvino, onnxruntime_qnn" in table


def test_the_report_replaces_the_table_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: readers -->\nold\n<!-- end -->\nafter\n")
    finding = {"reader": "ncnn", "version": "1", "target": "t", "model": "m", "what": "w", "figure": "f"}
    (tmp_path / "ncnn.jsonl").write_text(json.dumps(finding) + "\n")
    report_module.report(tmp_path, page, run=False)
    text = page.read_text()
    assert text.startswith("before\n<!-- measured: readers -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "| ncnn 1 | t | w | m: f |" in text
    assert "old" not in text
    with pytest.raises(ValueError, match="has no line"):
        with_table("no place", "table")


def test_a_report_without_figures_leaves_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("kept")
    with pytest.raises(ReaderError, match="no figures"):
        report_module.report(tmp_path, page, run=False)
    assert page.read_text() == "kept"
