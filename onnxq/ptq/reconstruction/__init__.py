"""Roundings and ranges fitted with gradients to what the float model computes, block by block; needs torch."""
