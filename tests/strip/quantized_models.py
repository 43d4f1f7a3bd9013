"""Small models quantized by onnxruntime's own tools, the referee of what quantized operators mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from onnxq.graph import Graph
from onnxq.numerics import sqnr_db
from onnxq.strip import Stripped, strip
from tests.zoo_graphs.net import Net

Feed = dict[str, np.ndarray]


def conv_net() -> tuple[onnx.ModelProto, list[Feed]]:
    """Convolutions, a residual sum, pooling and a fully connected layer, with Relus that quantizers swallow."""
    net = Net("strip_conv_net")
    x = net.conv_relu(net.input("x", [1, 3, 12, 12]), 3, 8)
    y = net.relu(net.node("Add", net.conv(x, 8, 8), x))
    y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.node("Concat", y, net.node("Sigmoid", y), axis=1)
    y = net.node("Flatten", net.node("GlobalAveragePool", y))
    net.output(net.gemm(y, 16, 5), [1, 5])
    return net.model(), feeds(net.rng, "x", (1, 3, 12, 12))


def dense_net() -> tuple[onnx.ModelProto, list[Feed]]:
    net = Net("strip_dense_net")
    x = net.input("x", [2, 7, 16])
    y = net.relu(net.linear(x, 16, 24))
    net.output(net.linear(y, 24, 6), [2, 7, 6])
    return net.model(), feeds(net.rng, "x", (2, 7, 16))


def recurrent_net() -> tuple[onnx.ModelProto, list[Feed]]:
    net = Net("strip_recurrent_net")
    x = net.input("x", [5, 1, 8])
    weights = [net.weight(2, 4 * 6, 8, fan_in=8), net.weight(2, 4 * 6, 6, fan_in=6), net.floats(np.zeros((2, 48)))]
    sequence, last, cell = net.many(
        "LSTM", [x, *weights], ["sequence", "last", "cell"], hidden_size=6, direction="bidirectional"
    )
    for name, shape in ((sequence, [5, 2, 1, 6]), (last, [2, 1, 6]), (cell, [2, 1, 6])):
        net.output(name, shape)
    return net.model(), feeds(net.rng, "x", (5, 1, 8))


def feeds(rng: np.random.Generator, name: str, shape: Sequence[int], count: int = 6) -> list[Feed]:
    return [{name: rng.normal(0, 1, shape).astype(np.float32)} for _ in range(count)]


class _Reader(CalibrationDataReader):
    def __init__(self, samples: Sequence[Feed]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Feed | None:
        return next(self._samples, None)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """For the tools, which change what they are given."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return twin


def static(model: onnx.ModelProto, samples: Sequence[Feed], folder: Path, form: QuantFormat, **options: Any) -> Path:
    target = folder / "quantized.onnx"
    quantize_static(_copy(model), target, _Reader(samples), quant_format=form, **options)
    return target


def dynamic(model: onnx.ModelProto, folder: Path, **options: Any) -> Path:
    """A model as onnxruntime quantizes it; signed weights have 7 bits, which no processor's kernels saturate on."""
    target = folder / "quantized.onnx"
    kind = options.pop("weight_type", QuantType.QInt8)
    quantize_dynamic(_copy(model), target, weight_type=kind, reduce_range=kind == QuantType.QInt8, **options)
    return target


def stripped(path: Path) -> tuple[Graph, Stripped]:
    graph = Graph.load(path)
    return graph, strip(graph)


def outputs(model: Path | onnx.ModelProto | Graph, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    if isinstance(model, Graph):
        model = model.to_model()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # what the file says, node by node
    session = ort.InferenceSession(str(model) if isinstance(model, Path) else model.SerializeToString(), options)
    return list(session.run(None, feed))


def nearness(one: Any, other: Any, samples: Sequence[Feed]) -> float:
    """The lowest SQNR over samples and outputs, in dB."""
    pairs = (zip(outputs(one, feed), outputs(other, feed), strict=True) for feed in samples)
    return min(sqnr_db(a, b) for pair in pairs for a, b in pair)
