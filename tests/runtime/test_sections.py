"""Models of many nodes run section by section: the same bits as in one session, divided only where that is so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.runtime.sections import MANY_NODES, SECTION_NODES, SectionedSession, divide, sectioned_session
from onnxq.runtime.session import ModelInMemory, make_session, run_session
from onnxq.runtime.tap import Tap
from onnxq.verify.roots import load_session
from tools.bench.models import residual_chain

NODES = MANY_NODES + 2 * SECTION_NODES


@pytest.fixture(scope="module")
def chain() -> onnx.ModelProto:
    """Convolutions, batch norms and sums, with the types of what is between them."""
    graph = Graph.from_model(residual_chain(NODES))
    graph.infer_shapes()
    return graph.to_model()


@pytest.fixture(scope="module")
def feed() -> dict[str, np.ndarray]:
    return {"input": np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype(np.float32)}


def added(count: int, *, first: str = "x", more: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    """A chain of sums with one stored value; `more` nodes make the output `y` of its end, `end`."""
    names = [first, *(f"t{number}" for number in range(count - 1)), "end"]
    nodes = [helper.make_node("Add", [one, "w"], [two]) for one, two in pairwise(names)]
    nodes += more or [helper.make_node("Identity", ["end"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(np.full((), 0.1, np.float32), "w")]
    inner = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names[1:]]
    graph = helper.make_graph(nodes, "sums", inputs, outputs, stored, value_info=inner)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_sections_make_the_bits_of_one_session(chain: onnx.ModelProto, feed: dict[str, np.ndarray]) -> None:
    sections = sectioned_session(chain, optimize="none", threads=1)
    whole = make_session(chain.SerializeToString(), optimize="none", threads=1)

    assert isinstance(sections, SectionedSession)
    (one,), (other,) = sections.run(None, feed), whole.run(None, feed)
    assert one.tobytes() == other.tobytes()


def test_with_optimizations_a_model_is_divided_at_its_outputs_alone(
    chain: onnx.ModelProto, feed: dict[str, np.ndarray]
) -> None:
    assert sectioned_session(chain, optimize="basic") is None
    assert sectioned_session(chain, optimize="all") is None

    tapped = onnx.ModelProto.FromString(chain.SerializeToString())
    outputs = [name for node in chain.graph.node for name in node.output if node.op_type != "Conv"]
    tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs[:-1])
    sections = sectioned_session(tapped, optimize="basic", threads=1)
    whole = make_session(tapped.SerializeToString(), optimize="basic", threads=1)

    assert isinstance(sections, SectionedSession)
    found = zip(sections.run(outputs, feed), whole.run(outputs, feed), strict=True)
    assert all(one.tobytes() == other.tobytes() for one, other in found)
    divided = divide(tapped, frozenset(outputs))
    assert divided is not None
    assert {name for section in divided for name in section.passes} <= set(outputs)


def test_tensors_of_a_large_graph_are_observed_in_sections(chain: onnx.ModelProto, feed: dict[str, np.ndarray]) -> None:
    graph = Graph.from_model(onnx.ModelProto.FromString(chain.SerializeToString()))
    names = [node.outputs[0].name for node in graph.nodes("Relu")]
    pinned = [node.outputs[0].name for node in graph.nodes()]

    tap = Tap(graph, names, pinned=pinned, threads=1)

    assert isinstance(tap.session, SectionedSession)
    assert list(tap.run(feed)) == names


def test_a_body_reads_what_an_earlier_section_has_made() -> None:
    inner = helper.make_graph([helper.make_node("Mul", ["t3", "end"], ["inside"])], "body", [], [])
    inner.output.append(onnx.ValueInfoProto(name="inside"))
    more = [
        helper.make_node("ReduceSum", ["end"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "w"], ["large"]),
        helper.make_node("If", ["large"], ["y"], then_branch=inner, else_branch=inner),
    ]
    model = added(NODES, more=more)
    x = np.asfortranarray(np.arange(4, dtype=np.float32).reshape(2, 2))  # not as onnxruntime wants it in memory

    sections = sectioned_session(model, optimize="none", threads=1)

    assert sections is not None
    (expected,) = make_session(model.SerializeToString(), optimize="none").run(None, {"x": x})
    np.testing.assert_array_equal(sections.run(["y"], {"x": x})[0], expected)


def test_samples_run_at_the_same_time_in_the_same_sections() -> None:
    sections = sectioned_session(added(NODES), optimize="none", threads=1)
    assert sections is not None
    feeds = [{"x": np.full((2, 2), number, np.float32)} for number in range(8)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda one: sections.run(None, one)[0], feeds))

    for feed, found in zip(feeds, together, strict=True):
        np.testing.assert_array_equal(found, sections.run(None, feed)[0])


def test_wrong_feeds_are_refused_as_one_session_refuses_them() -> None:
    sections = sectioned_session(added(NODES), optimize="none", threads=1)
    assert sections is not None

    with pytest.raises(DataError, match="sample 3"):
        run_session(sections, None, {}, "sample 3")
    with pytest.raises(DataError, match="sample 4"):
        run_session(sections, None, {"x": np.zeros((3, 2), np.float32)}, "sample 4")


def test_what_cannot_be_divided_is_left_to_one_session() -> None:
    def changed(kind: str) -> onnx.ModelProto:
        model = added(NODES)
        if kind == "small":
            return added(MANY_NODES // 2)
        if kind == "out of order":
            last = model.graph.node.pop()
            model.graph.node.insert(0, last)
        elif kind == "untyped":
            del model.graph.value_info[:]
        elif kind == "a stored value that callers may replace":
            model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, []))
        elif kind == "a large value that all read":
            model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((2048, 2048), np.float32), "w"))
        elif kind == "strings":
            model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
        return model

    assert divide(changed("as it is")) is not None
    kinds = ["small", "out of order", "untyped", "a stored value that callers may replace"]
    for kind in [*kinds, "a large value that all read", "strings"]:
        assert divide(changed(kind)) is None, kind


def test_weights_apart_are_given_to_the_sections_that_read_them() -> None:
    model = added(NODES)
    held = model.graph.initializer[0]
    values = numpy_helper.to_array(held)
    held.ClearField("raw_data")
    held.data_location = TensorProto.EXTERNAL
    held.external_data.add(key="location", value="w")
    apart = ModelInMemory(model.SerializeToString(), {"w": values})
    x = np.ones((2, 2), np.float32)

    sections = sectioned_session(apart, optimize="none", threads=1)

    assert isinstance(sections, SectionedSession)
    (expected,) = make_session(added(NODES).SerializeToString(), optimize="none").run(None, {"x": x})
    np.testing.assert_array_equal(sections.run(None, {"x": x})[0], expected)
    assert divide(model) is None


def test_a_written_file_of_many_nodes_is_loaded_in_sections(tmp_path: Path, chain: onnx.ModelProto) -> None:
    onnx.save(chain, str(tmp_path / "model.onnx"))

    assert isinstance(load_session(tmp_path / "model.onnx", optimize="none", threads=1), SectionedSession)
    assert not isinstance(load_session(tmp_path / "model.onnx", threads=1), SectionedSession)
