"""The file for hybrid quantization: YAML that another parser reads, with ranges of all activations, borders twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.formats.written import write_golden

FILE = "model.quantization.cfg"


@pytest.mark.parametrize("name", ["residual", "depthwise", "concat", "detector"])
def test_the_file_says_what_the_parameters_say(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "rknn", tmp_path / "out")
    document = yaml.safe_load((tmp_path / "out" / FILE).read_text())
    assert list(document) == ["custom_quantize_layers", "quantize_parameters"]
    found = document["quantize_parameters"]
    borders = {*written.graph.input_names, *written.graph.output_names}
    for placement in written.plan:
        if written.graph.is_constant(placement.tensor):
            continue
        held = written.qparams[placement.tensor]
        name_of_integers = f"{placement.tensor}_int8" if placement.tensor in borders else placement.tensor
        entry = found[name_of_integers]
        assert (entry["qtype"], entry["qmethod"], entry["dtype"]) == ("asym", "layer", "int8")
        assert np.float32(entry["scale"]) == held.scale
        assert entry["zero_point"] == [held.zero_point]
        assert entry["min"] == [pytest.approx(float(held.scale) * (-128 - int(held.zero_point)))]
        assert entry["max"] == [pytest.approx(float(held.scale) * (127 - int(held.zero_point)))]
        if placement.tensor in borders:
            assert found[placement.tensor]["dtype"] == "float32"
            assert found[placement.tensor]["scale"] == []
    assert written.problems() == []


def test_what_stands_in_front_of_a_fused_relu_has_the_range_behind_it(tmp_path: Path) -> None:
    written = write_golden("residual", "rknn", tmp_path / "out")
    found = yaml.safe_load((tmp_path / "out" / FILE).read_text())["quantize_parameters"]
    fused = [written.graph.node(name) for name in written.plan.fused]
    assert fused
    for node in fused:
        assert found[node.inputs[0].name]["max"] == found[node.outputs[0].name]["max"]


@pytest.mark.parametrize("key", ["min", "scale", "zero_point", "dtype"])
def test_the_read_back_finds_a_change(key: str, tmp_path: Path) -> None:
    written = write_golden("residual", "rknn", tmp_path / "out")
    path = tmp_path / "out" / FILE
    document = yaml.safe_load(path.read_text())
    entry = next(e for e in document["quantize_parameters"].values() if e["scale"])
    entry[key] = "uint8" if key == "dtype" else [entry[key][0] + 1]
    path.write_text(yaml.safe_dump(document))
    assert any(key in line for line in written.problems())


def test_equal_ranges_stand_there_in_full_without_anchors(tmp_path: Path) -> None:
    write_golden("residual", "rknn", tmp_path / "out")
    text = (tmp_path / "out" / FILE).read_text()
    assert "&" not in text
    assert "*" not in text
