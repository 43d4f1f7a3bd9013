"""Quantizes the digit classifier to 4 bits with more and more effort, and measures each on unseen images."""

import numpy as np
import onnxruntime

import onnxq

test = np.load("test.npz")


def accuracy(model: str) -> float:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it has no 4-bit kernels
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": test["image"]})
    return float((logits.argmax(axis=1) == test["label"]).mean())


TARGET = "academic:w_bits=4,a_bits=4,a_symmetric=no"
print(f"{'float':22} {accuracy('digits.onnx'):.2%}")
for name, config in (
    ("calibrated (effort 0)", {"effort": 0}),
    ("one by name: gptq", {"effort": 0, "improvements": ["gptq"]}),
    ("the default (effort 1)", {}),
):
    result = onnxq.quantize("digits.onnx", backend=TARGET, data="calib.npz", out="out/python", config=config)
    print(f"{name:22} {accuracy(str(result.model)):.2%}, {result.report['sqnr_db']['logits']:.1f} dB")

# What was tried, what it brought, and why something was not kept, is in the report.
for step in result.report["improvements"]["steps"]:
    print(f"{'+' if step['applied'] else '-'} {step['name']:26} {step['why']}")
