"""PPL's range files: what a strict reader finds in them is what the parameters say, and a change is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.ppl import clip_ranges_json, clip_ranges_text, engine_quantization
from tests.formats.written import Written, write_golden, write_model
from tests.zoo_graphs.net import Net

GRAPHS = ("residual", "depthwise", "concat", "transformer")


def ends(written: Written, tensor: str) -> tuple[np.ndarray, np.ndarray]:
    held = written.qparams[tensor]
    scale, zero = held.scale.astype(np.float64), held.zero_point.astype(np.float64)
    return scale * (held.spec.qmin - zero), scale * (held.spec.qmax - zero)


def activations(written: Written) -> set[str]:
    return {placement.tensor for placement in written.plan if not written.graph.is_constant(placement.tensor)}


def without_moved(written: Written, found: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of the plan; each further one is what moves into one of them, with the same entry."""
    planned = {tensor: entry for tensor, entry in found.items() if tensor in written.plan}
    for tensor in found.keys() - planned.keys():
        (use,) = written.graph.consumers(tensor)
        assert use.node.op in ("Transpose", "Reshape", "Flatten")
        assert found[use.node.outputs[0].name] == found[tensor]
    return planned


@pytest.mark.parametrize("name", GRAPHS)
def test_the_text_has_the_larger_end_of_every_activation(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "pplcuda", tmp_path / "out")
    found = without_moved(written, clip_ranges_text(tmp_path / "out" / "model_clip_ranges.json"))
    assert set(found) == activations(written)
    for tensor, value in found.items():
        low, high = ends(written, tensor)
        assert value == pytest.approx(max(-low, high), rel=1e-12)


