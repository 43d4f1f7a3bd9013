"""Emitters declare the files that they write: a run is told beforehand what it would overwrite."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.emit import EMITTERS, READ_BACKS, EmitRequest, Emitted, Emitter, emit, file_names
from onnxq.errors import CheckFailed, ConfigError
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.place import place
from onnxq.refine import refine
from onnxq.targets import BACKENDS, get_backend
from tests.golden_graphs import GOLDEN
from tools.golden import synthetic_parameters

VARIANTS = (
    *BACKENDS.names(),
    "onnxruntime:activations=dynamic",
    "tensorrt:format=nvfp4",
    "weight_only:form=nbits",
    "weight_only:format=mxfp4,types=yes",
    "sophgo_bm1684x:precision=F16",
    "sophgo_bm1690:strategy=Transformer",
    "sophgo_bm1690:precision=F8E4M3,strategy=Transformer",
    "sophgo_bm1690:precision=F8E4M3",
)
"""Targets that have every emitter among them; tests/flow/test_golden_backends.py has all golden graphs."""


def write(target: str, folder: Path, **changes: Any) -> Emitted:
    backend = get_backend(target).replace(**changes)
    graph = Graph.from_model(GOLDEN["residual"]().model)
    graph.infer_shapes()
    run_passes(graph, list(backend.passes))
    graph.infer_shapes()
    plan = place(graph, backend)
    qparams = refine(graph, plan, synthetic_parameters(graph, plan), backend).qparams
    return emit(graph, plan, qparams, backend, folder, "net")


@pytest.mark.parametrize("target", VARIANTS)
def test_what_is_written_is_what_is_declared(target: str, tmp_path: Path) -> None:
    write(target, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(file_names(get_backend(target), "net"))


def test_every_emitter_is_tried() -> None:
    assert set(itertools.chain.from_iterable(get_backend(target).emitters for target in VARIANTS)) == set(EMITTERS)


def test_the_declarations_are_there_without_docstrings() -> None:
    code = (
        "import json; from onnxq.emit import file_names; from onnxq.targets import BACKENDS; "
        "print(json.dumps({name: file_names(backend, 'net') for name, backend in BACKENDS.items()}))"
    )
    printed = subprocess.run([sys.executable, "-OO", "-c", code], check=True, capture_output=True, text=True).stdout
    assert json.loads(printed) == {name: file_names(backend, "net") for name, backend in BACKENDS.items()}


def test_a_model_of_somebody_else_is_not_overwritten_without_docstrings(tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    (tmp_path / "model.onnx").write_bytes(golden.model.SerializeToString())
    np.savez(tmp_path / "calib.npz", **{k: np.concatenate([s[k] for s in golden.samples]) for k in golden.samples[0]})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model_deploy_model.onnx").write_bytes(b"somebody's")
    command = [
        sys.executable,
        "-OO",
        "-m",
        "onnxq",
        "quantize",
        "model.onnx",
        "-b",
        "ncnn",
        "-d",
        "calib.npz",
        "-o",
        "out",
    ]
    run = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "is there already" in run.stderr
    assert (tmp_path / "out" / "model_deploy_model.onnx").read_bytes() == b"somebody's"


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (EMITTERS, READ_BACKS):
        monkeypatch.setattr(registry, "_items", dict(registry.items()))


def write_two(request: EmitRequest) -> Emitted:
    paths = (request.path(".one"), request.path(".two"))
    for path in paths:
        path.write_text("text")
    return Emitted(paths)


@pytest.mark.usefixtures("forgotten")
def test_a_file_that_is_not_declared_is_an_error(tmp_path: Path) -> None:
    EMITTERS.add("two", Emitter(write_two, files=(".one",)))
    with pytest.raises(ConfigError, match=r"an emitter of academic has written net\.two, which is not in its `files`"):
        write("academic", tmp_path, emitters=("qdq", "two"))


@pytest.mark.usefixtures("forgotten")
def test_a_plain_function_goes_on_working(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="emitter 'two' is a plain function"):
        EMITTERS.register("two")(write_two)  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="the read-back of emitter 'two' is part of it"):
        READ_BACKS.register("two")(lambda *_: iter(["all is wrong"]))
    backend = onnxq.BACKENDS.get("academic").replace(emitters=("qdq", "two"))
    assert file_names(backend, "net") == ["net.onnx"]
    with pytest.raises(CheckFailed, match="all is wrong"):
        write("academic", tmp_path, emitters=("qdq", "two"))
    assert (tmp_path / "net.two").is_file()


@pytest.mark.usefixtures("forgotten")
def test_functions_of_six_arguments_go_on_working(tmp_path: Path) -> None:
    def write_one(graph: Any, plan: Any, qparams: Any, backend: Any, folder: Path, name: str) -> Emitted:
        """Write `<name>.one`: how many tensors there are."""
        (folder / f"{name}.one").write_text(f"{backend.name} {len(plan.placements)} {len(qparams)}")
        return Emitted((folder / f"{name}.one",))

    def check_one(graph: Any, plan: Any, qparams: Any, backend: Any, folder: Path, name: str) -> Iterator[str]:
        yield f"{(folder / f'{name}.one').read_text()} is wrong"

    with pytest.warns(DeprecationWarning, match="takes one argument now, an onnxq.emit.EmitRequest") as warned:
        EMITTERS.add("one", Emitter(write_one, files=(".one",), read_back=check_one))  # type: ignore[arg-type]
    assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name] * 2
    assert EMITTERS.get("one").write.__doc__ == write_one.__doc__
    with pytest.raises(CheckFailed, match=r"academic [1-9]\d* [1-9]\d* is wrong"):
        write("academic", tmp_path, emitters=("qdq", "one"))


def test_a_function_of_other_arguments_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"<lambda> cannot be part of an emitter: it takes one argument"):
        Emitter(lambda graph, plan: Emitted(()), files=())  # type: ignore[misc,arg-type]
