"""Identities: equal for what gives equal statistics, different for everything else."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from onnxq.calibrate import identity as identities
from onnxq.calibrate.identity import SampleHash, model_identity
from onnxq.graph import Graph
from tests.graph.models import body, model, node, value
from tests.zoo import ZOO

WEIGHT = np.arange(600, dtype=np.float32).reshape(3, 200)


def small_model() -> onnx.ModelProto:
    """A product with a large weight, a constant in an attribute, and an If with an initializer in each branch."""
    branches = [
        body([node("Add", f"h {name}", f"{name}_sum")], [value(f"{name}_sum", (2, 200))], constants={name: WEIGHT[:1]})
        for name in ("then", "else")
    ]
    nodes = [
        node("MatMul", "x w", "h", name="product"),
        node("Constant", "", "yes", value=numpy_helper.from_array(np.array(True), "yes")),
        node("If", "yes", "picked", then_branch=branches[0], else_branch=branches[1]),
        node("LeakyRelu", "picked", "y", alpha=0.25),
    ]
    return model(nodes, outputs=[value("y", (2, 200))], constants={"w": WEIGHT})


def identity(proto: onnx.ModelProto) -> str:
    return model_identity(Graph.from_model(proto))


def test_the_identity_is_a_sha256_that_stays_the_same_between_processes() -> None:
    assert identity(small_model()) == "074648dcd71b6405d4f8e1e0e92dc963890ee5b85ec6efbd1e3710da24ed8b1e"


@pytest.mark.parametrize("name", sorted(ZOO)[::6])
def test_copies_saved_models_and_inferred_shapes_keep_the_identity(name: str, tmp_path: Path) -> None:
    graph = Graph.from_model(ZOO[name]().model)
    expected = model_identity(graph)
    again = graph.copy()
    again.infer_shapes()
    assert model_identity(again) == expected
    for external in (False, True):
        path = tmp_path / f"{external}.onnx"
        graph.save(path, external=external)
        assert model_identity(Graph.load(path)) == expected
        moved = tmp_path / f"elsewhere {external}"
        moved.mkdir()
        for file in tmp_path.glob(f"{external}.onnx*"):
            file.rename(moved / file.name)
        assert model_identity(Graph.load(moved / path.name)) == expected


def test_large_tensors_are_told_apart_by_their_blocks_and_older_identities_stay_comparable(
    tmp_path, monkeypatch
) -> None:
    before = identity(small_model())
    monkeypatch.setattr(identities, "LARGE", 64)
    graph = Graph.from_model(small_model())
    found = model_identity(graph)
    assert found.endswith(identities.IN_BLOCKS)
    assert model_identity(graph, like=before) == before
    assert model_identity(graph, like=found) == found
    graph.save(tmp_path / "m.onnx", external=True)
    assert model_identity(Graph.load(tmp_path / "m.onnx")) == found
    changed = graph.values("w").copy()
    changed.reshape(-1)[-1] += 1
    graph.set_values("w", changed)
    assert model_identity(graph) != found


def test_different_models_have_different_identities() -> None:
    identities = [identity(ZOO[name]().model) for name in sorted(ZOO)[::6]]
    assert len(set(identities)) == len(identities)


def renamed_node(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].name = "another name"


def described(proto: onnx.ModelProto) -> None:
    proto.doc_string = proto.graph.doc_string = proto.graph.node[0].doc_string = "words"
    proto.graph.input[0].doc_string = proto.graph.initializer[0].doc_string = "words"
    proto.graph.node[3].attribute[0].doc_string = "words"
    proto.producer_name, proto.graph.name = "someone", "something"
    proto.metadata_props.add(key="a", value="b")
    proto.graph.node[0].metadata_props.add(key="a", value="b")


def reordered(proto: onnx.ModelProto) -> None:
    nodes = [proto.graph.node[i] for i in (1, 0, 2, 3)]
    copies = [onnx.NodeProto.FromString(item.SerializeToString()) for item in nodes]
    copies[2].attribute.reverse()
    del proto.graph.node[:]
    proto.graph.node.extend(copies)


def encoded_otherwise(proto: onnx.ModelProto) -> None:
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.float_data.extend(WEIGHT.reshape(-1))
    constant = proto.graph.node[1].attribute[0].t
    constant.CopyFrom(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))


def imports_a_domain_that_no_node_uses(proto: onnx.ModelProto) -> None:
    proto.opset_import.add(domain="nobody", version=3)


@pytest.mark.parametrize(
    "change", [renamed_node, described, reordered, encoded_otherwise, imports_a_domain_that_no_node_uses]
)
def test_what_changes_no_value_keeps_the_identity(change: Callable[[onnx.ModelProto], None]) -> None:
    proto = small_model()
    change(proto)
    assert proto != small_model()
    assert identity(proto) == identity(small_model())


def one_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.where(WEIGHT == 599, 598, WEIGHT), "w"))


def weight_shape(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [200, 3]


def weight_in_a_branch(proto: onnx.ModelProto) -> None:
    branch = proto.graph.node[2].attribute[0].g
    branch.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT[1:2], branch.initializer[0].name))


def branches_exchanged(proto: onnx.ModelProto) -> None:
    first, second = proto.graph.node[2].attribute
    first.name, second.name = second.name, first.name


def constant_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].attribute[0].t.CopyFrom(numpy_helper.from_array(np.array(False), "yes"))


def number_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[3].attribute[0].f = 0.5


def operator(proto: onnx.ModelProto) -> None:
    proto.graph.node[3].op_type = "Elu"


def wiring(proto: onnx.ModelProto) -> None:
    proto.graph.node[3].input[0] = "h"


def tensor_name(proto: onnx.ModelProto) -> None:
    proto.graph.node[2].output[0] = proto.graph.node[3].input[0] = "chosen"


def output_list(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(value("h", (2, 200)))


def input_shape(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4


def operator_set(proto: onnx.ModelProto) -> None:
    proto.opset_import[0].version = 18


@pytest.mark.parametrize(
    "change",
    [
        one_weight,
        weight_shape,
        weight_in_a_branch,
        branches_exchanged,
        constant_attribute,
        number_attribute,
        operator,
        wiring,
        tensor_name,
        output_list,
        input_shape,
        operator_set,
    ],
)
def test_what_changes_values_changes_the_identity(change: Callable[[onnx.ModelProto], None]) -> None:
    proto = small_model()
    change(proto)
    assert identity(proto) != identity(small_model())


def test_weights_of_any_size_are_hashed_in_little_memory(tmp_path: Path) -> None:
    size = 1 << 25
    with (tmp_path / "w.bin").open("wb") as stream:
        stream.truncate(4 * size)
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    proto = model([node("Add", "x w", "y")], inputs=[value("x", (1,))], outputs=[value("y", (size,))])
    proto.graph.initializer.append(weight)
    onnx.save(proto, tmp_path / "m.onnx")
    graph = Graph.load(tmp_path / "m.onnx")
    tracemalloc.start()
    try:
        model_identity(graph)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 << 20  # two pieces of 16 MiB and change, of 128 MiB


# ---- samples ---------------------------------------------------------------------------------------------------------

FEEDS = st.lists(
    st.fixed_dictionaries(
        {
            "image": hnp.arrays(
                np.float32, hnp.array_shapes(max_dims=3, max_side=3), elements=st.floats(-1, 1, width=32)
            ),
            "length": hnp.arrays(np.int64, ()),
        }
    ),
    max_size=5,
)


def hash_of(feeds: list[tuple[int, dict[str, np.ndarray]]]) -> str:
    hashed = SampleHash()
    for index, feed in feeds:
        hashed.add(index, feed)
    return hashed.hexdigest()


@given(FEEDS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_shards_in_any_order_have_the_hash_of_the_whole(feeds, random, of: int) -> None:
    numbered = list(enumerate(feeds))
    whole = hash_of(numbered)
    random.shuffle(numbered)
    merged = SampleHash()
    for number in range(of):
        merged.merge(SampleHash(hash_of([item for item in numbered if item[0] % of == number])))
    assert merged.hexdigest() == whole
    assert len(whole) == 64


@given(FEEDS.filter(len), st.data())
def test_another_sample_number_value_or_name_is_another_hash(feeds, data) -> None:
    numbered = list(enumerate(feeds))
    chosen = data.draw(st.integers(0, len(feeds) - 1))
    index, feed = numbered[chosen]
    changed = feed["image"].copy()
    changed.reshape(-1)[data.draw(st.integers(0, changed.size - 1))] += 4
    others = [
        (index + len(feeds), feed),
        (index, feed | {"image": changed}),
        (index, feed | {"image": feed["image"].astype(np.float64)}),
        (index, feed | {"image": feed["image"][None]}),
        (index, {"picture": feed["image"], "length": feed["length"]}),
        (index, {"image": feed["image"]}),
    ]
    hashes = {hash_of(numbered)} | {hash_of([*numbered[:chosen], item, *numbered[chosen + 1 :]]) for item in others}
    assert len(hashes) == 1 + len(others)


def test_the_way_an_array_lies_in_memory_does_not_matter() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    strided = np.repeat(array, 2, axis=2)[:, :, ::2]
    for other in (np.asfortranarray(array), array.astype(">f4"), strided):
        assert hash_of([(0, {"x": other})]) == hash_of([(0, {"x": array})])


def test_strings_count_by_their_text_and_their_borders() -> None:
    as_objects = np.array(["a", "bc"], object)
    assert hash_of([(0, {"x": as_objects})]) == hash_of([(0, {"x": np.array(["a", "bc"])})])
    assert hash_of([(0, {"x": as_objects})]) != hash_of([(0, {"x": np.array(["ab", "c"])})])


def test_exchanged_samples_are_other_data() -> None:
    first, second = ({"x": np.full(2, number)} for number in (1.0, 2.0))
    assert hash_of([(0, first), (1, second)]) != hash_of([(0, second), (1, first)])


def test_the_hash_is_the_sum_of_the_sample_hashes() -> None:
    def framed(*parts: bytes) -> bytes:
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    total = 0
    feeds = [(i, {"x": np.full((1, 2), i, np.float32)}) for i in range(3)]
    for index, feed in feeds:
        content = index.to_bytes(8, "little") + framed(b"x", b"float32", b"(1, 2)") + feed["x"].tobytes()
        total += int.from_bytes(hashlib.sha256(content).digest(), "little")
    assert hash_of(feeds) == f"{total % 2**256:064x}"
