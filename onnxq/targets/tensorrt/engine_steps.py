"""How an engine is built of the files with NVIDIA's trtexec."""

from __future__ import annotations

from onnxq.types.vendor_step import VendorStep

TYPED = (
    VendorStep(
        "trtexec of TensorRT 11 or newer builds an engine of the Q/DQ model: precisions are those of the file",
        "trtexec --onnx={model} --saveEngine={name}.plan",
    ),
)

TYPED_IN_10 = (
    VendorStep(
        "trtexec of TensorRT 10 does the same for a file with half-precision types",
        "trtexec --onnx={model} --stronglyTyped --saveEngine={name}.plan",
    ),
)

EXPLICIT = (
    *TYPED,
    VendorStep(
        "trtexec of TensorRT 8.5 to 10 (--fp8 in the place of --int8 for float8; --fp16 lets float layers be float16)",
        "trtexec --onnx={model} --int8 --saveEngine={name}.plan",
    ),
)

IMPLICIT = (
    VendorStep(
        "trtexec up to TensorRT 10, implicit quantization: the float model with the calibration cache",
        "trtexec --onnx={deploy} --int8 --calib={calibration_cache} --saveEngine={name}.plan",
    ),
)
