"""Shows in the order of the model how the error grows, and which layers add most of it."""

import onnxq

found = onnxq.compare("digits.onnx", "out/int4/model.onnx", data="calib.npz", samples=8)
layers = {layer.tensor: layer for layer in found}
graph = onnxq.load("digits.onnx")
for node in graph.nodes():
    layer = layers.get(node.outputs[0].name)
    if layer is not None:
        print(f"{layer.node:16} {layer.op:20} {layer.sqnr_db:5.1f} dB  {'#' * round(layer.sqnr_db)}")

worst = min(layers.values(), key=lambda layer: layer.sqnr_db)
print(f"worst: '{worst.tensor}' with {worst.sqnr_db:.1f} dB, largest error {worst.max_abs:.3f}")
