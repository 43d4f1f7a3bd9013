"""`onnxq inspect` and `onnxq list`: facts about a file, and what is registered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.observers import OBSERVERS
from onnxq.passes import PASSES
from onnxq.targets import BACKENDS
from onnxq.types.number_format import number_formats


def branching_model() -> onnx.ModelProto:
    """A MatMul in each branch of an If; dynamic first dimension; metadata."""
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "weight")
    branches = {}
    for branch in ("then_branch", "else_branch"):
        result = helper.make_tensor_value_info(f"{branch}_out", TensorProto.FLOAT, None)
        node = helper.make_node("MatMul", ["x", "weight"], [f"{branch}_out"])
        branches[branch] = helper.make_graph([node], branch, [], [result])
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], **branches)],
        "main",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        [weight],
    )
    model = helper.make_model(graph, producer_name="tests", opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"licence": "free"})
    return model


def open_convolution() -> onnx.ModelProto:
    """Its sizes are named in the input, and follow from them in the output."""
    weight = numpy_helper.from_array(np.ones((4, 2, 3, 3), np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None, "h", "w"]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="c")], "g", ends[:1], ends[1:], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inspected(run, path: Path) -> dict:
    result = run("inspect", path, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_counts_nodes_in_bodies_and_names_dynamic_axes(run, tmp_path: Path) -> None:
    path = tmp_path / "branching.onnx"
    onnx.save(branching_model(), path)
    facts = inspected(run, path)
    assert facts["operators"] == {"If": 1, "MatMul": 2} or facts["operators"] == {"MatMul": 2, "If": 1}
    assert facts["inputs"][0] == {"name": "x", "type": "float", "shape": ["rows", 4]}
    assert (facts["parameters"], facts["parameter_bytes"]) == (12, 48)
    assert facts["metadata"] == {"licence": "free"}
    assert facts["blocking"] == facts["quantized"] == []
    assert "axis 0 (rows)" in run("inspect", path).stdout


def test_missing_external_data_blocks(run, tmp_path: Path) -> None:
    path = tmp_path / "external.onnx"
    onnx.save(branching_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    whole = inspected(run, path)
    assert whole["external_files"] == [str(tmp_path / "weights.bin")]
    assert whole["file_bytes"] == path.stat().st_size + (tmp_path / "weights.bin").stat().st_size
    assert whole["blocking"] == []
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in inspected(run, path)["blocking"][0]


def test_a_quantized_model_is_recognised(run, finished: Path) -> None:
    facts = inspected(run, finished / "model.onnx")
    assert any("QuantizeLinear" in line for line in facts["quantized"])
    assert any("quantized already" in line for line in facts["remarks"])


def test_operators_without_a_rule_block(run, tmp_path: Path) -> None:
    model = branching_model()
    node = helper.make_node("Sinh", ["x"], ["y"])
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.append(node)
    onnx.save(model, tmp_path / "sinh.onnx")
    assert "no backend has a rule" in inspected(run, tmp_path / "sinh.onnx")["blocking"][0]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("backends", BACKENDS.names()),
        ("passes", PASSES.names()),
        ("observers", OBSERVERS.names()),
        ("formats", number_formats()),
    ],
)
def test_list_shows_every_registered_name(run, kind: str, names: list[str]) -> None:
    result = run("list", kind, "--json")
    assert [entry["name"] for entry in json.loads(result.stdout)] == list(names)
    words = run("list", kind).stdout.split()
    assert [name for name in names if name not in words] == []


def test_list_says_what_a_backend_writes(run) -> None:
    entries = {entry["name"]: entry for entry in json.loads(run("list", "backends", "--json").stdout)}
    assert entries["tensorrt"]["biases"] == "float"
    assert "per channel" in entries["onnxruntime"]["weights"]
    assert all(entry["writes"] and entry["summary"] for entry in entries.values())


def test_dimensions_that_share_a_name_are_told(run, tmp_path: Path) -> None:
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            ("x", [1, "?", "?"]),
            ("s", ["side", "side"]),
            ("y", [1, "?", "?"]),
            ("z", ["side", "side"]),
        )
    ]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["s"], ["z"])]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:])
    path = tmp_path / "shared.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    remarks = inspected(run, path)["remarks"]
    assert "4 free dimensions are called '?', which is no name: each is taken for a size of its own" in remarks
    assert [line for line in remarks if line.startswith("2 dimensions of 's' are called 'side'")]


def test_macs_of_a_model_with_open_sizes_are_counted_for_a_shape(run, tmp_path: Path) -> None:
    onnx.save(open_convolution(), tmp_path / "m.onnx")
    unknown = run("inspect", tmp_path / "m.onnx").stdout
    assert "unknown" in unknown
    assert "--shape" in unknown
    known = run("inspect", tmp_path / "m.onnx", "--shape", "1,2,8,8").stdout
    assert "--shape" not in known
    facts = json.loads(run("inspect", tmp_path / "m.onnx", "--shape", "x=1,2,8,8", "--json").stdout)
    assert facts["macs"] == 4 * 2 * 6 * 6 * 9
    assert facts["largest"][0]["macs"] == facts["macs"]


def test_a_shape_that_a_model_cannot_take_leaves_macs_unknown(run, tmp_path: Path) -> None:
    onnx.save(open_convolution(), tmp_path / "m.onnx")
    assert "does not run with that --shape" in run("inspect", tmp_path / "m.onnx", "--shape", "1,3,8,8").stdout
    wrong = run("inspect", tmp_path / "m.onnx", "--shape", "z=1,2")
    assert wrong.exit_code == 2
