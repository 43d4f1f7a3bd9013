"""Runs the pass alone, shows that the outputs are the same, then quantizes with it."""

import numpy as np
import onnxruntime
from my_passes import mean_of_image

import onnxq

images = np.load("test.npz")["image"]


def logits(model: str) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": images})[0]


# Built-in passes by name, one's own as functions, in any order.
graph = onnxq.load("digits.onnx")
graph.infer_shapes()  # the pass asks for the shape of a tensor
for report in onnxq.run_passes(graph, ["fold_batchnorm", mean_of_image, "remove_dead"]):
    for line in report.changed:
        print(f"{report.name}: {line}")
graph.save("simplified.onnx")

difference = np.abs(logits("digits.onnx") - logits("simplified.onnx")).max()
print(f"largest difference of the outputs: {difference:.1e}")
assert difference < 1e-4, "a pass must leave the outputs equal, up to float rounding"

# Or after the backend's own passes, on the way to a quantized model.
result = onnxq.quantize("digits.onnx", backend="tensorrt", data="calib.npz", passes=[mean_of_image], out="out/own-pass")
print(f"{result.report['passes'][-1]['name']}: {result.report['passes'][-1]['changed']}")
