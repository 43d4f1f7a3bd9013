"""onnxruntime itself: Q/DQ pairs, and the QLinear operators of older runtimes."""
