"""ONNX models, mutated as what they mean: nodes, attributes, tensors, borders, bodies, functions."""

from __future__ import annotations

import onnx

from tools.fuzz.formats.format import Format
from tools.fuzz.formats.onnx_models import attributes, borders, functions, names, nodes, tensors

MODEL = Format(
    "onnx",
    onnx.load_model_from_string,
    {**nodes.CHANGES, **attributes.CHANGES, **tensors.CHANGES, **borders.CHANGES, **functions.CHANGES, **names.CHANGES},
    names.serialize,
)
