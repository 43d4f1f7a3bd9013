"""What the machine lacks is told as such, and never blamed on the model."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import DataError, MachineError, ModelError
from onnxq.graph import Graph
from onnxq.machine import is_fault_of_machine, machine_error, refusal, system_message, unreadable
from onnxq.ptq.method import Chosen
from onnxq.runtime.archive import reading
from onnxq.runtime.arranged import arranged_session
from onnxq.runtime.feeds import InputInfo
from onnxq.runtime.images import open_images
from onnxq.runtime.session import look_session, make_session, run_bound, run_session
from onnxq.targets import get_backend
from onnxq.types import QuantPlan
from onnxq.verify.checks import verify
from onnxq.verify.kernels import fused_session

resource = pytest.importorskip("resource")

WIDTH = 100


@contextmanager
def limited(what: int, value: int) -> Iterator[None]:
    """A limit of the operating system, which holds for root too."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@contextmanager
def small_files() -> Iterator[None]:
    """Files end at 20,000 bytes, as on a disk with that much room; the weights of the model have 40,000."""
    with limited(resource.RLIMIT_FSIZE, 20_000):
        yield


@contextmanager
def no_more_files() -> Iterator[None]:
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    with limited(resource.RLIMIT_NOFILE, highest):
        yield


@pytest.fixture(scope="module")
def model() -> bytes:
    weight = numpy_helper.from_array(np.ones((WIDTH, WIDTH), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, WIDTH])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, WIDTH])],
        [weight],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def test_a_folder_is_asked_whether_it_takes_a_file(tmp_path: Path) -> None:
    assert refusal(tmp_path, 40_000) is None
    with small_files():
        assert refusal(tmp_path, 10_000) is None
        found = refusal(tmp_path, 40_000)
    assert found is not None
    assert (found.errno, found.filename) == (errno.EFBIG, str(tmp_path))
    missing = refusal(tmp_path / "gone", 1)
    assert missing is not None
    assert missing.errno == errno.ENOENT


def test_without_reserving_space_the_free_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    assert refusal(tmp_path, 10) is None
    found = refusal(tmp_path, 2**62)
    assert found is not None
    assert found.errno == errno.ENOSPC


FULL = r"could not be written: .* in .*onnxq-tmp-\w+ \([\d,]+ bytes are needed, [\d,]+ bytes are free\).*set TMPDIR"


def test_a_full_folder_is_not_blamed_on_the_model_that_is_optimized(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model)
    with small_files():
        with pytest.raises(MachineError, match=FULL):
            fused_session(tmp_path / "model.onnx")
        with pytest.raises(MachineError, match=FULL):  # no second try without it, which would hide the fault
            arranged_session(model, [], [], [], threads=1, optimize="all", provider=None)
    fused_session(tmp_path / "model.onnx")
    arranged_session(model, [], [], [], threads=1, optimize="all", provider=None)


def test_a_model_that_is_wrong_is_still_blamed(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08no model")
    with pytest.raises(ModelError, match="onnxruntime cannot load"):
        fused_session(tmp_path / "model.onnx")


def test_too_many_open_files_are_not_blamed_on_the_model(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    make_session(path)
    Graph.load(path)
    with no_more_files():
        found = unreadable([path])
        with pytest.raises(MachineError, match=r"Too many open files.*ulimit -n"):
            make_session(path)
        with pytest.raises(MachineError):
            look_session(path, threads=1, optimize="all")
        with pytest.raises(OSError, match="Too many open files"):
            Graph.load(path)
    assert found is not None
    assert found.errno == errno.EMFILE
    assert unreadable([path]) is None


def test_a_check_that_the_machine_cannot_do_is_no_finding_about_the_file(
    model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    samples = [{"x": np.ones((1, WIDTH), np.float32)}]
    plan = QuantPlan(backend="tensorrt")
    assert not verify(path, path, plan, get_backend("tensorrt"), samples).warnings
    with small_files(), pytest.raises(MachineError, match=FULL):
        verify(path, path, plan, get_backend("tensorrt"), samples)


def test_an_improvement_that_the_machine_cannot_do_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise machine_error(OSError(errno.ENOSPC, "No space left on device", str(tmp_path)), "values")

    monkeypatch.setattr(Chosen, "run", full)
    data = {"image": load_data().calibration[:4]}
    config = {"improvements": ["cross_layer_equalization"]}
    with pytest.raises(MachineError, match="No space left"):
        onnxq.quantize(model_path(), backend="onnxruntime", data=data, config=config, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_memory_that_onnxruntime_does_not_get_is_the_machine_s() -> None:
    class Session:
        def __init__(self, text: str) -> None:
            self.text = text

        def run(self, *_: object) -> None:
            raise RuntimeError(self.text)

        run_with_iobinding = run

    with pytest.raises(MachineError, match=r"on sample 3: not enough memory: .*Failed to allocate"):
        run_session(Session("Failed to allocate memory for requested buffer of size 99"), None, {}, "sample 3")
    with pytest.raises(DataError, match="on sample 3: wrong shape"):
        run_session(Session("wrong shape"), None, {}, "sample 3")
    with pytest.raises(MachineError, match=r"on sample 3: not enough memory: .*bad_alloc"):
        run_bound(Session("std::bad_alloc"), None, "sample 3")


def test_data_that_cannot_be_opened_is_not_called_broken(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Too many"), reading(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(DataError, match="Write it with numpy"), reading(tmp_path):
        raise OSError("broken")


def test_an_image_that_cannot_be_opened_is_not_called_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "given.png"
    image.new("RGB", (4, 4)).save(path)
    inputs = [InputInfo("image", np.dtype(np.float32), (1, 3, 4, 4))]

    def too_many(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(image, "open", too_many)
    with pytest.raises(OSError, match="Too many open files"):
        _ = [piece.load() for piece in open_images([path], "images", inputs, None).pieces()]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOENT, "No such file", "a/b"), "a/b: No such file"),
        (OSError("12 requested and 3 written"), "12 requested and 3 written"),
        (OSError(errno.EMFILE, "Too many open files", "a"), "a: Too many open files. Close other programs' files, or"),
        (
            OSError(errno.ENOSPC, "No space left", "/x/onnxq-tmp-a/b"),
            "free). Make room, or set TMPDIR to a folder",
        ),
        (OSError(errno.ENOSPC, "No space left", b"/x/b"), "bytes are free). Make room, or choose another folder: the"),
    ],
)
def test_errors_of_the_system_say_what_to_do(error: OSError, text: str) -> None:
    assert text in system_message(error)


def test_which_errors_are_the_machine_s() -> None:
    assert is_fault_of_machine(MemoryError())
    assert is_fault_of_machine(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not is_fault_of_machine(FileNotFoundError(errno.ENOENT, "No such file"))
    assert not is_fault_of_machine(ValueError())
