"""Whole models with weights of few bits: language models, tied embeddings, no data, several gigabytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize
from onnxq.session.prepare import prepare
from onnxq.types import QParamsTable
from tests.flow.language_model import WIDTH, WORDS, language_model, sentences
from tools.bench.large_model import write_model

NEAREST = {"effort": 0, "minimum_sqnr_db": 0.0}
"""No improvements: weights are rounded to the nearest number."""


def logits(model: Path | bytes, feeds: list[dict[str, np.ndarray]], *, optimized: bool = False) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(model if isinstance(model, bytes) else str(model), options)
    return [session.run(["logits"], feed)[0] for feed in feeds]


def with_meant_weights(model: onnx.ModelProto, backend: str, qparams: QParamsTable) -> bytes:
    """The float model with each weight as its stored numbers mean it."""
    graph: Graph = prepare(model, backend).graph
    for name in qparams:
        graph.set_values(name, fake_quantize(graph.values(name), qparams[name]))
    return graph.to_model().SerializeToString()


@pytest.mark.parametrize("head", ["apart", "transposed", "gemm"])
@pytest.mark.parametrize("form", ["dq", "nbits"])
@pytest.mark.parametrize("bits", ["4", "8"])
def test_a_language_model_computes_what_its_stored_weights_mean(
    head: str, form: str, bits: str, tmp_path: Path
) -> None:
    exact = ",accuracy_level=1" if form == "nbits" else ""  # 8 bits would have their inputs rounded
    model, backend = language_model(head), f"weight_only:bits={bits},form={form},symmetric=no{exact}"
    result = onnxq.quantize(model, backend=backend, data=sentences(4), config=NEAREST, out=tmp_path)
    # 8 bits lose nearly nothing; 4 bits rounded to nearest lose 20 dB in each of a dozen layers of random weights
    assert result.report["sqnr_db"]["logits"] > (13.0 if bits == "4" else 36.0)
    feeds = sentences(5, seed=7)  # batches and lengths of their own
    wanted = logits(with_meant_weights(model, backend, result.qparams), feeds)
    for found, meant in zip(logits(result.model, feeds), wanted, strict=True):
        assert found.shape == meant.shape
        np.testing.assert_allclose(found, meant, atol=1e-5 * float(np.abs(meant).max()))


@pytest.mark.parametrize("head", ["transposed", "gemm"])
@pytest.mark.parametrize("form", ["dq", "nbits"])
def test_tied_embeddings_are_stored_once(head: str, form: str, tmp_path: Path) -> None:
    """The table in 4 bits with its scales, and nothing else that is as large."""
    result = onnxq.quantize(language_model(head), backend=f"weight_only:form={form}", out=tmp_path)
    held = {tensor.name: len(tensor.raw_data) for tensor in onnx.load(result.model).graph.initializer}
    table = WORDS * WIDTH // 2
    assert sorted(held.values())[-1] == table
    assert [name for name, size in held.items() if size >= table] == [
        "embeddings_quantized" if form == "dq" else "embeddings_packed"
    ]
    apart = onnxq.quantize(language_model("apart"), backend=f"weight_only:form={form}", out=tmp_path / "apart")
    assert apart.model.stat().st_size - result.model.stat().st_size > 0.8 * (table + WORDS * WIDTH // 32 * 4)


def test_a_tied_table_with_shorter_last_blocks_stays_one_dequantized_table(tmp_path: Path) -> None:
    model = language_model("transposed", width=72)
    result = onnxq.quantize(model, backend="weight_only:form=nbits", data=sentences(2), config=NEAREST, out=tmp_path)
    written = onnx.load(result.model)
    held = [tensor.name for tensor in written.graph.initializer if tensor.name.startswith("embeddings")]
    assert held == ["embeddings_quantized", "embeddings_scale"]
    assert any("'embeddings' is stored for a blocked DequantizeLinear" in note for note in result.report["notes"])


def test_no_data_is_needed_and_the_report_says_what_was_not_measured(tmp_path: Path) -> None:
    result = onnxq.quantize(language_model(), backend="weight_only", out=tmp_path)
    assert result.report["sqnr_db"] == {}
    assert result.report["checks"]["samples"] == 0
    assert any(note.startswith("no data was given") for note in result.report["notes"])
    for found in logits(result.model, sentences(3), optimized=True):
        assert np.isfinite(found).all()


def test_without_data_an_improvement_that_needs_none_is_applied_as_asked_for(tmp_path: Path) -> None:
    plain = onnxq.quantize(language_model(), backend="weight_only:bits=4", out=tmp_path / "plain")
    config = {"improvements": ["hqq"]}
    result = onnxq.quantize(language_model(), backend="weight_only:bits=4", config=config, out=tmp_path / "hqq")
    (step,) = result.report["improvements"]["steps"]
    assert (step["name"], step["applied"], step["before"], step["after"]) == ("hqq", True, None, None)
    assert "without data" in step["why"]
    assert set(step["details"]) <= set(result.qparams.entries)
    assert any(result.qparams[name] != plain.qparams[name] for name in step["details"])


def test_without_data_an_improvement_that_needs_samples_is_refused(tmp_path: Path) -> None:
    source, out = tmp_path / "lm.onnx", tmp_path / "out"
    onnx.save(language_model(), source)
    done = onnxq_command("quantize", source, "-b", "weight_only", "--improve", "gptq", "-o", out)
    assert done.returncode == 2
    assert "improvement 'gptq' needs samples, and no data was given" in " ".join(done.stderr.split())
    assert not out.exists()
    done = onnxq_command("quantize", source, "-b", "weight_only", "--improve", "hqq", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "applied without data to evaluate on: hqq" in " ".join(done.stdout.split())


@pytest.mark.parametrize("form", ["dq", "nbits"])
def test_data_changes_nothing_but_the_report_where_nothing_is_improved(form: str, tmp_path: Path) -> None:
    backend = f"weight_only:form={form}"
    without = onnxq.quantize(language_model(), backend=backend, out=tmp_path / "without")
    given = onnxq.quantize(language_model(), backend=backend, data=sentences(2), config=NEAREST, out=tmp_path / "with")
    assert without.model.read_bytes() == given.model.read_bytes()


# ---- the command -----------------------------------------------------------------------------------------------------


def onnxq_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxq", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_without_data_writes_files_that_lint_and_emit_take(tmp_path: Path) -> None:
    source, out = tmp_path / "lm.onnx", tmp_path / "out"
    onnx.save(language_model(), source)
    done = onnxq_command("quantize", source, "-b", "weight_only:bits=4,form=nbits", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "accuracy not measured (no data)" in " ".join(done.stdout.split())
    assert sorted(path.name for path in out.iterdir()) == [
        *("config.json", "model.onnx", "plan.json", "qparams.json", "report.html", "report.json")
    ]
    assert onnxq_command("lint", out / "model.onnx", "-b", "weight_only:form=nbits").returncode == 0
    again = tmp_path / "again"
    emitted = onnxq_command("emit", source, "--plan", out / "plan.json", "--qparams", out / "qparams.json", "-o", again)
    assert emitted.returncode == 0, emitted.stderr
    assert (again / "model.onnx").read_bytes() == (out / "model.onnx").read_bytes()


def test_the_stages_one_by_one_need_no_data_either_and_write_the_same(tmp_path: Path) -> None:
    source = tmp_path / "lm.onnx"
    onnx.save(language_model(), source)
    for arguments in (
        ("place", source, "-b", "weight_only:bits=8", "-o", tmp_path / "plan.json"),
        ("calibrate", source, "--plan", tmp_path / "plan.json", "-o", tmp_path / "qparams.json"),
        ("calibrate", source, "-b", "weight_only:bits=8", "-o", tmp_path / "both" / "qparams.json"),
    ):
        done = onnxq_command(*arguments)
        assert done.returncode == 0, done.stderr
    whole = onnxq.quantize(source, backend="weight_only:bits=8", out=tmp_path / "out")
    wanted = (whole.model.parent / "qparams.json").read_bytes()
    assert (tmp_path / "qparams.json").read_bytes() == (tmp_path / "both" / "qparams.json").read_bytes() == wanted
    refused = onnxq_command("calibrate", source, "-b", "onnxruntime", "-o", tmp_path / "other.json")
    assert refused.returncode == 2
    assert "there is no calibration data" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("weight_only:bits=3", "cannot be '3'"),
        ("weight_only:block=20", "cannot be '20'"),
        ("weight_only:form=nbits,format=fp8_e4m3", "MatMulNBits holds integers"),
        ("onnxruntime", "there is no calibration data"),
    ],
)
def test_what_cannot_be_done_is_an_error_of_the_caller(backend: str, message: str, tmp_path: Path) -> None:
    onnx.save(language_model(), tmp_path / "lm.onnx")
    failed = onnxq_command("quantize", tmp_path / "lm.onnx", "-b", backend, "-o", tmp_path / "out")
    assert failed.returncode == 2
    assert message in " ".join(failed.stderr.split())
    assert not (tmp_path / "out").exists()


# ---- several gigabytes -----------------------------------------------------------------------------------------------

IN_LITTLE_MEMORY = """
import json, resource, sys
import onnxq
onnxq.quantize(sys.argv[1], backend=sys.argv[2], out=sys.argv[3])
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "megabytes"), [("weight_only", 600), ("weight_only:form=nbits,symmetric=no", 700)])
def test_three_gigabytes_are_quantized_and_checked_in_a_fraction_of_their_size(
    backend: str, megabytes: int, tmp_path: Path
) -> None:
    """Measured: 583 and 572 MB, of which 60 are Python and libraries, 64 the largest weight, the rest parameters."""
    layers = write_model(tmp_path / "large.onnx", 3.0)
    out = tmp_path / "out"
    command = [sys.executable, "-c", IN_LITTLE_MEMORY, str(tmp_path / "large.onnx"), backend, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) < megabytes
    written = (out / "model.onnx.data").stat().st_size
    scales = layers * 4096 * 4096 // 32 * 4
    assert layers * 4096 * 4096 // 2 + scales <= written < 0.2 * 3.02e9
