"""Sophgo's chips, by way of tpu-mlir."""
