"""The steps of placement, each by itself."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxq.graph import Graph
from onnxq.place.activations import request_quantizers
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.propagation import propagate
from onnxq.place.requests import Requests
from onnxq.place.select import Selection, select_nodes
from onnxq.place.sharing import observed_members, tie_joined, unify_formats
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.session.prepare import prepare
from onnxq.targets import get_backend
from onnxq.types import Edge, QuantSpec
from onnxq.types.overrides import Override, OverrideSet
from tests.place.small_network import network


def graph_of(target: str) -> Graph:
    return prepare(network(), target).graph


def selected(graph: Graph, target: str, overrides: OverrideSet | None = None) -> tuple[OverrideResolver, Selection]:
    resolver = OverrideResolver(graph, overrides or OverrideSet())
    return resolver, select_nodes(graph, get_backend(target), resolver)


def test_selection_tells_quantized_from_fused_and_float_nodes() -> None:
    skip = Override.of_nodes("fc", {"skip": True}, {("skip",): "a test"})
    _, selection = selected(graph_of("tensorrt"), "tensorrt", OverrideSet((skip,)))
    assert {"conv1", "conv2"} <= selection.selected.keys()
    assert selection.fused == {"relu1": "conv1"}
    assert (selection.reasons["fc"].code, selection.skipped) == ("excluded", {"fc"})
    assert not selection.forced


def test_forcing_selects_what_the_rules_leave_float() -> None:
    force = Override.of_nodes("gate", {"force": True}, {("force",): "a test"})
    _, selection = selected(graph_of("tensorrt"), "tensorrt", OverrideSet((force,)))
    assert selection.forced == {"gate": "a test"}
    assert "gate" in selection.selected


def chain(text: str) -> Graph:
    head = '<ir_version: 9, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y)'
    return Graph.from_model(onnx.parser.parse_model(f"{head} {{ {text} }}"))


def test_two_who_ask_for_a_tensor_get_the_wider_format_for_both() -> None:
    graph = chain("[a] m = Neg(x) [b] n = Abs(m) [c] y = Add(m, n)")
    requests = Requests(graph, get_backend("tensorrt"), ())
    requests.ask(graph.tensor("m"), QuantSpec("int4"), "activation", "for b", Edge("b", 0))
    requests.ask(graph.tensor("m"), QuantSpec("int8"), "activation", "for c", Edge("c", 0))
    assert requests["m"].spec == QuantSpec("int8")
    assert requests.edges("m") == (Edge("b", 0), Edge("c", 0))


@pytest.mark.parametrize("decides", [True, False])
def test_a_use_that_stays_float_is_left_out_unless_the_model_returns_the_tensor(decides: bool) -> None:
    graph = chain("[a] m = Neg(x) [b] n = Abs(m) [c] y = Add(m, n) [d] z = Sqrt(y)")
    requests = Requests(graph, get_backend("tensorrt"), [Edge("d", 0)] if decides else ())
    requests.leave_float("m", Edge("b", 0))
    requests.leave_float("y", Edge("d", 0))
    for name in ("m", "y"):
        requests.ask(graph.tensor(name), QuantSpec("int8"), "activation", "for all", None)
    assert requests.edges("m") == (Edge("c", 0),)
    assert not requests.is_read_quantized(graph.node("b"), 0)
    assert requests.edges("y") == (() if decides else None)
    assert requests.overruled("y") == (set() if decides else {Edge("d", 0)})
    requests.drop_unread()
    assert ("y" in requests) == (not decides)


def test_moved_values_keep_the_scale_of_what_they_were() -> None:
    graph, backend = graph_of("qnn"), get_backend("qnn")
    resolver, selection = selected(graph, "qnn")
    overrides = TensorOverrides(graph, resolver, selection)
    requests = request_quantizers(graph, backend, resolver, selection, overrides)
    propagated = propagate(graph, backend, selection, overrides, requests)
    assert propagated.nodes == {"flat": "moves the quantized values of 'p'"}
    assert requests.ties.leader("f") == "p"
    assert observed_members(graph, ["p", "f"], propagated.nodes) == ("p",)


def test_tied_tensors_have_one_format() -> None:
    graph = chain("[a] m = Relu(x) [b] n = Neg(x) [c] k = Concat<axis=0>(m, n) [d] y = Abs(k)")
    backend = get_backend("tensorrt").replace(tied=("Concat",))
    requests = Requests(graph, backend, ())
    for name, dtype in (("m", "uint8"), ("n", "int8"), ("k", "int8")):
        requests.ask(graph.tensor(name), QuantSpec(dtype), "activation", "for all", None)
    tie_joined(graph, backend, graph.nodes(), requests)
    unify_formats(graph, backend, (), requests)
    assert {requests.ties.leader(name) for name in "mnk"} == {requests.ties.leader("m")}
    assert {requests[name].spec for name in "mnk"} == {QuantSpec("int8")}
