"""Sizes of random samples: what was asked for, else what the float model runs on, and a note says which."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.runtime.random_data import random_dataset, random_shapes
from onnxq.runtime.session import input_infos
from tests.graph.models import model, node, sample, value


def convolution(*sizes: int | str | None) -> Graph:
    nodes = [node("Conv", "x w", "y", strides=[32, 32])]
    return Graph.from_model(
        model(
            nodes, [value("x", sizes)], [value("y", None)], {"w": sample(2, sizes[1] if sizes[1] == 3 else 1, 32, 32)}
        )
    )


def test_sides_of_an_image_are_large_enough_for_a_network() -> None:
    shapes, notes = random_shapes(convolution("batch", 3, "height", "width"))
    assert shapes == {"x": (1, 3, 224, 224)}
    assert len(notes) == 1
    assert "input 'x' [batch, 3, height, width] has free sizes, taken as [1, 3, 224, 224]" in notes[0]
    assert "--shape 'x=1,3,224,224'" in notes[0]


def test_a_free_batch_is_1_without_a_word() -> None:
    assert random_shapes(convolution("batch", 3, 64, 64)) == ({"x": (1, 3, 64, 64)}, [])


@pytest.mark.parametrize(
    ("fixed", "free", "found"),
    [((2, 1000), ("n", "l"), (1, 8)), ((1, 2), ("n", 500, "l"), (1, 500, 8)), ((1, 2), ("n", "m", 2000), (1, 1, 2000))],
)
def test_large_fixed_sizes_are_no_reason_to_try_nothing(
    fixed: tuple[int, ...], free: tuple[int | str, ...], found: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.runtime.random_data.LARGEST", 1000)
    nodes = [node("Relu", "a", "y"), node("Relu", "b", "z")]
    graph = Graph.from_model(
        model(nodes, [value("a", fixed), value("b", free)], [value("y", None), value("z", None)], {})
    )
    assert random_shapes(graph)[0] == {"a": fixed, "b": found}


def test_placeholders_are_no_name_that_dimensions_share() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")], [value("x", ("a", "b", "c"))], [value("y", None)], {}))
    assert random_shapes(graph, {"x": ("?", "?", 5)})[0] == {"x": (1, 8, 5)}


def test_sizes_that_the_model_does_not_run_on_are_passed_over() -> None:
    """Reflected padding of 100 takes more than 100 values."""
    graph = Graph.from_model(
        model(
            [node("Pad", "x pads", "y", mode="reflect")],
            [value("x", (1, "time"))],
            [value("y", None)],
            {"pads": np.int64([0, 100, 0, 100])},
        )
    )
    shapes, notes = random_shapes(graph)
    assert shapes == {"x": (1, 224)}
    assert len(notes) == 1


def test_a_batch_that_is_not_the_first_dimension_is_found() -> None:
    """`state` has the batch in the middle, without a name: Concat wants the same as in `x`."""
    nodes = [node("Unsqueeze", "x axes", "one"), node("Concat", "one state", "y", axis=0)]
    inputs = [value("x", (None, 4)), value("state", (2, None, 4))]
    graph = Graph.from_model(model(nodes, inputs, [value("y", None)], {"axes": np.int64([0])}))
    assert random_shapes(graph)[0] == {"x": (1, 4), "state": (2, 1, 4)}


def test_sizes_that_are_asked_for_hold_wherever_their_name_is() -> None:
    nodes = [node("Add", "a b", "y")]
    graph = Graph.from_model(model(nodes, [value("a", (1, "n")), value("b", ("m", "n"))], [value("y", None)]))
    shapes, notes = random_shapes(graph, {"a": (1, 5)})
    assert shapes == {"a": (1, 5), "b": (1, 5)}
    assert notes == []
    assert random_shapes(graph, {"a": (1, "n"), "b": (3, 7)})[0] == {"a": (1, 7), "b": (3, 7)}


def test_a_model_that_runs_on_none_of_the_sizes_says_what_to_give() -> None:
    graph = Graph.from_model(
        model(
            [node("Reshape", "x shape", "y")],
            [value("x", (1, "values"))],
            [value("y", None)],
            {"shape": np.int64([17, 19])},
        )
    )
    with pytest.raises(DataError) as raised:
        random_shapes(graph)
    said = str(raised.value)
    assert "the model runs on no random sample with 8, 64, 224, 512, 640 as free sizes of 'x' [1, values]" in said
    assert "--shape 'x=1,8'" in said
    assert "-d" in said
    shapes, _ = random_shapes(graph, {"x": (1, 17 * 19)})
    (feed,) = random_dataset(input_infos(graph), 1, shapes=shapes)
    assert feed["x"].shape == (1, 323)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"xx": (1, 3, 64, 64)}, "no input 'xx'. Did you mean 'x'"),
        ({"x": (1, 3, 64)}, r"is \[batch, 3, height, width\] and cannot be \[1, 3, 64\]"),
        ({"x": (1, 4, 64, 64)}, r"cannot be \[1, 4, 64, 64\]"),
        ({"x": (1, 3, 0, 64)}, r"cannot be \[1, 3, 0, 64\]"),
    ],
)
def test_sizes_that_an_input_cannot_have_are_refused(wanted: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        random_shapes(convolution("batch", 3, "height", "width"), wanted)


def test_integers_are_tokens_also_in_four_dimensions() -> None:
    graph = Graph.from_model(
        model(
            [node("Cast", "x", "y", to=TensorProto.FLOAT)],
            [value("x", (1, 3, "n", "n"), TensorProto.INT64)],
            [value("y", None)],
        )
    )
    assert random_shapes(graph)[0] == {"x": (1, 3, 8, 8)}
