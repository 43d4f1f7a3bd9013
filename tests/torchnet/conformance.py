"""ONNX's own node tests, run on torch: which cases there are, whether a net reproduces one, and which are left out."""

from __future__ import annotations

import fnmatch
import functools
import json
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from onnxq.graph import Graph
from onnxq.torchnet import to_torch
from onnxq.torchnet.values import from_numpy, to_numpy


@functools.cache
def node_cases() -> dict[str, TestCase]:
    """All cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


LEFT_OUT = Path(__file__).with_name("left_out.json")
"""Patterns of names of cases that torch does not reproduce, each with the reason."""


@functools.cache
def left_out() -> dict[str, str]:
    """The reason for each case that is left out, by name; a pattern that fits no case is an error."""
    found: dict[str, str] = {}
    for pattern, reason in json.loads(LEFT_OUT.read_text(encoding="utf-8")).items():
        names = fnmatch.filter(node_cases(), pattern)
        if not names:
            raise ValueError(f"no case fits '{pattern}'; remove it from {LEFT_OUT.name}")
        found.update(dict.fromkeys(names, reason))
    return found


def is_rounding(reason: str) -> bool:
    """Whether a case is left out for its last bits; another machine's kernels may get those right."""
    return reason.startswith("rounding:")


def problem_of(case: TestCase) -> str | None:
    """Why torch does not reproduce a case; None if it does, values, shapes and element types."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            _import_default_operators(model)
            net = to_torch(Graph.from_model(model)).eval()
            torch.manual_seed(0)  # random operators give the same every time
            for inputs, expected in case.data_sets:
                outputs = net(*[as_value(item) for item in inputs])
                found = outputs if isinstance(outputs, tuple) else (outputs,)
                for number, (value, wanted) in enumerate(zip(found, expected, strict=True)):
                    apart = difference(value, wanted, case.rtol, case.atol)
                    if apart:
                        return f"output {number}: {apart}"
    except Exception as error:  # whatever happens, it is the answer to the question
        return f"{type(error).__name__}: {error}"
    return None


def _import_default_operators(model: onnx.ModelProto) -> None:
    """Cases of other domains import those alone; onnxq reads models that import the default operators too."""
    if not any(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))


def as_value(item: Any) -> Any:
    """What a net takes, from a value as ONNX's tests hold it."""
    if isinstance(item, onnx.TensorProto):
        return from_numpy(onnx.numpy_helper.to_array(item))
    if isinstance(item, onnx.SequenceProto):
        return as_value(onnx.numpy_helper.to_list(item))
    if isinstance(item, onnx.OptionalProto):
        return as_value(onnx.numpy_helper.to_optional(item))
    if isinstance(item, list):
        return [as_value(part) for part in item]
    return None if item is None else from_numpy(np.asarray(item))


def difference(value: Any, wanted: Any, rtol: float, atol: float) -> str | None:
    """How a value of a net differs from the wanted one in shape, type or numbers; None if it does not."""
    if isinstance(wanted, onnx.TensorProto):
        wanted = onnx.numpy_helper.to_array(wanted)
    if isinstance(wanted, list):
        if not isinstance(value, list) or len(value) != len(wanted):
            return f"a sequence of {len(wanted)} was expected"
        return next((d for v, w in zip(value, wanted, strict=True) if (d := difference(v, w, rtol, atol))), None)
    if wanted is None or value is None:
        return None if wanted is value else f"{wanted!r} was expected, not {value!r}"
    wanted, found = np.asarray(wanted), to_numpy(value)
    if wanted.dtype.kind in "OSU":
        return None if np.array_equal(found.astype(str), wanted.astype(str)) else "other strings"
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{wanted.dtype} {wanted.shape} was expected, not {found.dtype} {found.shape}"
    if wanted.dtype == ml_dtypes.bfloat16:
        rtol = max(rtol, 2.0**-6)  # two steps of the type, as ONNX's own runner allows
    if wanted.dtype.kind not in "fiubc":  # ml_dtypes
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    if np.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True):
        return None
    return f"values differ by up to {np.nanmax(np.abs(found.astype(np.float64) - wanted.astype(np.float64))):g}"
