"""Writes the demo model and its data into the current folder: digits.onnx, calib.npz, train.npz, test.npz."""

import shutil

import numpy as np

from onnxq.demo import load_data, model_path

data = load_data()
shutil.copy(model_path(), "digits.onnx")
np.savez("calib.npz", image=data.calibration)
np.savez("train.npz", image=data.train_images, label=data.train_labels)
np.savez("test.npz", image=data.test_images, label=data.test_labels)
counts = f"{len(data.calibration)} calibration, {len(data.train_images)} training and {len(data.test_images)} test images"
print(f"digits.onnx, {counts}")
