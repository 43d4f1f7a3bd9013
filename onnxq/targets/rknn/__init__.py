"""Rockchip's RKNN."""
