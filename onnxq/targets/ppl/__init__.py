"""OpenPPL: its CUDA engine, and its 8-bit weights with float16 activations."""
