"""Runs a network in ncnn's int8 kernels with the scales of a calibration table.

    check.py FOLDER SAMPLES.npz

FOLDER holds model_deploy_model.onnx and model.table as onnxq writes them; SAMPLES.npz holds `input` (n, c, h, w) and
`expected` (n, k). The ncnn wheel has no ncnn2int8, so this script does its part: it writes .param and .bin from the
ONNX model, quantizing weights with the scales of the table as ncnn2int8 does. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import ncnn
import numpy as np
import onnx
from onnx import numpy_helper

INT8_TAG = 0x000D4B38


def read_table(path: Path) -> dict[str, list[float]]:
    """Key -> scales; an empty line ends the table."""
    table: dict[str, list[float]] = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if not words:
            break
        table[words[0][:255]] = [float(np.float32(word)) for word in words[1:]]
    return table


def to_int8(weights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Rows of weights times their scale, halves away from zero, within -127 and 127."""
    scaled = weights.reshape(len(scales), -1).astype(np.float32) * scales[:, None].astype(np.float32)
    return np.clip(np.sign(scaled) * np.floor(np.abs(scaled) + 0.5), -127, 127).astype(np.int8)


class Converter:
    """ONNX nodes as lines of a .param file and bytes of a .bin file."""

    def __init__(self, model: onnx.ModelProto, table: dict[str, list[float]]) -> None:
        self.graph = model.graph
        self.table = table
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.lines: list[str] = []
        self.weights = bytearray()
        self.quantized: list[str] = []
        self.blobs: set[str] = set()
        self.readers: dict[str, int] = {}
        for node in model.graph.node:
            for name in node.input:
                self.readers[name] = self.readers.get(name, 0) + 1

    def layer(self, kind: str, name: str, inputs: list[str], outputs: list[str], **values: Any) -> None:
        parameters = " ".join(f"{key[1:]}={value}" for key, value in values.items())
        self.lines.append(
            f"{kind} {name} {len(inputs)} {len(outputs)} {' '.join(inputs)} {' '.join(outputs)} {parameters}"
        )
        self.blobs.update(outputs)

    def result(self, name: str) -> None:
        """A blob may have one reader only: Split makes as many as there are."""
        count = self.readers.get(name, 0)
        if count > 1:
            self.layer("Split", f"split_{name}", [name], [f"{name}_copy{i}" for i in range(count)])

    def reads(self, name: str) -> str:
        if not hasattr(self, "taken"):
            self.taken: dict[str, int] = {}
        if self.readers.get(name, 0) <= 1:
            return name
        index = self.taken.get(name, 0)
        self.taken[name] = index + 1
        return f"{name}_copy{index}"

    def convert(self) -> tuple[str, bytes]:
        for info in self.graph.input:
            self.layer("Input", info.name, [], [info.name])
            self.result(info.name)
        for node in self.graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            getattr(self, f"_{node.op_type.lower()}")(node, attributes)
            self.result(node.output[0])
        text = f"7767517\n{len(self.lines)} {len(self.blobs)}\n" + "\n".join(self.lines) + "\n"
        return text, bytes(self.weights)

    def store(self, name: str, weights: np.ndarray, rows: int, bias: np.ndarray | None) -> int:
        """Weights, bias and scales in the order in which ncnn loads them; returns 1 if they are int8."""
        scales = self.table.get(f"{name}_param_0")
        if scales is None:
            self.weights += np.uint32(0).tobytes() + weights.astype("<f4").tobytes()
            self.weights += b"" if bias is None else bias.astype("<f4").tobytes()
            return 0
        if len(scales) != rows or len(self.table[name]) != 1:
            raise ValueError(f"layer {name}: {len(scales)} weight scales, {rows} wanted")
        integers = to_int8(weights, np.asarray(scales, np.float32)).tobytes()
        self.weights += np.uint32(INT8_TAG).tobytes() + integers + bytes(-len(integers) % 4)
        self.weights += b"" if bias is None else bias.astype("<f4").tobytes()
        self.weights += np.asarray(scales, "<f4").tobytes() + np.asarray(self.table[name], "<f4").tobytes()
        self.quantized.append(name)
        return 1

    def _bias(self, node: onnx.NodeProto) -> np.ndarray | None:
        return self.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else None

    def _conv(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        weights, bias, groups = self.constants[node.input[1]], self._bias(node), attributes.get("group", 1)
        strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
        top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
        kind = "Convolution" if groups == 1 else "ConvolutionDepthWise"
        is_int8 = self.store(node.name, weights, weights.shape[0] if groups == 1 else groups, bias)
        values = {
            "_0": weights.shape[0], "_1": weights.shape[3], "_11": weights.shape[2], "_2": dilations[1],
            "_12": dilations[0], "_3": strides[1], "_13": strides[0], "_4": left, "_14": top, "_15": right,
            "_16": bottom, "_5": int(bias is not None), "_6": weights.size,
        }  # fmt: skip
        if groups > 1:
            values["_7"] = groups
        if is_int8:
            values["_8"] = 2 if groups == 1 else 1
        self.layer(kind, node.name, [self.reads(node.input[0])], [node.output[0]], **values)

    def _gemm(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        weights = self.constants[node.input[1]]
        weights = np.ascontiguousarray(weights if attributes.get("transB", 0) else weights.T)
        bias = self._bias(node)
        is_int8 = self.store(node.name, weights, weights.shape[0], bias)
        values = {"_0": weights.shape[0], "_1": int(bias is not None), "_2": weights.size}
        if is_int8:
            values["_8"] = 2
        self.layer("InnerProduct", node.name, [self.reads(node.input[0])], [node.output[0]], **values)

    def _relu(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        self.layer("ReLU", node.name, [self.reads(node.input[0])], [node.output[0]])

    def _clip(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        low, high = (float(self.constants[name]) for name in node.input[1:3])
        self.layer("Clip", node.name, [self.reads(node.input[0])], [node.output[0]], _0=low, _1=high)

    def _maxpool(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        kernel, strides = attributes["kernel_shape"], attributes.get("strides", [1, 1])
        top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
        values = {"_0": 0, "_1": kernel[1], "_11": kernel[0], "_2": strides[1], "_12": strides[0]}
        values |= {"_3": left, "_13": top, "_14": right, "_15": bottom, "_5": 1}
        self.layer("Pooling", node.name, [self.reads(node.input[0])], [node.output[0]], **values)

    def _globalaveragepool(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        self.layer("Pooling", node.name, [self.reads(node.input[0])], [node.output[0]], _0=1, _4=1)

    def _flatten(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        self.layer("Flatten", node.name, [self.reads(node.input[0])], [node.output[0]])

    def _add(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        self.layer("BinaryOp", node.name, [self.reads(name) for name in node.input], [node.output[0]], _0=0)

    def _concat(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        self.layer("Concat", node.name, [self.reads(name) for name in node.input], [node.output[0]], _0=0)


def run(folder: Path, model: onnx.ModelProto, inputs: np.ndarray, winograd: bool) -> np.ndarray:
    """The output for every sample, with ncnn's kernels of this machine."""
    net = ncnn.Net()
    net.opt.use_winograd_convolution = winograd
    net.opt.use_int8_inference = True
    for option in (
        "use_fp16_packed",
        "use_fp16_storage",
        "use_fp16_arithmetic",
        "use_bf16_storage",
        "use_vulkan_compute",
    ):
        setattr(net.opt, option, False)
    net.opt.num_threads = 1
    assert net.load_param(str(folder / "net.param")) == 0, "ncnn does not read the .param file"
    assert net.load_model(str(folder / "net.bin")) == 0, "ncnn does not read the .bin file"
    results = []
    for sample in inputs:
        extractor = net.create_extractor()
        extractor.input(model.graph.input[0].name, ncnn.Mat(np.ascontiguousarray(sample)).clone())
        status, found = extractor.extract(model.graph.output[0].name)
        assert status == 0, f"ncnn returned {status}"
        results.append(np.array(found).reshape(-1))
    return np.stack(results)


def sqnr_db(expected: np.ndarray, found: np.ndarray) -> float:
    signal, noise = expected.astype(np.float64), found.astype(np.float64) - expected
    return float(10 * np.log10(np.sum(signal**2) / max(np.sum(noise**2), 1e-30)))


def main() -> None:
    folder, samples = Path(sys.argv[1]), np.load(sys.argv[2])
    model = onnx.load(folder / "model_deploy_model.onnx")
    inputs, expected = samples["input"], samples["expected"].reshape(len(samples["input"]), -1)
    converter = Converter(model, read_table(folder / "model.table"))
    text, weights = converter.convert()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "net.param").write_text(text)
        (Path(place) / "net.bin").write_bytes(weights)
        direct = run(Path(place), model, inputs, winograd=False)
        winograd = run(Path(place), model, inputs, winograd=True)
    answer = {
        "version": ncnn.__version__,
        "int8_layers": converter.quantized,
        "sqnr_db": sqnr_db(expected, direct),
        "sqnr_db_winograd": sqnr_db(expected, winograd),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
