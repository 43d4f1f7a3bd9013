"""Operators of classical machine learning (ai.onnx.ml) that stand before or behind networks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value, as_ints, from_numpy, to_numpy

DOMAIN = "ai.onnx.ml"


@op("ArrayFeatureExtractor", since=1, domain=DOMAIN)
def array_feature_extractor(call: Call) -> Kernel:
    """Chosen columns; a vector gives a matrix of one row."""

    def run(x: Value, indices: Tensor) -> Value:
        chosen = x[..., as_ints(indices)]
        return chosen.reshape(1, -1) if x.ndim == 1 else chosen

    return run


@op("Binarizer", since=1, domain=DOMAIN)
def binarizer(call: Call) -> Kernel:
    threshold = call.attribute("threshold", 0.0)

    def run(x: Tensor) -> Tensor:
        return (x > threshold).to(x.dtype)

    return run


_DEFAULTS = {"strings": ("string", "_Unused"), "int64s": ("int64", -1), "floats": ("float", -0.0)}
_DTYPES = {"strings": object, "int64s": np.int64, "floats": np.float32}


@op("LabelEncoder", since=1, domain=DOMAIN)
def label_encoder_of_classes(call: Call) -> Kernel:
    """Strings to their places in a list, or places to strings."""
    classes = call.attribute("classes_strings")
    places = {name: place for place, name in enumerate(classes)}
    unknown = call.attribute("default_int64", -1), call.attribute("default_string", "_Unused")

    def run(x: Value) -> Value:
        if isinstance(x, np.ndarray):
            found = [places.get(str(item), unknown[0]) for item in x.reshape(-1)]
            return torch.tensor(found, dtype=torch.int64).reshape(x.shape)
        named = [classes[item] if 0 <= item < len(classes) else unknown[1] for item in as_ints(x)]
        return np.array(named, dtype=object).reshape(tuple(x.shape))

    return run


@op("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder(call: Call) -> Kernel:
    """Keys to values; of equal keys the last counts, and NaN equals NaN."""
    keys, _ = _list(call, "keys")
    values, dtype = _list(call, "values")
    table = {_key(key): value for key, value in zip(keys, values, strict=True)}
    unknown = _default(call)

    def run(x: Value) -> Value:
        found = [table.get(_key(item), unknown) for item in to_numpy(x).reshape(-1).tolist()]
        return from_numpy(np.array(found, dtype=dtype).reshape(tuple(x.shape)))

    return run


def _list(call: Call, side: str) -> tuple[list[Any], Any]:
    for kind, dtype in _DTYPES.items():
        if call.has_attribute(f"{side}_{kind}"):
            return list(call.attribute(f"{side}_{kind}")), dtype
    array = to_numpy(call.tensor_attribute(f"{side}_tensor"))
    return array.tolist(), object if array.dtype.kind in "OSU" else array.dtype


def _default(call: Call) -> Any:
    for kind, (name, usual) in _DEFAULTS.items():
        if call.has_attribute(f"values_{kind}"):
            return call.attribute(f"default_{name}", usual)
    if call.has_attribute("default_tensor"):
        return to_numpy(call.tensor_attribute("default_tensor")).reshape(-1).tolist()[0]
    kind = to_numpy(call.tensor_attribute("values_tensor")).dtype.kind
    return {"O": "_Unused", "U": "_Unused", "f": -0.0}.get(kind, -1)


def _key(item: Any) -> Any:
    if isinstance(item, float):
        # float32 keys come as doubles from an attribute and as float32 from a tensor
        return "NaN" if math.isnan(item) else float(np.float32(item))
    return item


LESS_EQUAL, LESS, GREATER_EQUAL, GREATER, EQUAL, NOT_EQUAL, MEMBER = range(7)
AVERAGE, SUM, MINIMUM, MAXIMUM = range(4)


@op("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(call: Call) -> Kernel:
    """Sums (or means, minima, maxima) of the leaves that a row reaches; all rows walk through a tree together."""
    targets = call.attribute("n_targets")
    aggregate = call.attribute("aggregate_function", SUM)
    if call.attribute("post_transform", 0) != 0:
        raise call.unsupported("post_transform other than NONE (0)")
    roots = call.attribute("tree_roots")
    feature = torch.tensor(call.attribute("nodes_featureids"))
    split = call.tensor_attribute("nodes_splits")
    modes = call.tensor_attribute("nodes_modes").long()
    on_missing = torch.tensor(call.attribute("nodes_missing_value_tracks_true", [0] * len(feature)), dtype=torch.bool)
    sides = [
        (torch.tensor(call.attribute(f"nodes_{side}nodeids")), torch.tensor(call.attribute(f"nodes_{side}leafs")) > 0)
        for side in ("false", "true")
    ]
    weights = call.tensor_attribute("leaf_weights")
    target = torch.tensor(call.attribute("leaf_targetids"))
    members = _members(call, modes)

    def goes_true(node: Tensor, value: Tensor) -> Tensor:
        limit, mode = split[node], modes[node]
        answers = torch.stack(
            (value <= limit, value < limit, value >= limit, value > limit, value == limit, value != limit)
        )
        yes = answers.gather(0, mode.clamp(max=NOT_EQUAL)[None])[0]
        for number, allowed in members.items():
            yes = torch.where(node == number, torch.isin(value, allowed), yes)
        return yes | (on_missing[node] & value.isnan())

    def leaf_of(x: Tensor, root: int) -> Tensor:
        place = torch.full((x.shape[0],), root, dtype=torch.int64)
        at_leaf = torch.zeros(x.shape[0], dtype=torch.bool)
        while not at_leaf.all():
            node = torch.where(at_leaf, 0, place)
            yes = goes_true(node, x.gather(1, feature[node][:, None])[:, 0])
            following = torch.where(yes, sides[1][0][node], sides[0][0][node])
            ended = torch.where(yes, sides[1][1][node], sides[0][1][node])
            place = torch.where(at_leaf, place, following)
            at_leaf = at_leaf | ended
        return place

    def run(x: Tensor) -> Tensor:
        leaves = torch.stack([leaf_of(x, root) for root in roots], 1)
        reached, columns = weights.to(x.dtype)[leaves], target[leaves]
        if aggregate in (MINIMUM, MAXIMUM):
            limits = torch.finfo(x.dtype)
            start = x.new_full((x.shape[0], targets), limits.max if aggregate == MINIMUM else limits.min)
            return start.scatter_reduce(1, columns, reached, "amin" if aggregate == MINIMUM else "amax")
        total = x.new_zeros(x.shape[0], targets).scatter_add(1, columns, reached)
        return total / len(roots) if aggregate == AVERAGE else total

    return run


def _members(call: Call, modes: Tensor) -> dict[int, Tensor]:
    """For each node that asks for membership the values of its set; the sets end with NaN, in the nodes' order."""
    nodes = [number for number, mode in enumerate(modes.tolist()) if mode == MEMBER]
    if not nodes:
        return {}
    values = call.tensor_attribute("membership_values")
    ends = torch.nonzero(values.isnan())[:, 0].tolist()
    return {
        node: values[start:end] for node, start, end in zip(nodes, [0, *(end + 1 for end in ends)], ends, strict=False)
    }
