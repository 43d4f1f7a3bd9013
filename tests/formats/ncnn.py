"""A strict reader of ncnn's calibration table, written from the rules of ncnn2int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def calibration_table(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(layer -> scale of its input, layer -> scales of its weight), as float32."""
    text = path.read_bytes().decode("ascii")
    assert text.endswith("\n")
    inputs: dict[str, np.ndarray] = {}
    weights: dict[str, np.ndarray] = {}
    for line in text[:-1].split("\n"):
        assert line, "an empty line ends the table"
        assert line == line.strip()
        key, *numbers = line.split(" ")
        assert len(key) <= 255
        scales = np.array([np.float32(number) for number in numbers], np.float32)
        assert scales.size
        assert np.all(np.isfinite(scales))
        assert np.all(scales > 0)
        if "_param_" in key:
            layer = key.removesuffix("_param_0")
            assert layer != key
            assert layer not in weights
            weights[layer] = scales
        else:
            assert key not in inputs
            assert scales.size == 1
            inputs[key] = scales
    assert inputs.keys() == weights.keys(), "ncnn2int8 wants both lines of a layer"
    return inputs, weights
