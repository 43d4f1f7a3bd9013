"""Running ONNX models: sessions, data, and looking at any tensor on the way. onnxruntime is imported at first use."""

from onnxq.runtime.dataset import Dataset, InputInfo, open_dataset
from onnxq.runtime.random_data import random_dataset
from onnxq.runtime.session import input_infos

__all__ = ["Dataset", "InputInfo", "input_infos", "open_dataset", "random_dataset"]
