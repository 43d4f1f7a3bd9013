"""Bias correction: the shift of a mean that quantization causes, taken back in the bias."""
