"""A checkpoint that the disk has no room for is an error that says so, and the one before stays whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
resource = pytest.importorskip("resource")

from onnxq.errors import MachineError  # noqa: E402
from onnxq.qat.checkpoint import BEST_NAME, Checkpoints  # noqa: E402


@contextmanager
def small_files() -> Iterator[None]:
    """Files end at 20,000 bytes, as on a disk with that much room; the tensor has 40,000."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_earlier_checkpoint_stays(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, {"training": 1})
    checkpoints.save(4, {"weight": torch.ones(100, 100)})
    checkpoints.save_best({"weight": torch.zeros(100, 100)})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {BEST_NAME, "step-00000004.pt"}
    with small_files():
        with pytest.raises(
            MachineError,
            match=r"step-00000004\.pt, is whole: .*--resume\): File too large in .*00008\.pt .*free",
        ):
            checkpoints.save(8, {"weight": torch.ones(100, 100)})
        with pytest.raises(MachineError, match="the checkpoint could not be written"):
            checkpoints.save_best({"weight": torch.ones(100, 100)})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_first_checkpoint_has_none_before_it(tmp_path: Path) -> None:
    with small_files(), pytest.raises(MachineError, match="there is none"):
        Checkpoints(tmp_path / "new", {}).save(1, {"weight": torch.ones(100, 100)})
    assert not list((tmp_path / "new").iterdir())
