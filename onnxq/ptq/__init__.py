"""Post-training quantization: methods that make a calibrated model more accurate, and the search over them.

Methods have the names of their papers. Each is one file that registers itself (`onnxq.ptq.method`).
"""
