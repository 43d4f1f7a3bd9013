"""A branch that no output depends on keeps nothing from being folded, on any target, and is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.errors import ConfigError
from onnxq.session.prepare import dead_notes, make_plan, prepare
from onnxq.targets import BACKENDS
from tests.passes.equivalence import build_model

RANDOM = np.random.default_rng(5)
WEIGHTS = {
    "w": RANDOM.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32),
    **{name: RANDOM.uniform(0.5, 2, 4).astype(np.float32) for name in ("scale", "shift", "mean", "variance")},
}
DEAD = ("dead_copy", "dead_sum", "dead_end")
TARGETS = [name for name, backend in BACKENDS.items() if "fold_batchnorm" in backend.passes]


def network(*, dead: bool, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    """A convolution with batch normalization and Relu; a dead branch reads the results of the first two."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["b"], name="bn"),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    if dead:
        nodes += [
            helper.make_node("Identity", ["c"], ["d0"], name="dead_copy"),
            helper.make_node("Add", ["d0", "b"], ["d1"], name="dead_sum"),
            helper.make_node("Neg", ["d1"], ["d2"], name="dead_end"),
        ]
    return build_model(nodes, {"x": (1, 3, 8, 8)}, outputs, WEIGHTS)


def shape_of(model: onnx.ModelProto, target: str) -> list[tuple[str, str, list[str]]]:
    prepared = prepare(model, target)
    return [(node.name, node.op, [tensor.name for tensor in node.inputs]) for node in prepared.graph.nodes()]


@pytest.mark.parametrize("target", [*TARGETS, "academic", "academic_nlp", "tensorrt_nlp"])
def test_the_graph_is_that_of_the_model_without_the_branch(target: str) -> None:
    assert shape_of(network(dead=True), target) == shape_of(network(dead=False), target)


@pytest.mark.parametrize("target", TARGETS)
def test_batch_normalization_is_folded_in_spite_of_the_branch(target: str) -> None:
    prepared = prepare(network(dead=True), target)
    assert not prepared.graph.nodes("BatchNormalization")
    assert len(dead_notes(prepared)) == len(DEAD)
    assert set(DEAD) <= set(prepared.graph.origins.removed)


def test_every_target_removes_what_is_dead_before_anything_else() -> None:
    assert {backend.passes[0] for _, backend in BACKENDS.items() if backend.passes} == {"remove_dead"}


def test_what_the_user_reads_as_an_output_stays() -> None:
    prepared = prepare(network(dead=True, outputs=("y", "d2")), "onnxruntime")
    assert {"dead_sum", "dead_end"} <= {node.name for node in prepared.graph.nodes()}
    assert not dead_notes(prepared)
    added = prepare(network(dead=True), "onnxruntime", {"extra_outputs": ["d1"]})
    assert added.graph.output_names == ["y", "d1"]
    assert [note for note in dead_notes(added) if "dead_end" in note] == list(dead_notes(added))


def test_the_report_and_the_terminal_name_what_was_removed(tmp_path: Path) -> None:
    onnx.save(network(dead=True), tmp_path / "m.onnx")
    data = {"x": RANDOM.normal(0, 1, (4, 3, 8, 8)).astype(np.float32)}
    result = onnxq.quantize(tmp_path / "m.onnx", backend="onnxruntime", data=data, config={"effort": 0})
    assert [name for name in DEAD if any(f"'{name}'" in note for note in result.report["kinds"]["dead_node"])] == list(
        DEAD
    )
    shown = CliRunner().invoke(app, ["place", str(tmp_path / "m.onnx"), "-b", "onnxruntime"], prog_name="onnxq")
    assert "3 nodes that no output depends on, removed" in " ".join(shown.output.split())


def test_a_setting_for_a_removed_node_is_an_error_that_says_why() -> None:
    with pytest.raises(ConfigError, match="nobody reads its results"):
        make_plan(prepare(network(dead=True), "onnxruntime", {"skip": ["dead_sum"]}))


def test_a_body_of_a_branch_counts_as_a_reader() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "x4"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x4"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["x4"], name="bn"),
        helper.make_node("If", ["flag"], ["y"], name="choose", then_branch=body, else_branch=other),
    ]
    model = build_model(nodes, {"x": (1, 3, 8, 8)}, {"y": (1, 4, 8, 8)}, {**WEIGHTS, "flag": np.array(True)})
    assert not dead_notes(prepare(model, "onnxruntime"))
