"""PPL's range files: what a strict reader finds in them is what the parameters say, and a change is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.formats.ppl import clip_ranges_json, clip_ranges_text, engine_quantization
from tests.formats.written import Written, write_golden

GRAPHS = ("residual", "depthwise", "concat", "transformer")


def ends(written: Written, tensor: str) -> tuple[np.ndarray, np.ndarray]:
    held = written.qparams[tensor]
    scale, zero = held.scale.astype(np.float64), held.zero_point.astype(np.float64)
    return scale * (held.spec.qmin - zero), scale * (held.spec.qmax - zero)


def activations(written: Written) -> set[str]:
    return {placement.tensor for placement in written.plan if not written.graph.is_constant(placement.tensor)}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_text_has_the_larger_end_of_every_activation(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "pplcuda", tmp_path / "out")
    found = clip_ranges_text(tmp_path / "out" / "model_clip_ranges.json")
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
    assert set(found.tensors) == set(written.plan.placements)
    for tensor, (scales, zero_points) in found.tensors.items():
        low, high = ends(written, tensor)
        np.testing.assert_allclose(scales, 2 * np.maximum(-low, high).reshape(-1) / 255, rtol=1e-12)
        assert not np.any(zero_points)
    assert set(found.nodes) == {*written.plan.quantized, *written.plan.fused}
    assert set(found.nodes.values()) == {"INT8"}


def test_symmetric_scales_are_those_of_the_model_up_to_the_step_that_int8_has_more(tmp_path: Path) -> None:
    written = write_golden("residual", "pplcuda:scheme=symmetric", tmp_path / "out")
    found = engine_quantization(tmp_path / "out" / "model_quant.json")
    for tensor, (scales, _) in found.tensors.items():
        np.testing.assert_allclose(scales, written.qparams[tensor].scale.reshape(-1) * 256 / 255, rtol=1e-6)
    assert not any("symmetric ranges only" in note for note in written.notes)


def test_a_note_says_how_many_ranges_ppl_nn_reads_wider(tmp_path: Path) -> None:
    written = write_golden("residual", "pplcuda", tmp_path / "out")
    assert any("takes symmetric ranges only" in note for note in written.notes)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_json_of_16_bit_data_has_every_tensor(name: str, tmp_path: Path) -> None:
    written = write_golden(name, "pplw8a16", tmp_path / "out")
    found = clip_ranges_json(tmp_path / "out" / "model_clip_ranges.json")
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
