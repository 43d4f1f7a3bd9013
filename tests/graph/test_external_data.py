"""External data: mapped when needed, found whatever the current directory, checked, and kept inside its folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from onnxq.errors import ModelError
from onnxq.graph import Graph
from tests.graph.models import FLOAT, body, external_tensor, model, node, run, same_results, sample, value, write

COUNT = 600  # floats: enough bytes that saving with external data does not inline them


def weights(seed: int) -> np.ndarray:
    return sample(COUNT, seed=seed)


def two_weight_model(first: TensorProto, second: TensorProto) -> onnx.ModelProto:
    source = model([node("Mul", "x a", "t"), node("Add", "t b", "y")], [value("x", (COUNT,))], [value("y", (COUNT,))])
    source.graph.initializer.extend([first, second])
    return source


def one_file_model(folder: Path) -> Path:
    """Two weights in one data file, the second at an odd place."""
    (folder / "w.bin").write_bytes(weights(1).tobytes() + b"\0" * 12 + weights(2).tobytes())
    first = external_tensor("a", FLOAT, [COUNT], location="w.bin", offset=0, length=4 * COUNT)
    second = external_tensor("b", FLOAT, [COUNT], location="w.bin", offset=4 * COUNT + 12)
    return write(folder / "m.onnx", two_weight_model(first, second))


def test_one_file_with_an_offset_and_without_a_length(tmp_path: Path) -> None:
    graph = Graph.load(one_file_model(tmp_path))
    np.testing.assert_array_equal(graph.values("a"), weights(1))
    np.testing.assert_array_equal(graph.values("b"), weights(2))


def test_many_files_in_sub_folders(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "a.bin").write_bytes(weights(1).tobytes())
    (tmp_path / "deep" / "er" / "b.bin").write_bytes(weights(2).tobytes())
    first = external_tensor("a", FLOAT, [COUNT], location="deep/a.bin")
    second = external_tensor("b", FLOAT, [COUNT], location="./deep/er/../er/b.bin")
    path = write(tmp_path / "m.onnx", two_weight_model(first, second))
    graph = Graph.load(path)
    np.testing.assert_array_equal(graph.values("a"), weights(1))
    np.testing.assert_array_equal(graph.values("b"), weights(2))


def test_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    import resource

    count = 200
    source = model([node("Relu", "x", "y")])
    for i in range(count):
        (tmp_path / f"{i}.bin").write_bytes(np.float32([i, i + 1]).tobytes())
        source.graph.initializer.append(external_tensor(f"w{i}", FLOAT, [2], location=f"{i}.bin"))
    path = write(tmp_path / "m.onnx", source)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
    try:
        graph = Graph.load(path)
        arrays = [graph.values(f"w{i}") for i in range(20)]
        assert [float(graph.values(f"w{i}")[1]) for i in range(count)] == [i + 1 for i in range(count)]
        assert arrays[7].tolist() == [7, 8]
        graph.save(tmp_path / "out.onnx")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_loading_reads_no_weights(tmp_path: Path) -> None:
    path = one_file_model(tmp_path)
    graph = Graph.load(path)
    (tmp_path / "w.bin").write_bytes((tmp_path / "w.bin").read_bytes()[::-1])  # rewritten in place: the new bytes show
    assert not np.array_equal(graph.values("a"), weights(1))


@pytest.mark.parametrize("relative", [True, False])
def test_the_current_directory_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    one_file_model(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    graph = Graph.load("models/m.onnx" if relative else tmp_path / "models" / "m.onnx")
    monkeypatch.chdir(tmp_path / "elsewhere")
    np.testing.assert_array_equal(graph.values("b"), weights(2))
    graph.save(tmp_path / "elsewhere" / "out.onnx")
    np.testing.assert_array_equal(Graph.load("out.onnx").values("a"), weights(1))


def test_bodies_have_external_data_too(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(weights(1).tobytes())
    inner = body([node("Add", "x w", "o")], [value("o", (COUNT,))])
    inner.initializer.append(external_tensor("w", FLOAT, [COUNT], location="w.bin"))
    other = body([node("Neg", "x", "p")], [value("p", (COUNT,))])
    inputs = [value("x", (COUNT,)), value("k", (), TensorProto.BOOL)]
    source = model([node("If", "k", "y", then_branch=inner, else_branch=other)], inputs, [value("y", (COUNT,))])
    path = write(tmp_path / "m.onnx", source)
    graph = Graph.load(path)
    np.testing.assert_array_equal(graph.values("w"), weights(1))
    written = graph.save(tmp_path / "out.onnx")
    assert [p.name for p in written] == ["out.onnx", "out.onnx.data"]
    (tmp_path / "w.bin").unlink()
    x = sample(COUNT)
    (result,) = run(tmp_path / "out.onnx", {"x": x, "k": np.array(True)})
    np.testing.assert_array_equal(result, x + weights(1))


@pytest.mark.parametrize("count", [COUNT, 20_000])
def test_tensors_in_attributes_may_be_external(tmp_path: Path, count: int) -> None:
    array = sample(count)
    (tmp_path / "w.bin").write_bytes(array.tobytes())
    constant = node("Constant", "", "c", value=external_tensor("", FLOAT, [count], location="w.bin"))
    source = model([constant, node("Add", "x c", "y")], [value("x", (count,))], [value("y", (count,))])
    path = write(tmp_path / "m.onnx", source)
    graph = Graph.load(path)
    np.testing.assert_array_equal(graph.values("c"), array)
    graph.save(tmp_path / "out.onnx")
    same_results(path, tmp_path / "out.onnx", {"x": sample(count, seed=3)})
    (tmp_path / "w.bin").unlink()
    np.testing.assert_array_equal(Graph.load(tmp_path / "out.onnx").values("c"), array)


def test_lists_of_tensors_in_attributes_may_be_external(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(weights(1).tobytes())
    custom = node("Custom", "x", "y", domain="my.domain")
    listed = onnx.AttributeProto(name="tables", type=onnx.AttributeProto.TENSORS)
    listed.tensors.append(external_tensor("t", FLOAT, [COUNT], location="w.bin"))
    custom.attribute.append(listed)
    path = write(tmp_path / "m.onnx", model([custom], domains={"my.domain": 1}))
    (attribute,) = Graph.load(path).to_model().graph.node[0].attribute
    np.testing.assert_array_equal(numpy_helper.to_array(attribute.tensors[0]), weights(1))


def test_shared_data_stays_shared(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(weights(1).tobytes())
    tensors = [external_tensor(name, FLOAT, [COUNT], location="w.bin", offset=0) for name in "ab"]
    path = write(tmp_path / "m.onnx", two_weight_model(*tensors))
    Graph.load(path).save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size == 4 * COUNT
    same_results(path, tmp_path / "out.onnx", {"x": sample(COUNT)})


def test_overlapping_data_of_different_length_is_not_confused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(weights(1).tobytes() + weights(2).tobytes())
    source = model([node("Relu", "x", "y")])
    source.graph.initializer.append(external_tensor("long", FLOAT, [2 * COUNT], location="w.bin"))
    source.graph.initializer.append(external_tensor("short", FLOAT, [COUNT], location="w.bin"))
    path = write(tmp_path / "m.onnx", source)
    Graph.load(path).save(tmp_path / "out.onnx")
    again = Graph.load(tmp_path / "out.onnx")
    np.testing.assert_array_equal(again.values("short"), weights(1))
    np.testing.assert_array_equal(again.values("long"), np.concatenate([weights(1), weights(2)]))


def test_saving_over_the_model_itself_keeps_everyone_s_data(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    source = Graph.load(one_file_model(tmp_path))
    source.save(path)  # now m.onnx with m.onnx.data
    graph, untouched = Graph.load(path), Graph.load(path)
    graph.add_constant("c", np.zeros(5000, np.float32))
    graph.gs.initializers["c"] = graph.gs.initializers.pop("c")
    first = next(iter(graph.gs.initializers.values()))
    first.values = first.values + 1  # another content at the same place of the same file
    graph.save(path)
    np.testing.assert_array_equal(graph.values("b"), weights(2))
    np.testing.assert_array_equal(untouched.values("a"), weights(1))
    again = Graph.load(path)
    np.testing.assert_array_equal(again.values("a"), weights(1) + 1)
    np.testing.assert_array_equal(again.values("b"), weights(2))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data", "w.bin"]


def test_a_model_that_came_with_external_data_leaves_with_it_and_can_be_made_whole(tmp_path: Path) -> None:
    path = one_file_model(tmp_path)
    graph = Graph.load(path)
    assert len(graph.save(tmp_path / "a.onnx")) == 2
    assert graph.save(tmp_path / "b.onnx", external=False) == [tmp_path / "b.onnx"]
    for name in ("a.onnx", "b.onnx"):
        same_results(path, tmp_path / name, {"x": sample(COUNT)})
        onnx.checker.check_model(tmp_path / name)
    assert not any(t.external_data for t in onnx.load(tmp_path / "b.onnx", load_external_data=False).graph.initializer)


def test_tensors_are_aligned_so_that_others_can_map_them(tmp_path: Path) -> None:
    graph = Graph.from_model(model([node("Relu", "x", "y")]))
    for size in (1025, 2050, 4099):
        graph.add_constant("c", np.full(size, size % 127, np.int8))
    graph.save(tmp_path / "m.onnx", external=True)
    tensors = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
    offsets = [int({e.key: e.value for e in t.external_data}["offset"]) for t in tensors]
    assert len(offsets) == 3
    assert all(offset % 64 == 0 for offset in offsets)


# ---- what is refused -------------------------------------------------------------------------------------------------


def refused(folder: Path, tensor: TensorProto, match: str) -> None:
    source = model([node("Relu", "x", "y")])
    source.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match=match):
        Graph.load(write(folder / "m.onnx", source))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    refused(tmp_path, external_tensor("w", FLOAT, [4], location="gone.bin"), r"gone\.bin of tensor 'w' does not exist")


def test_a_truncated_file_is_named_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 20)
    tensor = external_tensor("w", FLOAT, [4], location="w.bin", offset=8, length=16)
    refused(tmp_path, tensor, r"'w' lies at bytes 8\.\.24 of .*w\.bin, which has only 20")


def test_a_file_truncated_after_loading_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = one_file_model(tmp_path)
    graph = Graph.load(path)
    os.truncate(tmp_path / "w.bin", 100)
    with pytest.raises(ModelError, match="only 100"):
        graph.values("a")
    with pytest.raises(ModelError, match="only 100"):
        graph.save(tmp_path / "out.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "w.bin"]


@pytest.mark.parametrize(
    "entries", [{"length": 12}, {"length": 20}, {"offset": -4}, {"offset": "x"}, {"length": "1.5"}]
)
def test_wrong_offsets_and_lengths_are_refused(tmp_path: Path, entries: dict[str, object]) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 100)
    refused(tmp_path, external_tensor("w", FLOAT, [4], location="w.bin", **entries), "'w'")


def test_a_location_must_be_given(tmp_path: Path) -> None:
    refused(tmp_path, external_tensor("w", FLOAT, [4]), "'w' has external data without a location")


def test_strings_cannot_be_external(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"abcd")
    refused(tmp_path, external_tensor("w", TensorProto.STRING, [1], location="w.bin"), "'w' holds strings")


def test_the_data_file_must_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").mkdir()
    refused(tmp_path, external_tensor("w", FLOAT, [4], location="w.bin"), "w.bin")


def test_paths_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder-beside").mkdir()
    (tmp_path / "folder-beside" / "w.bin").write_bytes(b"\0" * 16)
    (tmp_path / "folder" / "link.bin").symlink_to(tmp_path / "secret.bin")
    (tmp_path / "folder" / "up").symlink_to(tmp_path, target_is_directory=True)
    locations = ["../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "up/secret.bin", "../folder-beside/w.bin"]
    for location in [*locations, "a/../../secret.bin", str(tmp_path / "folder" / "own.bin")]:
        (tmp_path / "folder" / "own.bin").write_bytes(b"\0" * 16)
        refused(tmp_path / "folder", external_tensor("w", FLOAT, [4], location=location), "outside the model's folder")


def test_links_inside_the_folder_are_fine(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(weights(1).tobytes())
    (tmp_path / "link.bin").symlink_to("data.bin")
    source = model([node("Relu", "x", "y")])
    source.graph.initializer.append(external_tensor("w", FLOAT, [COUNT], location="link.bin"))
    np.testing.assert_array_equal(Graph.load(write(tmp_path / "m.onnx", source)).values("w"), weights(1))


def test_the_folder_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    one_file_model(tmp_path / "real")
    (tmp_path / "alias").symlink_to("real", target_is_directory=True)
    np.testing.assert_array_equal(Graph.load(tmp_path / "alias" / "m.onnx").values("a"), weights(1))


@pytest.mark.parametrize("data_is_a_link_too", [True, False])
def test_the_model_may_be_a_link_as_download_caches_make_them(tmp_path: Path, data_is_a_link_too: bool) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    one_file_model(tmp_path / "blobs")
    (tmp_path / "snapshot" / "model.onnx").symlink_to("../blobs/m.onnx")
    if data_is_a_link_too:
        (tmp_path / "snapshot" / "w.bin").symlink_to("../blobs/w.bin")
    np.testing.assert_array_equal(Graph.load(tmp_path / "snapshot" / "model.onnx").values("a"), weights(1))


def test_a_model_in_memory_has_no_folder(tmp_path: Path) -> None:
    source = onnx.load(one_file_model(tmp_path), load_external_data=False)
    with pytest.raises(ModelError, match="load it by its path"):
        Graph.from_model(source)
    graph = Graph.from_model(source, path=tmp_path / "m.onnx")
    np.testing.assert_array_equal(graph.values("a"), weights(1))


def test_empty_tensors_may_be_external(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"")
    source = model([node("Relu", "x", "y")])
    source.graph.initializer.append(external_tensor("w", FLOAT, [0, 4], location="w.bin"))
    assert Graph.load(write(tmp_path / "m.onnx", source)).values("w").shape == (0, 4)
