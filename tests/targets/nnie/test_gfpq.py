"""Clip values for the NNIE mapper, read again by a strict parser, and the read-back that guards them."""

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.numerics import qparams_from_range
from onnxq.targets.nnie.gfpq import gfpq_table
from onnxq.types import QuantSpec
from tests.formats.gfpq import gfpq_values
from tests.formats.written import write_golden, write_model
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net

FILE = "model_gfpq_param_dict.json"


@pytest.fixture(scope="module")
def residual(tmp_path_factory):
    return write_golden("residual", "nnie", tmp_path_factory.mktemp("residual"))


def read(written):
    return gfpq_values(written.folder / FILE, written.folder / "model_deploy_model.onnx")


def test_every_layer_has_the_clip_values_of_what_it_reads(residual):
    table = read(residual)
    assert residual.problems() == []
    for layer, values in table.items():
        node = residual.graph.node(layer)
        inputs = [t.name for t in node.inputs if t.name in residual.plan and not residual.graph.is_constant(t)]
        assert values == pytest.approx([float(residual.qparams[name].scale) for name in inputs], rel=1e-6)
    listed = {residual.graph.node(layer).op for layer in table}
    assert listed == {"Conv", "Add", "Gemm"}
    adds = [values for layer, values in table.items() if residual.graph.node(layer).op == "Add"]
    assert all(len(values) == 2 for values in adds)


def test_clip_values_are_those_of_the_data_to_half_a_step(residual):
    largest = max(np.abs(sample["image"]).max() for sample in GOLDEN["residual"]().samples)
    first = next(node.name for node in residual.graph.nodes("Conv"))
    assert abs(16 * np.log2(read(residual)[first][0] / largest)) <= 0.5


def test_an_upsample_has_its_permutation_too(tmp_path):
    written = write_golden("detector", "nnie", tmp_path)
    (resize,) = written.graph.nodes("Resize")
    table = read(written)
    assert table[f"{resize.name}_permute_0"] == table[resize.name]
    assert len(table[resize.name]) == 1


def test_a_resize_that_stays_one_is_not_counted_among_the_upsamples(tmp_path):
    net = Net("enlarged")
    x = net.conv(net.input("x", [1, 3, 4, 4]), 3, 4)
    scales = net.floats([1.0, 1.0, 2.0, 2.0])
    x = net.node("Resize", x, "", scales, coordinate_transformation_mode="align_corners", name="other")
    doubled = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.output(net.node("Resize", x, "", scales, **doubled, name="doubled"))
    written = write_model(net.model(), [{"x": net.image(1, 3, 4, 4)} for _ in range(4)], "nnie", tmp_path)
    assert set(read(written)) == {written.graph.nodes("Conv")[0].name, "other", "doubled", "doubled_permute_0"}
    assert any("Resize 'other' stays what it is" in note for note in written.notes)


def test_grouped_convolutions_are_left_out_and_said(tmp_path):
    written = write_golden("depthwise", "nnie", tmp_path)
    grouped = [node.name for node in written.graph.nodes("Conv") if node.attrs.get("group", 1) != 1]
    assert len(grouped) == 2
    assert not set(grouped) & set(read(written))
    assert any(grouped[0] in note and "and 1 more" in note for note in written.notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text, layer: text.replace(layer, layer + "x", 1), "missing"),
        (lambda text, layer: text.replace(layer, layer + "x", 1), "is not quantized, and stands in the table"),
        (lambda text, layer: text.replace(f'"{layer}": [\n', f'"{layer}": [\n 1.0,\n', 1), "its inputs have"),
    ],
)
def test_a_changed_file_is_noticed(residual, change, said):
    path = residual.folder / FILE
    before = path.read_text(encoding="utf-8")
    layer = residual.graph.nodes("Conv")[0].name
    path.write_text(change(before, layer), encoding="utf-8")
    try:
        assert path.read_text(encoding="utf-8") != before
        assert any(said in problem and layer in problem for problem in residual.problems())
    finally:
        path.write_text(before, encoding="utf-8")


def test_values_that_the_mapper_has_no_entry_for_are_noticed(residual):
    layer, (value, *_) = next(iter(read(residual).items()))
    for factor, said in ((1.01, "16 * log2 of a clip value is an integer"), (2 ** (1 / 16), "its inputs have")):
        residual.change(FILE, repr(value), repr(value * factor))
        try:
            assert any(layer in problem and said in problem for problem in residual.problems())
        finally:
            residual.change(FILE, repr(value * factor), repr(value))


def test_other_formats_are_refused_by_name(residual):
    table = type(residual.qparams)(dict(residual.qparams.entries))
    table.put("image", qparams_from_range(-1, 1, QuantSpec("int8")), "test")
    with pytest.raises(UnsupportedError, match=r"'image' is int8.*nnie8"):
        gfpq_table(residual.graph, residual.plan, table)
