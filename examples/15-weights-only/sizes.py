"""Stores the weights of a small language-like network in blocks of few bits, and compares size and output."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnxq

TOKENS, WIDTH, LAYERS = 2000, 128, 4
random = np.random.default_rng(0)


def network() -> onnx.ModelProto:
    """An embedding, a few layers, and the embedding again as the output matrix: one weight with two readers."""
    weights = {"embedding": random.normal(0, 1, (TOKENS, WIDTH))}
    nodes = [helper.make_node("Gather", ["embedding", "tokens"], ["x0"], "embed")]
    for layer in range(LAYERS):
        weights[f"weight{layer}"] = random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH))
        nodes += [
            helper.make_node("MatMul", [f"x{layer}", f"weight{layer}"], [f"m{layer}"], f"layer{layer}"),
            helper.make_node("Tanh", [f"m{layer}"], [f"x{layer + 1}"], f"tanh{layer}"),
        ]
    nodes += [
        helper.make_node("Transpose", ["embedding"], ["head"], "transpose", perm=[1, 0]),
        helper.make_node("MatMul", [f"x{LAYERS}", "head"], ["logits"], "head"),
    ]
    graph = helper.make_graph(
        nodes,
        "language",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", TOKENS])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def logits(model: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(None, {"tokens": np.arange(0, TOKENS, 40)})[0]


source = Path("language.onnx")
onnx.save(network(), source)
expected = logits(source)
print(f"{'float':44} {source.stat().st_size / 1e6:5.2f} MB")
for options in ("bits=8,block=64", "bits=4,block=32", "bits=4,block=32,form=nbits", "bits=2,block=16"):
    result = onnxq.quantize(source, backend=f"weight_only:{options}", out="out")  # no data is needed
    error = logits(result.model) - expected
    ratio = 10 * np.log10(np.square(expected).sum() / np.square(error).sum())
    print(f"weight_only:{options:32} {result.model.stat().st_size / 1e6:5.2f} MB, {ratio:4.1f} dB")
