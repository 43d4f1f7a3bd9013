"""Writes the demo model and its data into the current folder: digits.onnx, calib.npz, train.npz, test.npz."""

import shutil

import numpy as np

from onnxq.demo import load_data, model_path

data = load_data()
shutil.copy(model_path(), "digits.onnx")
np.savez("calib.npz", image=data.calibration)
np.savez("train.npz", image=data.train_images, label=data.train_labels)
np.savez("test.npz", image=data.test_images, label=data.test_labels)
counts = {"calibration": data.calibration, "training": data.train_images, "test": data.test_images}
print("digits.onnx, and images: " + ", ".join(f"{len(images)} for {use}" for use, images in counts.items()))
