"""Equalization: other weights with which the float model computes the same and quantizes better."""
