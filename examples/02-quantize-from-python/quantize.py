"""Quantizes the digit classifier for two targets and measures both on images that calibration has not seen."""

import numpy as np
import onnxruntime

import onnxq

test = np.load("test.npz")


def accuracy(model: str) -> float:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": test["image"]})
    return float((logits.argmax(axis=1) == test["label"]).mean())


print(f"float        {accuracy('digits.onnx'):.2%}")
for backend in ("onnxruntime", "tensorrt"):
    result = onnxq.quantize("digits.onnx", backend=backend, data="calib.npz", out=f"out/{backend}")
    print(
        f"{backend:12} {accuracy(str(result.model)):.2%}, "
        f"SQNR {result.report['sqnr_db']['logits']:.1f} dB, "
        f"{len(result.plan.quantized)} nodes quantized, {len(result.plan.left_float)} float"
    )

# Everything that was decided is a value that can be read.
placement = result.plan["stem.relu.out"]
print(f"stem.relu.out: {placement.spec}, scale {result.qparams['stem.relu.out'].scale:.6f} ({placement.why})")

# Samples can come from Python, and settings can be given as a dict.
images = np.load("calib.npz")["image"]
result = onnxq.quantize(
    "digits.onnx",
    backend="tensorrt",
    data=[{"image": image[None]} for image in images[:32]],
    config={"observer": "mse", "skip": ["stem.conv"]},
    out="out/changed",
)
print(f"stem.conv stays float: {result.plan.left_float['stem.conv']}")

# The same in single steps; every value between two stages can be looked at or changed.
prepared = onnxq.prepare("digits.onnx", "tensorrt")
plan = onnxq.place(prepared.graph, prepared.backend)
calibration = onnxq.calibrate(prepared.graph, plan, [{"image": image[None]} for image in images])
print(f"{len(plan)} quantizers, ranges from {calibration.report.samples} samples")
