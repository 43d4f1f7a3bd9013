"""Writes a model with an operator that onnxq has no torch code for: pixels 0 .. 16, and a Scaler in front."""

import numpy as np
import onnx
from onnx import helper

model = onnx.load("digits.onnx")
for node in model.graph.node:
    node.input[:] = ["scaled" if name == "image" else name for name in node.input]
scaler = helper.make_node(
    "Scaler", ["image"], ["scaled"], name="scaler", domain="ai.onnx.ml", offset=[0.0], scale=[1 / 16]
)
model.graph.node.insert(0, scaler)
model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
onnx.save(model, "raw.onnx")

for name in ("train", "test"):
    stored = np.load(f"{name}.npz")
    np.savez(f"raw_{name}.npz", image=stored["image"] * 16, label=stored["label"])
