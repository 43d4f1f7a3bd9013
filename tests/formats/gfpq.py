"""A strict reader of the clip values for NNIE's mapper: the layers of the float model, and legal values only."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import onnx


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), "a key stands twice in the file"
    return dict(pairs)


def gfpq_values(path: Path, deploy_model: Path) -> dict[str, list[float]]:
    """Layer -> clip values. Every layer is a node of the model (or the permutation behind one of its Upsamples)."""
    data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_no_twins)
    assert list(data) == ["nnie"]
    assert list(data["nnie"]) == ["gfpq_param_dict"]
    table: dict[str, list[float]] = data["nnie"]["gfpq_param_dict"]
    nodes = {node.name: node for node in onnx.load(deploy_model).graph.node}
    upsamples = [name for name, node in nodes.items() if node.op_type == "Upsample"]
    permutations = {f"{name}_permute_{number}": name for number, name in enumerate(upsamples)}
    for layer, values in table.items():
        assert layer in nodes or table[permutations[layer]] == values
        node = nodes[permutations.get(layer, layer)]
        assert 1 <= len(values) <= (1 if node.op_type == "Upsample" else len(node.input))
        for value in values:
            steps = 16 * math.log2(value)
            assert abs(steps - round(steps)) < 1e-9, f"{layer}: {value} is no entry of gfpq_param_table_8bit.txt"
    return table
