"""Qualcomm: SNPE and QNN, and the encodings that both of their converters read."""
