"""How many scales a tensor has."""

import json

import pytest

from onnxq.errors import SpecError
from onnxq.types import PerBlock, PerChannel, PerTensor
from onnxq.types.granularity import granularity_from_json, resolve_axis


@pytest.mark.parametrize(
    ("granularity", "shape", "expected"),
    [
        (PerTensor(), (64, 3, 3, 3), ()),
        (PerChannel(0), (64, 3, 3, 3), (64,)),
        (PerChannel(-1), (64, 3, 3, 5), (5,)),
        (PerBlock(0, 32), (100, 64), (4, 64)),
        (PerBlock(-1, 32), (100, 64), (100, 2)),
        (PerBlock(0, 128), (100, 64), (1, 64)),
        (PerBlock(0, 1), (100, 64), (100, 64)),
    ],
    ids=str,
)
def test_shape_of_the_scale(granularity, shape, expected):
    assert granularity.scale_shape(shape) == expected


@pytest.mark.parametrize("granularity", [PerTensor(), PerChannel(-2), PerBlock(1, 16)], ids=str)
def test_reads_back_from_json(granularity):
    assert granularity_from_json(json.loads(json.dumps(granularity.to_json()))) == granularity


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_outside_the_tensor_is_named(axis):
    with pytest.raises(SpecError, match=f"axis {axis} is outside a tensor of rank 2"):
        PerChannel(axis).scale_shape((4, 5))
    with pytest.raises(SpecError, match=f"axis {axis} is outside a tensor of rank 2"):
        resolve_axis(axis, 2)


@pytest.mark.parametrize("size", [0, -4])
def test_a_block_has_at_least_one_element(size):
    with pytest.raises(SpecError, match=f"block size must be at least 1, got {size}"):
        PerBlock(0, size)


@pytest.mark.parametrize("data", [{"per": "row"}, {}])
def test_an_unknown_granularity_says_what_is_known(data):
    with pytest.raises(SpecError, match="per: tensor, channel or block"):
        granularity_from_json(data)
