"""What a person reads in a terminal: the work in front, sizes explained, the next command, filters, logs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import onnx
import pytest

from onnxq.cli.next_step import next_step
from onnxq.pipeline.summary import macs_text, work_lines


def test_inspect_has_the_largest_layers_and_the_next_command(run, model: Path) -> None:
    result = run("inspect", model)
    assert "1.83 MMACs in one sample, with batch = 1" in result.stdout
    listed = result.stdout.partition("largest layers")[2]
    assert listed.index("head.conv") < listed.index("classifier")
    assert f"next     onnxq place {shlex.quote(str(model))} -b TARGET" in result.stdout
    facts = json.loads(run("inspect", model, "--json").stdout)
    assert facts["macs"] == 1_825_920 == sum(layer["macs"] for layer in facts["largest"])
    assert facts["assumed_one"] == ["batch"]


def test_inspect_of_a_quantized_model_goes_on_with_strip(run, finished: Path) -> None:
    assert "next     onnxq strip" in run("inspect", finished / "model.onnx").stdout


def test_place_begins_with_the_summary_and_the_reasons(run, model: Path) -> None:
    text = run("place", model, "-b", "tensorrt").stdout
    order = [text.index(word) for word in ("plan for tensorrt", "why nodes stay float", "\nnodes\n", "\ntensors\n")]
    assert order == sorted(order)
    assert "6 of 6 convolutions, 1 of 1 fully connected layer: 100.0 % of the work" in text
    assert "tensorrt has no rule for GlobalAveragePool" in text


def test_place_shows_the_nodes_that_are_asked_for(run, model: Path) -> None:
    text = run("place", model, "-b", "tensorrt", "--show", "float").stdout
    assert "1 of 17 nodes" in text
    assert "global_pool" in text
    assert "stem.conv" not in text
    text = run("place", model, "-b", "tensorrt", "--nodes", "stem.*").stdout
    assert "stem.conv" in text
    assert "stem.conv.weight" in text
    assert "head.conv" not in text
    wrong = run("place", model, "-b", "tensorrt", "--nodes", "op:Gem")
    assert wrong.exit_code == 2
    assert "Did you mean 'Gemm'?" in wrong.stderr


def test_quantize_says_what_is_quantized_what_bytes_are_and_what_is_next(
    run, model: Path, data: Path, tmp_path: Path
) -> None:
    done = run("quantize", model, "-b", "onnxruntime", "-d", data, "--effort", "0", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "6 of 6 convolutions, 1 of 1 fully connected layer: 100.0 % of the work" in done.stdout
    assert re.search(r"KiB u?int8", " ".join(done.stdout.split()))  # unsigned where this machine's kernels saturate
    page = tmp_path / "out" / "report.html"
    assert f"next: open {page}, or onnxq compare {model} {tmp_path / 'out' / 'model.onnx'} -d {data}" in done.stderr
    quiet = run("quantize", model, "-b", "onnxruntime", "-d", data, "--effort", "0", "-o", tmp_path / "out", "-q")
    assert "next:" not in quiet.stderr


def report(**entries: object) -> dict[str, object]:
    outputs = [{"name": "y", "sqnr_db": entries.pop("db", 30.0)}]
    return {"files": ["out/model.onnx"], "backend": "b", "checks": {"outputs": outputs}, **entries}


@pytest.mark.parametrize(
    ("found", "effort", "said"),
    [
        (report(files=["out/model.onnx", "out/model_remedy.toml"], db=3.0), 1, "-c out/model_remedy.toml -d d.npz"),
        (report(db=10.0), 0, "onnxq diagnose out --float m.onnx -d d.npz"),
        (report(db=10.0, files=["out/model.onnx", "out/model_float.onnx"]), 1, "onnxq diagnose out -d d.npz"),
        (report(db=10.0, diagnosis={}), 1, "--effort 2"),
        (report(db=10.0, diagnosis={}), 3, "onnxq compare m.onnx out/model.onnx -d d.npz"),
        (report(db="inf"), 1, "onnxq compare m.onnx out/model.onnx -d d.npz"),
        (report(time_limit={"left_out": [{}], "would_take_seconds": 100.0}), 1, "--time-limit 2m"),
    ],
)
def test_the_next_command_follows_from_what_a_run_has_come_to(found: dict[str, object], effort: int, said: str) -> None:
    assert said in next_step(found, Path("m.onnx"), "d.npz", Path("out"), effort)


def test_the_command_for_the_cause_of_a_low_result_runs_as_it_is_said(
    run, model: Path, data: Path, tmp_path: Path
) -> None:
    bits = ("--set", "weight.bits=3", "--set", "activation.bits=3", "--min-sqnr", "-100")
    arguments = (model, "-b", "academic", "-d", data, "--effort", "0", *bits)
    done = run("quantize", *arguments, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("next: onnxq diagnose "))
    command = shlex.split(line.removeprefix("next: onnxq ").partition(",")[0])
    assert run(*command, "--samples", "8").exit_code == 0


def test_work_in_words() -> None:
    assert work_lines(None) == work_lines({"layers": {}, "macs": 0, "quantized_macs": 0}) == []
    layers = {"Conv": {"all": 88, "quantized": 88}, "MatMul": {"all": 2, "quantized": 1}}
    assert work_lines({"layers": layers, "macs": 1000, "quantized_macs": 992}) == [
        "88 of 88 convolutions, 1 of 2 matrix products: 99.2 % of the work (1 kMACs in one sample)"
    ]
    assert work_lines({"layers": layers, "macs": None, "quantized_macs": None}) == [
        "88 of 88 convolutions, 1 of 2 matrix products"
    ]
    assert [macs_text(count) for count in (7, 4_100_000_000)] == ["7 MACs", "4.1 GMACs"]


def test_sizes_say_what_the_chip_holds_where_the_file_has_floats(run, model: Path, data: Path, tmp_path: Path) -> None:
    said = {}
    for backend in ("tensorrt", "qnn"):
        words = ("-b", backend, "-d", data, "--effort", "0", "--report", "no", "-o", tmp_path / backend)
        done = run("quantize", model, *words)
        said[backend] = " ".join(done.stdout.partition("\nsize")[2].partition("\nSQNR")[0].split())
    report = json.loads((tmp_path / "tensorrt" / "report.json").read_text())["constant_bytes"]
    assert report["chip"] < 0.3 * report["float"]
    assert "; the tool of the target quantizes weights: about " in said["tensorrt"]
    assert said["tensorrt"].endswith(" on the chip")
    assert "on the chip" not in said["qnn"]


def test_sizes_of_files_with_much_text_are_those_of_their_numbers(run, model: Path, data: Path, tmp_path: Path) -> None:
    """Exporters leave traces on every node, which are no weights."""
    traced = onnx.load(model)
    traced.graph.node[0].metadata_props.add(key="trace", value="line\n" * 40_000)
    onnx.save(traced, tmp_path / "traced.onnx")
    words = ("-b", "qnn", "-d", data, "--effort", "0", "--report", "no", "-o", tmp_path / "out")
    done = run("quantize", tmp_path / "traced.onnx", *words)
    assert "\nsize" in done.stdout
    assert "quantizes weights" not in " ".join(done.stdout.split())


def test_stages_are_told_and_logged(run, model: Path, data: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    # Not onnxruntime: where this machine's kernels saturate, its files are written and checked more than once.
    wanted = ["-b", "tensorrt", "-d", data, "--effort", "0", "--report", "no"]
    done = run("quantize", model, *wanted, "-o", tmp_path / "out", "-v", "--log-file", log)
    assert done.exit_code == 0
    stages = [line.partition(":")[0] for line in done.stderr.splitlines() if line.endswith(" s")]
    assert stages == ["load", "passes", "calibrate", "emit", "verify"]
    lines = log.read_text().splitlines()
    assert " start onnxq " in lines[0]
    assert lines[-1].partition(" stage ")[2].startswith("verify: ")
    failed = run("quantize", tmp_path / "no\x1b[2J.onnx", *wanted, "-o", tmp_path / "out", "--log-file", log)
    assert failed.exit_code == 2
    last = log.read_text().splitlines()[-1]
    assert " error " in last
    assert r"\x1b[2J" in last
    silent = run("quantize", model, *wanted, "-o", tmp_path / "out")
    assert not [line for line in silent.stderr.splitlines() if line.endswith(" s")]
    assert log.read_text().splitlines()[-1] == last


def test_a_log_that_cannot_be_written_is_an_error_before_anything_is_done(run, model: Path, tmp_path: Path) -> None:
    result = run("quantize", model, "-b", "onnxruntime", "-o", tmp_path / "out", "--log-file", tmp_path / "no" / "x")
    assert result.exit_code == 2
    assert "--log-file" in result.stderr
    assert not (tmp_path / "out").exists()


def test_lines_for_a_file_end_with_their_text(run, model: Path, data: Path, tmp_path: Path) -> None:
    done = run("quantize", model, "-b", "tensorrt", "-d", data, "--effort", "0", "-o", tmp_path / "out")
    shown = [done.stdout, run("inspect", model).stdout, run("place", model, "-b", "tensorrt").stdout]
    for line in "".join(shown).splitlines():
        assert line == line.rstrip()
