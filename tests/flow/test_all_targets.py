"""Every target on structures that tables and ties stumble over, and on the zoo: good files, or a clear refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.errors import CheckFailed, OnnxqError
from onnxq.targets import BACKENDS
from tests.zoo import ZOO
from tests.zoo_graphs.net import Net

TARGETS = BACKENDS.names()


def shared_weight() -> Net:
    """Two layers with one weight, a sum of both, and a classifier."""
    net = Net("shared_weight")
    x = net.input("x", [1, 4, 8, 8])
    weight = net.weight(4, 4, 3, 3, name="w")
    a = net.relu(net.node("Conv", x, weight, pads=[1] * 4))
    b = net.node("Conv", a, weight, pads=[1] * 4)
    pooled = net.node("Flatten", net.node("GlobalAveragePool", net.node("Add", a, b)))
    net.output(net.node("Gemm", pooled, net.weight(4, 4), net.bias(4), output="y"))
    return net


def layers_into_concat() -> Net:
    """Tied tensors of which some are read by layers as well."""
    net = Net("layers_into_concat")
    x = net.input("x", [1, 4, 8, 8])
    y = net.conv(x, 4, 4)
    z = net.conv(y, 4, 4)
    joined = net.node("Concat", x, y, axis=1)
    net.output(net.conv(joined, 8, 4))
    net.output(net.node("Gemm", net.node("Flatten", z), net.weight(256, 4), output="out"))
    return net


def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(1, 4, 8, 8)).astype(np.float32)} for _ in range(4)]


@pytest.mark.parametrize("build", [shared_weight, layers_into_concat], ids=lambda build: build.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_shared_weights_and_tied_tensors_are_written_and_the_same_bytes_again(
    target: str, build, tmp_path: Path
) -> None:
    files = []
    for run in ("one", "two"):
        result = onnxq.quantize(
            build().model(), backend=target, data=samples(), out=tmp_path / run, config={"effort": 0}
        )
        assert min(float(value) for value in result.report["sqnr_db"].values()) > 15
        written = {path.name: path.read_bytes() for path in (tmp_path / run).iterdir()}
        for name in ("report.json", "report.html"):
            written.pop(name)  # they have seconds in them
        files.append(written)
    assert files[0] == files[1]


@pytest.mark.slow
@pytest.mark.parametrize("target", [name for name in TARGETS if name not in ("tensorrt", "onnxruntime")])
def test_the_zoo_is_quantized_or_refused_in_clear_words(target: str, tmp_path: Path) -> None:
    """Hostile models may cost accuracy here, or be refused; what must not happen is a crash or a file that is wrong."""
    wrong = []
    for name in sorted(ZOO):
        case = ZOO[name]()
        try:
            result = onnxq.quantize(
                case.model,
                backend=target,
                data=case.feeds,
                out=tmp_path / name,
                config={"minimum_sqnr_db": -100.0, "verify_samples": 1},
            )
        except CheckFailed as error:
            # A finding of the lint has a rule in brackets: the float model itself has what the target does not take.
            if "\n  [" not in str(error):
                wrong.append(f"{name}: {error}")
        except OnnxqError:
            assert not (tmp_path / name).exists()
        else:
            onnx.checker.check_model(str(result.model))
    assert wrong == []
