"""Free dimensions that share a name, and shapes that are declared wrongly: onnxruntime runs what is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.config import read_config
from onnxq.graph import Graph
from onnxq.graph.placeholders import is_placeholder
from onnxq.graph.settle import settle_declarations
from onnxq.runtime import input_infos, open_dataset
from onnxq.session.model_io import apply_io_settings, separate_sizes
from tests.graph.models import model, node, sample, value

FLOAT = TensorProto.FLOAT


def detector(name: str, *, inner: bool = False) -> onnx.ModelProto:
    """Boxes of three strides, as face detectors return them: each output has a number of rows of its own.

    Every free dimension is called `name`; with `inner` those of inner tensors are declared so as well.
    """
    rng = np.random.default_rng(0)
    nodes, constants, outputs, infos = [], {}, [], []
    before = "image"
    for level, (inputs, channels) in enumerate(itertools.pairwise((3, 8, 8, 8))):
        constants[f"w{level}"] = rng.normal(0, 0.3, (channels, inputs, 3, 3)).astype(np.float32)
        constants[f"h{level}"] = rng.normal(0, 0.3, (4, channels, 1, 1)).astype(np.float32)
        constants[f"stride{level}"] = np.float32(8 << level)
        nodes += [
            node("Conv", f"{before} w{level}", f"c{level}", pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Relu", f"c{level}", f"r{level}"),
            node("Conv", f"r{level} h{level}", f"head{level}"),
            node("Transpose", f"head{level}", f"last{level}", perm=[0, 2, 3, 1]),
            node("Reshape", f"last{level} rows", f"rows{level}"),
            node("Mul", f"rows{level} stride{level}", f"boxes{level}"),
        ]
        outputs.append(value(f"boxes{level}", (1, name, 4)))
        infos += [value(f"rows{level}", (1, name, 4)), value(f"c{level}", (1, channels, name, name))]
        before = f"r{level}"
    constants["rows"] = np.int64([1, -1, 4])
    made = model(nodes, [value("image", (1, 3, name, name))], outputs, constants)
    made.graph.value_info.extend(infos if inner else [])
    return made


def images(width: int = 48) -> list[dict[str, np.ndarray]]:
    return [{"image": np.random.default_rng(i).normal(size=(1, 3, 32, width)).astype(np.float32)} for i in range(2)]


def dimensions(info: onnx.ValueInfoProto) -> list[int | str | None]:
    sizes = info.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in sizes]


@pytest.mark.parametrize("backend", ["onnxruntime", "qnn", "vitis", "sophgo_bm1684x", "rknn"])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize(("name", "width"), [("?", 48), ("N", 32), ("N", 48)])
def test_a_detector_whose_free_dimensions_have_one_name_runs_when_quantized(
    backend: str, name: str, width: int, inner: bool, tmp_path: Path
) -> None:
    config = {"effort": 0, "minimum_sqnr_db": 0.0}
    given, data = detector(name, inner=inner), images(width)
    result = onnxq.quantize(given, backend=backend, data=data, config=config, out=tmp_path)
    session = ort.InferenceSession(result.model)
    other = {"image": np.zeros((1, 3, 64, 16), np.float32)}
    assert [made.shape for made in session.run(None, other)] == [(1, 256, 4), (1, 64, 4), (1, 16, 4)]
    assert ("is no name" in " ".join(result.report["notes"])) == (name == "?")


def test_a_name_stays_in_what_is_written_and_a_placeholder_does_not(tmp_path: Path) -> None:
    written = {}
    for name in ("N", "?"):
        result = onnxq.quantize(
            detector(name, inner=True),
            backend="qnn",
            data=images(width=32),
            config={"effort": 0},
            out=tmp_path / str(ord(name)),
        )
        written[name] = onnx.load(result.model).graph
    assert dimensions(written["N"].input[0]) == [1, 3, "N", "N"]
    assert dimensions(written["N"].output[0]) == [1, "N", 4]
    assert dimensions(written["?"].input[0]) == [1, 3, None, None]
    assert dimensions(written["?"].output[0]) == [1, None, 4]
    assert not [info.name for graph in written.values() for info in graph.value_info if "?" in dimensions(info)]
    # Of the inner tensors, only those have the name that follow from the input.
    assert not [info.name for info in written["N"].value_info if dimensions(info) == [1, "N", 4]]


def test_a_placeholder_that_is_there_once_stays() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")], [value("x", ("?", 3))], [value("y", ("rows", 3))]))
    assert graph.shape("x") == ("?", 3)
    assert graph.remarks == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("?", True), ("-1", True), ("None", True), ("unk__", True), ("*", True), ("unk__7", False), ("N", False)]
    + [("batch", False), ("p2o.DynamicDimension.0", False), ("s0", False)],
)
def test_what_is_no_name(name: str, expected: bool) -> None:
    assert is_placeholder(name) == expected


def test_sizes_that_inference_names_are_open_in_files_and_equal_in_memory() -> None:
    graph = Graph.from_model(
        model(
            [
                node("NonZero", "x", "places"),
                node("Cast", "places", "a", to=int(onnx.TensorProto.FLOAT)),
                node("Relu", "a", "b"),
                node("Add", "a b", "y"),
            ],
            [value("x", ("rows", 3))],
            [value("y", (2, "found"))],
        )
    )
    graph.infer_shapes()
    assert graph.shape("a") == graph.shape("b")
    assert str((graph.shape("a") or ())[1]).startswith("unk__")
    written = {info.name: dimensions(info) for info in graph.to_model().graph.value_info}
    assert written == {"places": [2, None], "a": [2, None], "b": [2, None]}


@pytest.mark.parametrize("name", ["?", "N"])
def test_an_input_whose_dimensions_share_a_name_gets_the_shape_that_it_is_given(name: str, tmp_path: Path) -> None:
    config = {"inputs": {"image": {"shape": [1, 3, 32, 48]}}, "effort": 0}
    result = onnxq.quantize(detector(name, inner=True), backend="qnn", data=images(), config=config, out=tmp_path)
    graph = onnx.load(result.model).graph
    assert dimensions(graph.input[0]) == [1, 3, 32, 48]
    assert [dimensions(output)[1] for output in graph.output] == [384, 96, 24]


def test_only_dimensions_that_share_its_name_by_inference_follow_an_input() -> None:
    """The declared name of an output that is another size does not become the size of the input."""
    graph = Graph.from_model(detector("N"))
    apply_io_settings(graph, read_config({"inputs": {"image": {"shape": [1, 3, 64, 64]}}}))
    assert graph.written_shape("boxes0") == (1, 1024, 4)


def test_a_name_that_two_inputs_share_and_inference_contradicts_is_dropped_at_the_output() -> None:
    """y is declared as "n" wide, and is "m" wide by its operators, where "n" is the height of x."""
    graph = Graph.from_model(
        model([node("Transpose", "x", "y", perm=[1, 0])], [value("x", ("n", "m"))], [value("y", ("n", "m"))])
    )
    settle_declarations(graph)
    assert graph.shape("y") == ("m", "n")
    assert graph.written_shape("y") == ("m", "n")


STALE: dict[str, list[int | str]] = {"rank 0": [], "lower rank": [7], "higher rank": [1, 2, 3, 4], "size": [2, 99]}


@pytest.mark.parametrize("shape", STALE.values(), ids=STALE.keys())
def test_an_output_that_is_declared_wrongly_is_put_right_with_a_note(shape: list[int | str], tmp_path: Path) -> None:
    """onnxruntime loads such files, with a warning."""
    weight = numpy_helper.from_array(sample(4, 5), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")],
        "g",
        [value("x", (2, 4))],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        [weight],
    )
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [{"x": sample(2, 4)}]
    result = onnxq.quantize(given, backend="onnxruntime", data=feeds, config={"effort": 0}, out=tmp_path)
    assert dimensions(onnx.load(result.model).graph.output[0]) == [2, 5]
    assert [note for note in result.report["notes"] if "output 'y' is declared as" in note and "[2, 5]" in note]


def test_a_declared_name_of_an_output_that_only_inference_could_deny_stays() -> None:
    nodes = [node("Relu", "x", "r"), node("NonZero", "r", "z"), node("Cast", "z", "y", to=FLOAT)]
    graph = Graph.from_model(model(nodes, [value("x", ("batch", 3))], [value("y", (2, "found"))]))
    settle_declarations(graph)
    assert graph.written_shape("y") == (2, "found")
    assert graph.remarks == []


def two_lengths() -> onnx.ModelProto:
    """Two sentences of one declared length "n", each reduced by itself."""
    nodes = []
    for name in ("a", "b"):
        nodes += [
            node("MatMul", f"{name} w", f"{name}1", name=f"layer_{name}"),
            node("Relu", f"{name}1", f"{name}2", name=f"relu_{name}"),
            node("Sigmoid", f"{name}2", f"{name}3", name=f"sigmoid_{name}"),
            node("ReduceMean", f"{name}3", f"{name}_mean", name=f"mean_{name}", axes=[0], keepdims=1),
        ]
    inputs = [value("a", ("n", 8)), value("b", ("n", 8))]
    return model(nodes, inputs, [value("a_mean", (1, 4)), value("b_mean", (1, 4))], {"w": sample(8, 4)})


class Feeds:
    """Feeds that can be read again, and are counted by reading alone."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.feeds = feeds

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return iter(self.feeds)


