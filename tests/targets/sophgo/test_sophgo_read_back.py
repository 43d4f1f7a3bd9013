"""Whatever is changed in a Sophgo table is noticed when it is read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.emit import EMITTERS, EmitRequest, emit, read_back
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.place import place
from onnxq.targets import get_backend
from onnxq.types import Backend, QParamsTable, QuantPlan
from tests.golden_graphs import GOLDEN
from tools.golden import synthetic_parameters


def _content(check: Callable[..., Iterator[str]], arguments: tuple[Any, ...]) -> bool:
    return not list(check(EmitRequest(*arguments)))


class Written(NamedTuple):
    """A folder with the tables of one target for one model, and what they were made from."""

    graph: Graph
    plan: QuantPlan
    qparams: QParamsTable
    backend: Backend
    folder: Path

    def problems(self) -> list[str]:
        return read_back(self.graph, self.plan, self.qparams, self.backend, self.folder, "model")

    def tables(self) -> Iterator[tuple[Path, Callable[[], bool]]]:
        """Each table, and whether its own read-back is content with it."""
        for emitter in map(EMITTERS.get, self.backend.emitters):
            if emitter.read_back is not None:
                arguments = (self.graph, self.plan, self.qparams, self.backend, self.folder, "model")
                (path,) = emitter(EmitRequest(*arguments)).files
                yield path, partial(_content, emitter.read_back, arguments)


def written(target: str, model: onnx.ModelProto, folder: Path) -> Written:
    backend = get_backend(target)
    graph = Graph.from_model(model)
    graph.infer_shapes()
    run_passes(graph, list(backend.passes))
    graph.infer_shapes()
    plan = place(graph, backend)
    qparams = synthetic_parameters(graph, plan)
    emit(graph, plan, qparams, backend, folder, "model")
    made = Written(graph, plan, qparams, backend, folder)
    assert made.problems() == []
    return made


CASES = (
    ("sophgo_bm1688", "residual"),
    ("sophgo_bm1688:precision=W4INT8", "residual"),
    ("sophgo_bm1688:asymmetric=yes", "depthwise"),
    ("sophgo_bm1684x:strategy=Transformer", "transformer"),
    ("sophgo_bm1684x:mode=weight_only,strategy=Transformer", "transformer"),
    ("sophgo_bm1690:precision=F8E4M3", "concat"),
    ("sophgo_cv18x", "detector"),
)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    target, graph = request.param
    return written(target, GOLDEN[graph]().model, tmp_path)


def test_each_number_line_and_name_of_the_plain_tables_counts(tables: Written) -> None:
    plain = [entry for entry in tables.tables() if entry[0].suffix != ".json"]
    assert len(plain) == 2
    for path, content in plain:
        lines = path.read_text().splitlines()
        for number, changed, what in line_changes(lines):
            path.write_text("\n".join([*lines[:number], *changed, *lines[number + 1 :]]) + "\n")
            assert not content(), f"{path.name}, line {number} '{lines[number]}': {what}"


def line_changes(lines: list[str]) -> Iterator[tuple[int, list[str], str]]:
    """Line number, what stands there instead, and what was done."""
    for number, line in enumerate(lines):
        if line.startswith("#"):
            continue
        name, *fields = line.split()
        yield number, [], "left out"
        yield number, [" ".join([f"other{name}", *fields])], "another name"
        yield number, [line, " ".join([f"other{name}", *fields])], "a further row"
        for place_of_field, field in enumerate(fields[:4]):
            fields_after = [*fields[:place_of_field], other_field(field), *fields[place_of_field + 1 :]]
            yield number, [" ".join([name, *fields_after])], f"field {place_of_field} changed"


def other_field(field: str) -> str:
    if not field.lstrip("-")[0].isdigit():
        return "INT4" if field != "INT4" else "INT8"
    return f"{float(field) * 1.001 or 0.001:.9f}" if "." in field else str(int(field) + 1)


def test_each_number_entry_and_name_of_the_json_files_counts(tables: Written) -> None:
    documents = [entry for entry in tables.tables() if entry[0].suffix == ".json"]
    assert len(documents) == 2
    for path, content in documents:
        changes = list(json_changes(json.loads(path.read_text())))
        assert len(changes) > 10
        for changed, what in changes:
            path.write_text(json.dumps(changed))
            assert not content(), f"{path.name}: {what}"


def json_changes(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Documents with one entry left out, renamed, added, or with one value changed."""
    entries = document.get("sophgo_tpu", document)

    def holding(changed: dict[str, Any]) -> dict[str, Any]:
        return {**document, "sophgo_tpu": changed} if "sophgo_tpu" in document else changed

    for key, entry in entries.items():
        others = {other: value for other, value in entries.items() if other != key}
        yield holding(others), f"'{key}' left out"
        yield holding({**others, f"other{key}": entry}), f"'{key}' renamed"
        yield holding({**entries, f"other{key}": entry}), f"'{key}' twice"
        values = entry.items() if isinstance(entry, dict) else [(None, entry)]
        for what, value in values:
            other = other_value(value)
            yield holding({**entries, key: other if what is None else {**entry, what: other}}), f"'{what}' of '{key}'"


