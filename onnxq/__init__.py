"""onnxq quantizes ONNX models for real chips, and checks what it writes.

    result = onnxq.quantize("model.onnx", backend="tensorrt", data="calib.npz", out="out/")
    result.model, result.plan, result.qparams, result.report

    graph = onnxq.load("model.onnx")        # the graph API on its own

onnxruntime is loaded when a model is run, torch never by this package's core.
"""

