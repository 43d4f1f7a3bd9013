"""--shape: what an input measures, in the model that is written and in random samples."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from onnxq.cli.shapes import read_shapes
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from tests.graph.models import model, node, sample, value


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A convolution for images of any size."""
    nodes = [node("Conv", "image w", "c", name="layer", pads=[1, 1, 1, 1]), node("Relu", "c", "y", name="relu")]
    path = tmp_path / "network.onnx"
    sizes = ("batch", 3, "height", "width")
    onnx.save(
        model(nodes, [value("image", sizes)], [value("y", ("batch", 4, "h", "w"))], {"w": sample(4, 3, 3, 3)}), path
    )
    return path


def shape_of(path: Path) -> list[int | str]:
    sizes = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    return [dim.dim_param or dim.dim_value for dim in sizes]


@pytest.mark.parametrize("text", ["image=1,3,32,48", "image=1x3x32x48", "1,3,32,48", "image = 1, 3, 32, 48"])
def test_a_shape_is_written_into_the_model(text: str, run, network: Path, tmp_path: Path) -> None:
    result = run("quantize", network, "-b", "tensorrt", "--random", 2, "--shape", text, "-o", tmp_path / "o", "--json")
    assert result.exit_code == 0, result.stderr
    assert shape_of(tmp_path / "o/model.onnx") == [1, 3, 32, 48]
    assert run("compare", network, tmp_path / "o", "--random", 1).exit_code == 0
    assert "free sizes" not in " ".join(json.loads(result.stdout)["notes"])


def test_a_size_that_is_a_name_stays_free(run, network: Path, tmp_path: Path) -> None:
    result = run(
        "quantize", network, "-b", "tensorrt", "--random", 2, "--shape", "image=n,3,32,32", "-o", tmp_path / "o"
    )
    assert result.exit_code == 0, result.stderr
    assert shape_of(tmp_path / "o/model.onnx") == ["n", 3, 32, 32]


@pytest.mark.parametrize("mark", ["?", "_", "unk", "None"])
def test_a_placeholder_leaves_a_dimension_as_the_model_has_it(mark: str, run, network: Path, tmp_path: Path) -> None:
    shape = f"image=1,3,{mark},{mark}"
    result = run("quantize", network, "-b", "tensorrt", "--random", 2, "--shape", shape, "-o", tmp_path / "o")
    assert result.exit_code == 0, result.stderr
    assert shape_of(tmp_path / "o/model.onnx") == [1, 3, "height", "width"]
    compared = run("compare", network, tmp_path / "o", "--random", 1, "--shape", f"image={mark},{mark},16,{mark}")
    assert compared.exit_code == 0, compared.stderr


def test_sizes_that_nobody_gives_are_chosen_and_told(run, network: Path, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    result = run("quantize", network, "-b", "tensorrt", "--random", 2, "-o", folder, "--json")
    notes = " ".join(json.loads(result.stdout)["notes"])
    assert "input 'image' [batch, 3, height, width] has free sizes, taken as [1, 3, 224, 224]" in notes
    assert shape_of(folder / "model.onnx") == ["batch", 3, "height", "width"]
    compared = run("compare", network, folder, "--random", 1)
    assert "--shape 'image=1,3,224,224'" in " ".join(f"{compared.stdout} {compared.stderr}".split())
    simulated = run(
        "simulate", network, "--plan", folder, "--random", 1, "--shape", "1,3,16,16", "-o", tmp_path / "s.onnx"
    )
    assert simulated.exit_code == 0
    assert "free sizes" not in simulated.stdout + simulated.stderr


def test_parameters_are_found_for_a_fixed_shape(run, network: Path, tmp_path: Path) -> None:
    shape = ("--shape", "image=1,3,16,16")
    made = run("calibrate", network, "-b", "tensorrt", "--random", 2, *shape, "-o", tmp_path / "c")
    assert made.exit_code == 0, made.stderr
    written = run("emit", network, "--plan", tmp_path / "c", "--qparams", tmp_path / "c", "-o", tmp_path / "e")
    assert written.exit_code == 0, written.stderr
    assert shape_of(tmp_path / "e/model.onnx") == [1, 3, 16, 16]
    costs = run("sensitivity", network, "-b", "tensorrt", "--random", 2, *shape, "--json")
    assert costs.exit_code == 0, costs.stderr


def test_wrong_shapes_are_named(run, network: Path, tmp_path: Path) -> None:
    for text, said in {
        "picture=1,3,8,8": "the model has no input 'picture' (--shape)",
        "image=1,4,8,8": "input 'image' has size 3 in dimension 1, not 4",
        "image=1,3,0,8": "dimension 2 must be at least 1, got 0",
        "image=1,,8,8": "a size is missing",
    }.items():
        result = run("quantize", network, "-b", "tensorrt", "--random", 2, "--shape", text, "-o", tmp_path / "o")
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())
    result = run("compare", network, network, "--shape", "1,3,8,8")
    assert result.exit_code == 2
    assert "it needs --random N" in " ".join(result.stderr.split())


def test_a_name_may_be_left_out_for_one_input_only() -> None:
    one = Graph.from_model(model([node("Relu", "x", "y")]))
    assert read_shapes(["2,3"], one) == {"x": (2, 3)}
    assert read_shapes(["a=b=2,3"], one) == {"a=b": (2, 3)}
    two = Graph.from_model(model([node("Add", "a b", "y")], [value("a"), value("b")]))
    with pytest.raises(ConfigError, match=r"say of which input, NAME=2,3\. The model has: a, b"):
        read_shapes(["2,3"], two)
    with pytest.raises(ConfigError, match="'a' has two shapes"):
        read_shapes(["a=2,3", "a=2,4"], two)