def other_value(value: Any) -> Any:
    if isinstance(value, list):
        return [*value[:-1], other_value(value[-1])]
    if isinstance(value, str):
        return f"other{value}"
    return value * 1.001 or 1


def test_every_sophgo_table_has_a_read_back() -> None:
    for target in ("sophgo_bm1688", "sophgo_bm1690:precision=F8E4M3,strategy=Transformer", "sophgo_academic"):
        for emitter in get_backend(target).emitters:
            assert EMITTERS.get(emitter).read_back or emitter in ("qdq", "sophgo_deploy")


# ---- weights that several layers read --------------------------------------------------------------------------------


def held(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(len(name)).normal(0, 0.3, shape).astype(np.float32), name)


def model_of(nodes: list[onnx.NodeProto], inputs: list[Any], *weights: TensorProto) -> onnx.ModelProto:
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])]
    graph = helper.make_graph(nodes, "shared", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_layers_with_one_weight() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    return model_of(nodes, [image], held("w", 4, 4, 3, 3))


def two_branches_with_one_weight() -> onnx.ModelProto:
    def branch(name: str, kind: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Conv", ["x", "w"], [f"{name}_c"], pads=[1, 1, 1, 1]),
            helper.make_node(kind, [f"{name}_c"], [f"{name}_out"]),
        ]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)]
        )

    node = helper.make_node(
        "If", ["flag"], ["y"], then_branch=branch("then", "Relu"), else_branch=branch("else", "Sigmoid")
    )
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    return model_of([node], [flag, image], held("w", 4, 4, 3, 3))


ALL = ("bm1688", "bm1684x", "bm1690", "sg2260", "cv18x", "mars3", "academic")


@pytest.mark.parametrize("target", ALL)
def test_a_weight_that_two_layers_read_has_a_row_for_each_and_the_id_of_the_first(target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(0, 1, (1, 4, 8, 8)).astype(np.float32)} for _ in range(3)]
    result = onnxq.quantize(
        two_layers_with_one_weight(), backend=f"sophgo_{target}", data=samples, out=tmp_path, config={"effort": 0}
    )
    assert json.loads((tmp_path / "model_weight_name_to_unique_id.json").read_text()) == {"w": "r1_Relu_weight"}
    table = next(tmp_path.glob("model*_cali_table_*")).read_text()
    ending = "_fp8" if target == "academic" else ""
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    assert rows[f"r1_Relu_weight{ending}"] == rows[f"y_Conv_weight{ending}"]
    assert [float(n) for n in rows[f"y_Conv_weight{ending}"][1:5]] == pytest.approx(result.qparams["w"].scale.tolist())


@pytest.mark.parametrize("target", ALL)
def test_a_weight_that_both_branches_of_an_if_read_has_a_row_for_each(target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    samples = [
        {"x": rng.normal(0, 1, (1, 4, 8, 8)).astype(np.float32), "flag": np.array(bool(i % 2))} for i in range(4)
    ]
    onnxq.quantize(
        two_branches_with_one_weight(), backend=f"sophgo_{target}", data=samples, out=tmp_path, config={"effort": 0}
    )
    ids = json.loads((tmp_path / "model_weight_name_to_unique_id.json").read_text())
    assert list(ids) == ["w"]
    assert ids["w"] in ("then_out_Relu_weight", "else_c_Conv_weight")
    clip = json.loads((tmp_path / "model_clip_ranges.json").read_text())["sophgo_tpu"]
    assert clip["then_out_Relu_weight"]["step"] == clip["else_c_Conv_weight"]["step"]


def test_the_id_of_a_shared_weight_may_be_either_row_and_no_other(tmp_path: Path) -> None:
    made = written("sophgo_bm1688", two_layers_with_one_weight(), tmp_path)
    path = tmp_path / "model_weight_name_to_unique_id.json"
    for row, accepted in (("r1_Relu_weight", True), ("y_Conv_weight", True), ("z_Conv_weight", False)):
        path.write_text(json.dumps({"w": row}))
        assert (made.problems() == []) == accepted, row
