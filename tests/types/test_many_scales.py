"""Parameters of weights with very many blocks: small in memory and in files, and read back to the same bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from onnxq.errors import SpecError
from onnxq.numerics import qparams_from_range
from onnxq.types import PerBlock, QParams, QParamsTable, QuantSpec
from onnxq.types.qparams import MANY

SHAPE = (MANY // 8, 9)


def parameters(dtype: str, *, symmetric: bool) -> QParams:
    spec = QuantSpec(dtype, symmetric=symmetric, granularity=PerBlock(0, 32))
    rng = np.random.default_rng(0)
    return qparams_from_range(-rng.random(SHAPE), rng.random(SHAPE), spec)


@pytest.mark.parametrize(("dtype", "symmetric"), [("int4", True), ("uint4", False), ("int8", False), ("uint16", False)])
def test_many_scales_are_stored_as_bytes_and_read_back_to_the_same_bits(dtype: str, symmetric: bool) -> None:
    table = QParamsTable()
    table.put("w", parameters(dtype, symmetric=symmetric), "minmax")
    text = json.dumps(table.to_json())
    assert len(text) < 8 * table["w"].scale.size + 1000 + (0 if symmetric else 6 * table["w"].scale.size)
    assert QParamsTable.from_json(json.loads(text))["w"] == table["w"]


def test_few_scales_stay_readable() -> None:
    spec = QuantSpec("int4", granularity=PerBlock(0, 32))
    few = QParams(spec, np.full((2, 3), 0.5, np.float32), np.zeros((2, 3), np.int32))
    assert few.to_json()["scale"] == [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]


def test_zero_points_of_a_symmetric_format_take_one_number() -> None:
    held = parameters("int4", symmetric=True).zero_point
    assert held.shape == SHAPE
    assert held.strides == (0, 0)
    assert not held.flags.writeable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float64"}, "tensor 'w': parameters are stored as float32"),
        ({"base64": "@@@@"}, "tensor 'w': its entry cannot be read"),
        ({"shape": [3, 3]}, "tensor 'w': its entry cannot be read"),
    ],
)
def test_damaged_bytes_are_an_error_that_names_the_tensor(changes: dict[str, object], message: str) -> None:
    table = QParamsTable()
    table.put("w", parameters("int4", symmetric=True), "minmax")
    data = table.to_json()
    data["tensors"]["w"]["scale"].update(changes)
    with pytest.raises(SpecError, match=message):
        QParamsTable.from_json(data)
