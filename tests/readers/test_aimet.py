"""aimet-onnx takes from every version of the encodings files what onnxq has written into them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.targets.qualcomm.encodings_versions import Encoding, encoding_of
from tests.golden_graphs import GOLDEN
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers


@pytest.mark.parametrize(
    ("backend", "model"),
    [("snpe", "residual"), ("qnn:per_channel=yes", "depthwise"), ("qnn:activation=uint16,weight=uint8", "transformer")],
)
def test_every_version_is_read_with_the_same_scales_and_offsets(backend: str, model: str, tmp_path: Path) -> None:
    reader_python("aimet")
    golden = GOLDEN[model]()
    result = onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=tmp_path)
    files = sorted(tmp_path.glob("model_encodings_*.json"))
    assert len(files) == 3
    answer = run_check("aimet", tmp_path / "model_deploy_model.onnx", *files)
    wanted = {
        placement.tensor: encoding_of(placement.tensor, result.qparams[placement.tensor], constant=True)
        for placement in result.plan
        if placement.role != "bias"
    }
    for file, tensors in answer["files"].items():
        unknown = set(tensors) - set(wanted)
        assert not unknown, f"{file}: {unknown} are quantized in the simulation, but not in the file"
        wrong = [name for name, held in tensors.items() if not same(held, wanted[name])]
        assert wrong == [], file
        taken = len(tensors) / len(wanted)
        assert taken > 0.75, f"{file}: the simulation has quantizers for {taken:.0%} of the entries only"
        record(
            "aimet",
            answer["version"],
            backend,
            model,
            f"entries of {file} taken over",
            f"{len(tensors)} of {len(wanted)}",
        )


def same(held: dict[str, object], wanted: Encoding) -> bool:
    """Offsets and types are equal, scales to the last digit of a float64."""
    return (
        held["dtype"] == wanted.kind
        and held["offset"] == wanted.offset.reshape(-1).tolist()
        and np.allclose(np.asarray(held["scale"]), wanted.scale.reshape(-1), rtol=1e-12, atol=0)
    )
