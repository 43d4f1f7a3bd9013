"""Python as on a processor with AVX2 and neither AVX-512 nor VNNI, on one that has more.

onnxruntime takes other integer kernels there, whose sums of 8-bit products saturate (`onnxq.emit.saturation`).
"""