@pytest.mark.parametrize("backend", ["pplcuda", "pplcuda:scheme=symmetric"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_engine_of_ppl_nn_gets_a_symmetric_range_around_every_tensor(
    name: str, backend: str, tmp_path: Path
) -> None:
    written = write_golden(name, backend, tmp_path / "out")
    found = engine_quantization(tmp_path / "out" / "model_quant.json")
    tensors = without_moved(written, found.tensors)
    assert set(tensors) == set(written.plan.placements)
    for tensor, (scales, zero_points) in tensors.items():
        low, high = ends(written, tensor)
        if backend == "pplcuda":
            np.testing.assert_allclose(scales, 2 * np.maximum(-low, high).reshape(-1) / 255, rtol=1e-12)
        else:
            np.testing.assert_allclose(scales, written.qparams[tensor].scale.reshape(-1), rtol=1e-12)
        assert not np.any(zero_points)
    assert set(found.nodes) == {*written.plan.quantized, *written.plan.fused}
    assert set(found.nodes.values()) == {"INT8"}


def test_symmetric_ranges_need_no_note(tmp_path: Path) -> None:
    written = write_golden("residual", "pplcuda:scheme=symmetric", tmp_path / "out")
    assert not any("symmetric ranges only" in note for note in written.notes)


def test_a_note_says_how_many_ranges_ppl_nn_reads_wider(tmp_path: Path) -> None:
    written = write_golden("residual", "pplcuda", tmp_path / "out")
    assert any("takes symmetric ranges only" in note for note in written.notes)


def test_a_line_break_in_a_name_leaves_the_text_file_out(tmp_path: Path) -> None:
    net = Net("names")
    net.output(net.conv(net.input("a\nb", [1, 3, 8, 8]), 3, 4))
    samples = [{"a\nb": net.image(1, 3, 8, 8)} for _ in range(4)]
    written = write_model(net.model(), samples, "pplcuda", tmp_path / "out")
    assert not (tmp_path / "out" / "model_clip_ranges.json").exists()
    assert (tmp_path / "out" / "model_quant.json").exists()
    assert written.problems() == []
    assert any("model_clip_ranges.json is not written" in text for text in written.warnings)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_json_of_16_bit_data_has_every_tensor(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "pplw8a16", tmp_path / "out")
    found = without_moved(written, clip_ranges_json(tmp_path / "out" / "model_clip_ranges.json"))
    assert set(found) == set(written.plan.placements)
    for tensor, entry in found.items():
        low, high = ends(written, tensor)
        assert np.float32(entry["step"]) == written.qparams[tensor].scale
        assert entry["zero_point"] == written.qparams[tensor].zero_point
        assert entry["min"] == pytest.approx(low, rel=1e-12)
        assert entry["max"] == pytest.approx(high, rel=1e-12)
        assert entry["bit"] == (
            8 if written.plan[tensor].role == "weight" and "weight of" in written.plan[tensor].why else 16
        )
    assert engine_quantization(tmp_path / "out" / "model_quant.json").nodes == {}


def test_the_read_back_finds_changed_missing_and_foreign_lines(tmp_path: Path) -> None:
    written = write_golden("residual", "pplcuda", tmp_path / "out")
    assert written.problems() == []
    file = "model_clip_ranges.json"
    first = (tmp_path / "out" / file).read_text().splitlines()[0]
    tensor, value = first.rsplit(": ", 1)
    written.change(file, first, f"{tensor}: {float(value) * 1.00001!r}")
    assert any(f"'{tensor}' has range" in line for line in written.problems())
    written.change(file, f"{tensor}: ", "someone: ")
    problems = written.problems()
    assert any(f"'{tensor}' is missing" in line for line in problems)
    assert any("'someone' is not quantized" in line for line in problems)


@pytest.mark.parametrize(
    ("backend", "file", "key"),
    [
        ("pplcuda", "model_quant.json", '"tensor_max": '),
        ("pplcuda", "model_quant.json", '"bit_width": '),
        ("pplw8a16", "model_clip_ranges.json", '"zero_point": '),
        ("pplw8a16", "model_clip_ranges.json", '"step": '),
    ],
)
def test_the_read_back_finds_a_changed_number(backend: str, file: str, key: str, tmp_path: Path) -> None:
    written = write_golden("concat", backend, tmp_path / "out")
    assert written.problems() == []
    written.change(file, key, f"{key}1")
    assert written.problems()


def test_an_input_that_is_only_turned_has_the_range_of_what_the_layer_reads(tmp_path: Path) -> None:
    net = Net("turned")
    x = net.node("Transpose", net.input("x", [1, 8, 8, 3]), perm=[0, 3, 1, 2], output="turned")
    net.output(net.conv(x, 3, 4))
    samples = [{"x": net.normal(1, 8, 8, 3)} for _ in range(4)]
    written = write_model(net.model(), samples, "pplcuda", tmp_path / "out")
    found = clip_ranges_text(tmp_path / "out" / "model_clip_ranges.json")
    assert found["x"] == found["turned"]
    assert written.problems() == []


@pytest.mark.parametrize("backend", ["pplcuda", "pplw8a16"])
def test_a_constant_operand_stands_beside_the_activations(backend: str, tmp_path: Path) -> None:
    net = Net("shifted")
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 4)
    net.output(net.relu(net.node("Mul", net.relu(x), net.floats(net.normal(1, 4, 8, 8), "factors"))))
    written = write_model(net.model(), [{"x": net.image(1, 3, 8, 8)} for _ in range(4)], backend, tmp_path / "out")
    path = tmp_path / "out" / "model_clip_ranges.json"
    found = clip_ranges_text(path) if backend == "pplcuda" else clip_ranges_json(path)
    low, high = ends(written, "factors")
    held = found["factors"] if backend == "pplcuda" else max(-found["factors"]["min"], found["factors"]["max"])
    assert held == pytest.approx(max(-low, high), rel=1e-12)
    weights = {placement.tensor for placement in written.plan if "weight of" in placement.why}
    assert bool(weights & found.keys()) == (backend == "pplw8a16")