class Reader:
    """Looks like a CalibrationDataReader of onnxruntime."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.feeds = feeds
        self.rewind()

    def rewind(self) -> None:
        self.rest = iter(self.feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rest, None)


@pytest.mark.parametrize("container", [list, Feeds, Reader, iter, lambda feeds: lambda: iter(feeds)])
def test_sizes_are_told_apart_whatever_holds_the_samples(container: Callable[[Any], Any]) -> None:
    feeds = [{"a": sample(3, 8), "b": sample(7, 8)} for _ in range(2)]
    result = onnxq.quantize(two_lengths(), backend="onnxruntime", data=container(feeds), config={"effort": 0})
    assert [note for note in result.report["notes"] if "called 'n' have the sizes 3 and 7 in the first sample" in note]
    assert result.report["calibration_samples"] == 2


def test_no_sample_is_read_where_no_name_has_two_dimensions() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")], [value("x", ("n", 8))], [value("y", ("n", 8))]))
    waiting = iter([{"x": sample(3, 8)}])
    separate_sizes(graph, open_dataset(waiting, input_infos(graph)))
    assert len(list(waiting)) == 1


@pytest.mark.parametrize("backend", ["onnxruntime", "qnn"])
def test_a_name_that_has_two_sizes_in_the_first_sample_is_dropped(backend: str, tmp_path: Path) -> None:
    feeds = [{"a": sample(3, 8), "b": sample(7, 8)} for _ in range(2)]
    result = onnxq.quantize(two_lengths(), backend=backend, data=feeds, config={"effort": 0}, out=tmp_path / "unequal")
    assert [dimensions(info) for info in onnx.load(result.model).graph.input] == [[None, 8], [None, 8]]
    assert [note for note in result.report["notes"] if "called 'n' have the sizes 3 and 7 in the first sample" in note]
    feeds = [{"a": sample(3, 8), "b": sample(3, 8)} for _ in range(2)]
    result = onnxq.quantize(two_lengths(), backend=backend, data=feeds, config={"effort": 0}, out=tmp_path / "equal")
    assert [dimensions(info) for info in onnx.load(result.model).graph.input] == [["n", 8], ["n", 8]]
