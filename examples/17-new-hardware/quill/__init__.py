"""Quill: an invented chip. Everything that onnxq has to know about it is in this folder: -b quill/"""
