"""Folders of Hugging Face with an ONNX model, as Optimum exports them and transformers.js reads them.

from onnxq.integrations.huggingface import quantize_folder

quantize_folder("MiniLM/", "MiniLM-onnxq/", dtypes=["q8", "q4"], data="sentences.txt")
"""

from onnxq.integrations.huggingface.folder import Quantized, quantize_folder

__all__ = ["Quantized", "quantize_folder"]
