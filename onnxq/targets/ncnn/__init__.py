"""Tencent's ncnn."""
