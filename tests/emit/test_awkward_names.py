"""Names that tables stumble over: keys that a format derives and somebody else has, and characters that end a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.errors import UnsupportedError
from tests.zoo_graphs.net import Net


def data(channels: int = 3) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(1, channels, 8, 8)).astype(np.float32)} for _ in range(4)]


def convolution(output: str, *, node: str = "c1", bias: bool = True) -> Net:
    net = Net("names")
    x = net.input("x", [1, 3, 8, 8])
    inputs = [x, net.weight(4, 3, 3, 3), *([net.bias(4)] if bias else [])]
    made = net.node("Conv", *inputs, output=output, name=node)
    net.output(net.conv(made, 4, 2))
    return net


@pytest.mark.parametrize("output", ["c1_weights", "c1_bias"])
def test_stpu_refuses_a_tensor_that_has_the_key_of_a_layer(output: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"'{output}' for 'c1'"):
        onnxq.quantize(
            convolution(output).model(), backend="stpu", data=data(), out=tmp_path / "out", config={"effort": 0}
        )


def test_rknn_refuses_a_tensor_that_has_the_key_of_an_input(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'x_int8' for 'x'"):
        onnxq.quantize(
            convolution("x_int8").model(), backend="rknn", data=data(), out=tmp_path / "out", config={"effort": 0}
        )


def test_nnie_refuses_a_node_that_has_the_key_of_an_upsample(tmp_path: Path) -> None:
    net = Net("permuted")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    up = net.node("Resize", x, "", net.floats([1, 1, 2, 2]), mode="nearest", name="up")
    net.output(net.node("Conv", up, net.weight(2, 4, 1, 1), name="up_permute_0", output="y"))
    with pytest.raises(UnsupportedError, match="'up_permute_0' for 'up'"):
        onnxq.quantize(net.model(), backend="nnie", data=data(), out=tmp_path / "out", config={"effort": 0})


@pytest.mark.parametrize("backend", ["tensorrt", "pplcuda", "tengine_u8", "ncnn"])
@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_name_with_an_odd_line_end_is_written_or_refused(backend: str, character: str, tmp_path: Path) -> None:
    net = convolution(f"c{character}1", node=f"n{character}1")
    try:
        onnxq.quantize(net.model(), backend=backend, data=data(), out=tmp_path / "out", config={"effort": 0})
    except UnsupportedError as error:
        assert "rename" in str(error)  # noqa: PT017
        assert not (tmp_path / "out").exists()
