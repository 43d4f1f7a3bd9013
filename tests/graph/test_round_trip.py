"""What is in the file is in the file again: declarations, metadata, attributes, names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper

from onnxq.graph import Graph
from tests.graph.models import FLOAT, body, model, node, round_trip, same_results, sample, value


def assert_unchanged(source: onnx.ModelProto) -> Graph:
    """Reading and writing, copying and writing, and inferring shapes must not change a model."""
    before = source.SerializeToString(deterministic=True)
    graph = Graph.from_model(source)
    assert graph.to_model() == source
    assert graph.copy().to_model() == source
    assert source.SerializeToString(deterministic=True) == before
    return graph


def test_everything_that_describes_the_model() -> None:
    source = model([node("Relu", "x", "y")])
    source.producer_name, source.producer_version = "trainer", "1.2"
    source.domain, source.model_version, source.doc_string = "org.example", 7, "what it is"
    source.metadata_props.add(key="labels", value='["cat", "dog"]')
    source.metadata_props.add(key="empty", value="")
    source.graph.name, source.graph.doc_string = "net", "the graph"
    source.graph.metadata_props.add(key="part", value="graph")
    graph = assert_unchanged(source)
    assert graph.metadata == {"labels": '["cat", "dog"]', "empty": ""}


def test_metadata_and_doc_strings_of_nodes_tensors_and_declarations() -> None:
    source = model([node("Add", "x c", "t"), node("Relu", "t", "y")], constants={"c": sample(2, 3)})
    source.graph.value_info.append(value("t"))
    for item in (source.graph.node[0], source.graph.initializer[0], *source.graph.input, *source.graph.output):
        item.doc_string = "about this"
        item.metadata_props.add(key="origin", value="layer 1")
    source.graph.value_info[0].doc_string = "between"
    source.graph.value_info[0].metadata_props.add(key="origin", value="layer 2")
    assert_unchanged(source)


def test_dynamic_axes_denotations_and_unknown_sizes() -> None:
    inputs = [value("x", ["batch", 3, None]), value("s", []), value("r", None)]
    inputs[0].type.denotation = "IMAGE"
    inputs[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    inputs[0].type.tensor_type.shape.dim[2].denotation = "DATA_FEATURE"
    nodes = [node("Relu", "x", "y"), node("Neg", "s", "t"), node("Abs", "r", "u")]
    source = model(nodes, inputs, [value("y", ["batch", 3, "width"]), value("t", []), value("u", None)])
    graph = assert_unchanged(source)
    assert graph.shape("x") == ("batch", 3, None)
    assert graph.shape("s") == ()
    assert graph.shape("r") is None


def test_the_interface_keeps_its_names_of_dimensions_after_shape_inference() -> None:
    source = model([node("Relu", "x", "y")], [value("x", ["batch", 3])], [value("y", ["rows", None])])
    graph = Graph.from_model(source)
    graph.infer_shapes()
    assert graph.to_model() == source


def test_sequences_optionals_and_maps() -> None:
    tensor = helper.make_tensor_type_proto(FLOAT, ["n"])
    inputs = [
        helper.make_value_info("seq", helper.make_sequence_type_proto(tensor)),
        helper.make_value_info("opt", helper.make_optional_type_proto(tensor)),
        helper.make_value_info("map", helper.make_map_type_proto(TensorProto.INT64, tensor)),
    ]
    nodes = [node("Identity", "seq", "mid"), node("SequenceLength", "mid", "y"), node("OptionalGetElement", "opt", "z")]
    source = model(nodes, inputs, [value("y", [], TensorProto.INT64), value("z", ["n"])])
    source.graph.value_info.append(helper.make_value_info("mid", helper.make_sequence_type_proto(tensor)))
    graph = assert_unchanged(source)
    assert graph.dtype("seq") is None
    graph.infer_shapes()
    assert graph.to_model() == source


def test_declarations_of_initializers_are_kept() -> None:
    source = model([node("Add", "x c", "y")], constants={"c": sample(2, 3)})
    source.graph.value_info.append(value("c"))
    assert_unchanged(source)


def test_quantization_annotations() -> None:
    source = model([node("Relu", "x", "t"), node("Neg", "t", "y")], constants={"scale": np.float32(1)})
    annotation = onnx.TensorAnnotation(tensor_name="t")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    source.graph.quantization_annotation.append(annotation)
    graph = assert_unchanged(source)
    graph.rename("t", "renamed")
    graph.rename("scale", "its_scale")
    (written,) = graph.to_model().graph.quantization_annotation
    assert written.tensor_name == "renamed"
    assert written.quant_parameter_tensor_names[0].value == "its_scale"


def old_style(ir_version: int) -> onnx.ModelProto:
    """Initializers listed among the inputs, in between the real ones."""
    inputs = [value("a"), value("x"), value("b"), value("z")]
    inputs[0].doc_string = "default is there"
    nodes = [node("Sum", "x a b z", "t", name="sum"), node("Add", "t b", "y", name="add")]
    return model(
        nodes, inputs, constants={"a": sample(2, 3), "b": sample(2, 3, seed=1)}, opset=8, ir_version=ir_version
    )


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_initializers_among_the_inputs_stay_there(ir_version: int) -> None:
    graph = assert_unchanged(old_style(ir_version))
    assert graph.input_names == ["x", "z"]
    assert graph.is_constant("a")


def test_an_initializer_that_leaves_takes_its_declaration_along() -> None:
    graph = Graph.from_model(old_style(8))
    graph.node("sum").inputs.pop(1)
    graph.remove_unused_constants()
    written = graph.to_model()
    assert [i.name for i in written.graph.input] == ["x", "b", "z"]
    onnx.checker.check_model(written)


def test_a_new_initializer_in_an_old_file_is_declared_as_that_version_demands() -> None:
    source = old_style(3)
    graph = Graph.from_model(source)
    graph.node("add").inputs[1] = graph.add_constant("fresh", sample(2, 3, seed=5))
    written = graph.to_model()
    onnx.checker.check_model(written)
    assert written.ir_version == 3
    assert [i.name for i in written.graph.input] == ["a", "x", "b", "z", "fresh"]


def test_a_file_too_old_for_bare_initializers_that_has_them_is_written_as_version_4() -> None:
    source = model([node("Add", "x c", "y")], constants={"c": sample(2, 3)}, opset=8, ir_version=3)
    written = round_trip(source)
    assert written.ir_version == 4
    onnx.checker.check_model(written)


def test_renamed_initializers_among_the_inputs_keep_their_place() -> None:
    graph = Graph.from_model(old_style(8))
    graph.rename("b", "bias")
    assert [i.name for i in graph.to_model().graph.input] == ["a", "x", "bias", "z"]


def test_an_input_that_is_an_output() -> None:
    source = model([node("Relu", "x", "y")], outputs=[value("y"), value("x")])
    source.graph.output[1].doc_string = "as it came"
    graph = assert_unchanged(source)
    assert graph.is_output("x")


def test_an_initializer_that_is_an_output() -> None:
    source = model([node("Relu", "x", "y")], outputs=[value("y"), value("c")], constants={"c": sample(2, 3)})
    assert_unchanged(source)


def test_an_output_listed_twice() -> None:
    assert_unchanged(model([node("Relu", "x", "y")], outputs=[value("y"), value("y")]))


def test_omitted_inputs_and_outputs() -> None:
    nodes = [
        node("Clip", "x _ top", "t"),
        node("Dropout", "t", "u _"),
        node("Resize", "u _ _ sizes", "v", mode="nearest"),
        node("LSTM", "v w r _ _ _ _ _", "_ y _", hidden_size=1),
    ]
    constants = {"top": np.float32(1), "sizes": np.int64([2, 1, 3]), "w": sample(1, 4, 3), "r": sample(1, 4, 1)}
    source = model(nodes, [value("x", [2, 1, 3])], [value("y", [1, 1, 1])], constants)
    graph = assert_unchanged(source)
    same_results(source, graph.to_model(), {"x": sample(2, 1, 3)})


def test_every_kind_of_attribute() -> None:
    custom = node(
        "Custom", "x", "y", domain="my.domain", f=0.1, i=-3, s="text", fs=[0.5, 1.0], ints=[1, 2], ss=["a", "b"]
    )
    tensor = numpy_helper.from_array(np.array([1, 2, 3], np.int8), "inside")
    sparse = onnx.SparseTensorProto(dims=[4], values=tensor, indices=numpy_helper.from_array(np.int64([0, 1, 3])))
    type_proto = TypeProto(tensor_type=TypeProto.Tensor(elem_type=FLOAT))
    kinds = AttributeProto
    inner = body([node("Relu", "x", "o")], [value("o")])
    second = body([node("Neg", "x", "p")], [value("p")])
    custom.attribute.extend(
        [
            kinds(name="t", type=kinds.TENSOR, t=tensor),
            kinds(name="ts", type=kinds.TENSORS, tensors=[tensor, tensor]),
            kinds(name="sparse", type=kinds.SPARSE_TENSOR, sparse_tensor=sparse),
            kinds(name="sparses", type=kinds.SPARSE_TENSORS, sparse_tensors=[sparse]),
            kinds(name="tp", type=kinds.TYPE_PROTO, tp=type_proto),
            kinds(name="tps", type=kinds.TYPE_PROTOS, type_protos=[type_proto, type_proto]),
            kinds(name="g", type=kinds.GRAPH, g=inner),
            kinds(name="gs", type=kinds.GRAPHS, graphs=[second]),
            kinds(name="raw", type=kinds.STRING, s=b"\xff\x00\xfe"),
            kinds(name="raws", type=kinds.STRINGS, strings=[b"\xff", b"ok"]),
            kinds(name="zero", type=kinds.INT, i=0, doc_string="why zero"),
            kinds(name="nan", type=kinds.FLOAT, f=float("inf")),
            *(
                kinds(name=f"no_{kind}", type=kinds.AttributeType.Value(kind))
                for kind in ("INTS", "FLOATS", "STRINGS", "TENSORS", "GRAPHS", "SPARSE_TENSORS", "TYPE_PROTOS")
            ),
        ]
    )
    graph = assert_unchanged(model([custom], domains={"my.domain": 3}))
    (held,) = graph.nodes("Custom")
    assert held.attrs["s"] == "text"
    assert held.attrs["raw"] == b"\xff\x00\xfe"
    assert held.attrs["no_INTS"] == []


def test_attributes_without_a_type_are_understood() -> None:
    source = model([node("LeakyRelu", "x", "y", alpha=0.5)])
    source.graph.node[0].attribute[0].ClearField("type")
    graph = Graph.from_model(source)
    assert graph.nodes()[0].attrs == {"alpha": 0.5}
    assert graph.to_model().graph.node[0].attribute[0].type == AttributeProto.FLOAT


def test_changed_attributes_are_written_by_their_value() -> None:
    graph = Graph.from_model(model([node("Cast", "x", "y", to=FLOAT)]))
    (cast,) = graph.nodes()
    cast.attrs.update(to=np.dtype(np.float16), flag=True, count=np.int64(3), ratio=np.float32(0.5), axes=(1, 2))
    cast.attrs.update(table=np.arange(3, dtype=np.int16), text="t", mixed=[1, 2.5], names=["a"])
    written = {a.name: a for a in graph.to_model().graph.node[0].attribute}
    assert written["to"].i == TensorProto.FLOAT16
    assert (written["flag"].i, written["count"].i, written["ratio"].f) == (1, 3, 0.5)
    assert list(written["axes"].ints) == [1, 2]
    assert numpy_helper.to_array(written["table"].t).tolist() == [0, 1, 2]
    assert (written["text"].s, list(written["names"].strings)) == (b"t", [b"a"])
    assert list(written["mixed"].floats) == [1, 2.5]


def test_an_attribute_that_cannot_be_written_is_named() -> None:
    from onnxq.errors import ModelError

    graph = Graph.from_model(model([node("Relu", "x", "y", name="act")]))
    graph.node("act").attrs["odd"] = object()
    with pytest.raises(ModelError, match="attribute 'odd' of node 'act'"):
        graph.to_model()


def test_unknown_operators_and_domains_in_any_order() -> None:
    nodes = [
        node("Wild", "x", "t", domain="my.domain", name="wild", overload="v2", power=9000),
        node("Scaler", "t", "u", domain="ai.onnx.ml", offset=[0.0], scale=[2.0]),
        node("Relu", "u", "y"),
    ]
    source = model(nodes, domains={"ai.onnx.ml": 3, "my.domain": 12})
    assert_unchanged(source)
    del source.opset_import[:]
    source.opset_import.extend([helper.make_opsetid("my.domain", 12), helper.make_opsetid("ai.onnx.ml", 3)])
    source.opset_import.append(helper.make_opsetid("", 17))
    graph = assert_unchanged(source)
    assert graph.opset == 17


def test_the_default_domain_spelled_out() -> None:
    source = model([node("Relu", "x", "t", domain="ai.onnx"), node("Neg", "t", "y")])
    source.opset_import[0].domain = "ai.onnx"
    graph = Graph.from_model(source)
    assert graph.opset == 17
    assert [n.domain for n in graph.nodes()] == ["", ""]
    written = graph.to_model()
    onnx.checker.check_model(written)
    same_results(model([node("Relu", "x", "t"), node("Neg", "t", "y")]), written, {"x": sample(2, 3)})


def test_a_new_domain_is_imported() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "t"), node("Neg", "t", "y")]))
    graph.insert_after("t", "Gelu", domain="com.microsoft")
    assert {e.domain: e.version for e in graph.to_model().opset_import} == {"": 17, "com.microsoft": 1}


def test_files_are_written_like_protobufs(tmp_path: Path) -> None:
    source = model([node("Add", "x c", "y")], constants={"c": sample(2, 3)})
    path = tmp_path / "m.onnx"
    Graph.from_model(source).save(path)
    assert onnx.load(path) == source
    assert Graph.load(path).path == path
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_training_information_and_device_configurations_are_kept() -> None:
    source = model([node("Relu", "x", "y", name="act")])
    source.training_info.add().algorithm.name = "sgd"
    source.configuration.add(name="two", num_devices=2)
    source.graph.node[0].device_configurations.add(configuration_id="two")
    assert_unchanged(source)
