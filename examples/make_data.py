"""Writes the demo model and its data into the current folder: digits.onnx, calib.npz, test.npz."""

import shutil

import numpy as np

from onnxq.demo import load_data, model_path

data = load_data()
shutil.copy(model_path(), "digits.onnx")
np.savez("calib.npz", image=data.calibration)
np.savez("test.npz", image=data.test_images, label=data.test_labels)
print(f"digits.onnx, {len(data.calibration)} calibration images, {len(data.test_images)} test images")
