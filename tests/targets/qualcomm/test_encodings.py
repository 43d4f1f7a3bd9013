"""Encodings files say in every version what the parameters say, and the read-back notices when they do not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxq.emit import EMITTERS, EmitRequest
from onnxq.errors import SpecError, UnsupportedError
from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.targets.qualcomm.encodings import encodings_document
from onnxq.targets.qualcomm.encodings_versions import (
    VERSIONS,
    as_said,
    encoding_of,
    parse_encodings,
    read_encodings,
    write_entry,
)
from onnxq.types import BiasOf, PerBlock, PerChannel, Placement, QParams, QParamsTable, QuantPlan, QuantSpec

RANDOM = np.random.default_rng(3)
FORMS = ("0.4.0", *VERSIONS)
ASYMMETRIC = QuantSpec("uint8", symmetric=False)


@cache
def one_layer() -> Graph:
    values = {"w": RANDOM.normal(size=(4, 3)).astype(np.float32), "b": RANDOM.normal(size=3).astype(np.float32)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = Graph.from_model(model)
    result.infer_shapes()
    return result


def parameters(x: QParams, w: QParams) -> tuple[QuantPlan, QParamsTable]:
    """A plan with an input, a weight and a bias; the result `y` has the parameters of the input."""
    bias = QuantSpec("int32")
    plan = QuantPlan(
        "qnn",
        {
            "x": Placement("x", x.spec, "activation", "test"),
            "w": Placement("w", w.spec, "weight", "test"),
            "b": Placement("b", bias, "bias", "test", derive=BiasOf("x", "w")),
            "y": Placement("y", x.spec, "activation", "test", tie="x"),
        },
    )
    table = QParamsTable()
    for name, held in (("x", x), ("w", w), ("b", QParams(bias, np.float32(0.001), np.int32(0))), ("y", x)):
        table.put(name, held, "test")
    return plan, table


X = QParams(ASYMMETRIC, np.float32(0.0260989), np.int32(149))
W = QParams(QuantSpec("int8", granularity=PerChannel(1)), np.float32([0.0183, 0.0154, 0.5]), np.zeros(3, np.int32))


def document(version: str, x: QParams = X, w: QParams = W) -> dict[str, Any]:
    return encodings_document(one_layer(), *parameters(x, w), version)


def test_version_1_0_0_counts_in_unsigned_numbers() -> None:
    assert document("1.0.0") == {
        "version": "1.0.0",
        "activation_encodings": [
            {
                "name": name,
                "dtype": "INT",
                "bw": 8,
                "is_sym": False,
                "enc_type": "PER_TENSOR",
                "scale": [float(np.float32(0.0260989))],
                "offset": [-149],
            }
            for name in ("x", "y")
        ],
        "param_encodings": [
            {
                "name": "w",
                "dtype": "INT",
                "bw": 8,
                "is_sym": True,
                "enc_type": "PER_CHANNEL",
                "scale": [float(value) for value in W.scale],
                "offset": [-128, -128, -128],
            }
        ],
    }


def test_version_2_0_0_has_the_zero_point_and_type_of_onnx() -> None:
    x, y, w = document("2.0.0")["encodings"]
    assert x == {"name": "x", "output_dtype": "uint8", "y_scale": float(X.scale), "y_zero_point": 149}
    assert y == {**x, "name": "y"}
    assert w == {"name": "w", "output_dtype": "int8", "y_scale": W.scale.astype(float).tolist(), "axis": 1}


@pytest.mark.parametrize("version", ["0.4.0", "0.6.1"])
def test_older_versions_have_one_entry_per_channel_with_its_real_range(version: str) -> None:
    written = document(version)
    assert [entry["offset"] for entry in written["param_encodings"]["w"]] == [-128] * 3
    assert {entry["is_symmetric"] for entry in written["param_encodings"]["w"]} == {"True"}
    (entry,) = written["activation_encodings"]["x"]
    scale = float(np.float32(0.0260989))
    assert entry["min"] == pytest.approx(scale * (0 - 149), rel=1e-12)
    assert entry["max"] == pytest.approx(scale * (255 - 149), rel=1e-12)
    assert (entry["bitwidth"], entry["is_symmetric"]) == (8, "False")
    assert ("version" in written, "quantizer_args" in written) == ((version != "0.4.0",) * 2)


def test_0_6_1_says_what_the_quantizers_have_in_common() -> None:
    assert document("0.6.1")["quantizer_args"] == {
        "activation_bitwidth": 8,
        "dtype": "int",
        "is_symmetric": True,
        "param_bitwidth": 8,
        "per_channel_quantization": True,
        "quant_scheme": "min_max",
    }


@pytest.mark.parametrize("version", FORMS)
def test_biases_are_not_listed(version: str) -> None:
    assert '"b"' not in json.dumps(document(version))


@pytest.mark.parametrize("version", FORMS)
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8", "int16", "uint16"])
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_reads_back_as_the_same_numbers(version: str, dtype: str, data: st.DataObject) -> None:
    spec = QuantSpec(dtype, symmetric=False, granularity=PerChannel(1))
    scales = data.draw(st.lists(st.floats(2.0**-20, 1024, width=32), min_size=3, max_size=3))
    zero_points = data.draw(st.lists(st.integers(spec.qmin, spec.qmax), min_size=3, max_size=3))
    held = QParams(spec, np.float32(scales), np.int32(zero_points))
    read = parse_encodings(json.loads(json.dumps(document(version, w=held))))["w"]
    codes = np.array([spec.qmin, spec.qmax, 0], np.float64)
    low = 0 if not read.signed else -(2 ** (read.bits - 1))  # the lowest code of the type that the file names
    for channel in range(3):
        real = held.scale[channel].astype(np.float64) * (codes - zero_points[channel])
        there = read.scale[channel] * (codes - spec.qmin + low - read.zero_point[channel])
        np.testing.assert_array_equal(there, real)


@pytest.mark.parametrize("version", VERSIONS)
def test_float16_is_an_entry_without_scale_or_none(version: str) -> None:
    half = QParams(QuantSpec("fp16"), np.float32(1), np.int32(0))
    entry = write_entry("x", encoding_of("x", half, constant=False), version)
    assert (
        entry
        == {
            "0.6.1": [{"bitwidth": 16, "dtype": "float"}],
            "1.0.0": {"name": "x", "dtype": "FLOAT", "bw": 16, "enc_type": "PER_TENSOR"},
            "2.0.0": None,
        }[version]
    )


def test_float8_needs_version_2_0_0() -> None:
    encoding = encoding_of("w", QParams(QuantSpec("fp8_e4m3"), np.float32(0.25), np.int32(0)), constant=True)
    assert write_entry("w", encoding, "2.0.0") == {"name": "w", "output_dtype": "float8e4m3fn", "y_scale": 0.25}
    with pytest.raises(UnsupportedError, match=r"'w'.*1\.0\.0 know float16 only.*encodings=2\.0\.0"):
        write_entry("w", encoding, "1.0.0")


def test_bfloat16_has_no_words_below_2_0_0() -> None:
    encoding = encoding_of("x", QParams(QuantSpec("bf16"), np.float32(1), np.int32(0)), constant=False)
    assert write_entry("x", encoding, "2.0.0") is None
    with pytest.raises(UnsupportedError, match=r"'x'.*use float16"):
        write_entry("x", encoding, "0.6.1")


def test_blocks_are_written_for_matrices_from_1_0_0_on() -> None:
    scale = np.float32([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])  # two blocks of a [4, 3] weight
    held = QParams(QuantSpec("int4", granularity=PerBlock(0, 2)), scale, np.zeros((2, 3), np.int32))
    encoding = encoding_of("w", held, constant=True)
    entry = write_entry("w", encoding, "1.0.0")
    assert isinstance(entry, dict)
    assert (entry["enc_type"], entry["block_size"], entry["offset"]) == ("PER_BLOCK", 2, [-8] * 6)
    np.testing.assert_array_equal(np.float32(entry["scale"]), scale.T.reshape(-1))  # one output after the other
    newest = write_entry("w", encoding, "2.0.0")
    assert isinstance(newest, dict)
    assert (newest["axis"], newest["block_size"], np.shape(newest["y_scale"])) == (0, 2, (2, 3))
    with pytest.raises(UnsupportedError, match="no scales per block"):
        write_entry("w", encoding, "0.6.1")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (QuantSpec("int7"), "integers of 4, 8, 16 bits"),
        (QuantSpec("int8", narrow_range=True), r"saturates at \[-127, 127\]"),
        (QuantSpec("uint8", quant_max=200), r"saturates at \[0, 200\]"),
    ],
)
def test_formats_that_no_version_can_say_are_refused(spec: QuantSpec, why: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'x'.*{why}"):
        encoding_of("x", QParams(spec, np.float32(0.1), np.int32(0)), constant=False)


def test_a_weight_with_narrow_range_is_written_because_its_values_are_clipped() -> None:
    held = QParams(QuantSpec("int8", narrow_range=True), np.float32(0.1), np.int32(0))
    assert encoding_of("w", held, constant=True).kind == "int8"


def test_a_signed_format_with_a_zero_point_is_unsigned_in_older_versions() -> None:
    held = QParams(QuantSpec("int8", symmetric=False), np.float32(0.1), np.int32(-28))
    said = as_said(encoding_of("x", held, constant=False), "1.0.0")
    assert (said.kind, said.offset, said.zero_point) == ("uint8", -100, 100)


EMITTED = {"encodings_0.6.1", "encodings_1.0.0", "encodings_2.0.0", "snpe_clip_ranges"}


@pytest.fixture(params=sorted(EMITTED))
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Graph, QuantPlan, QParamsTable]:
    graph, (plan, table) = one_layer(), parameters(X, W)
    emitted = EMITTERS.get(request.param)(EmitRequest(graph, plan, table, get_backend("snpe"), tmp_path, "model"))
    return request.param, emitted.files[0], graph, plan, table


def _findings(written: tuple[str, Path, Graph, QuantPlan, QParamsTable]) -> list[str]:
    emitter, path, graph, plan, table = written
    check = EMITTERS.get(emitter).read_back
    assert check is not None
    return list(check(EmitRequest(graph, plan, table, get_backend("snpe"), path.parent, "model")))


def test_the_file_reads_back_as_it_should(written: tuple[str, Path, Graph, QuantPlan, QParamsTable]) -> None:
    assert _findings(written) == []
    assert written[1].name in {
        "model_clip_ranges.json",
        *(f"model_encodings_{version}.json" for version in VERSIONS),
    }


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (("0.0260989", "0.0270989"), "'x' has scales"),
        (("149", "148"), "'x' has zero points"),
        (('"w"', '"v"'), "'w' is missing"),
        (('"w"', '"v"'), "'v' is not quantized, and stands in the table"),
    ],
)
def test_the_read_back_finds_a_wrong_file(
    written: tuple[str, Path, Graph, QuantPlan, QParamsTable], change: tuple[str, str], finding: str
) -> None:
    old, new = change
    if old == "0.0260989":
        old, new = repr(float(np.float32(0.0260989))), "0.0270989"
    text = written[1].read_text()
    assert old in text
    written[1].write_text(text.replace(old, new))
    assert any(finding in line for line in _findings(written))


def test_the_read_back_finds_a_wrong_axis_and_type(tmp_path: Path) -> None:
    graph, (plan, table) = one_layer(), parameters(X, W)
    (path,) = EMITTERS.get("encodings_2.0.0")(
        EmitRequest(graph, plan, table, get_backend("qnn"), tmp_path, "model")
    ).files
    path.write_text(path.read_text().replace('"axis": 1', '"axis": 0').replace('"int8"', '"int16"'))
    lines = _findings(("encodings_2.0.0", path, graph, plan, table))
    assert any("along axis 0, they are along 1" in line for line in lines)
    assert any("'w' is int16" in line for line in lines)


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"version": "9.9.9"}')
    with pytest.raises(SpecError, match=r"9\.9\.9.*known are 0\.6\.1, 1\.0\.0, 2\.0\.0"):
        read_encodings(path)


def test_a_section_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"version": "1.0.0", "activation_encodings": {}, "param_encodings": []}')
    with pytest.raises(SpecError, match="must each be a list"):
        read_encodings(path)
