"""Weights of few bits in blocks, activations in float: language models."""
