"""Weights in blocks: what onnxruntime computes with the file is what numerics says the stored numbers mean."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.calibrate import calibrate
from onnxq.graph import Graph
from onnxq.numerics import dequantize, fake_quantize, qparams_from_range, quantize
from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.targets.weight_only.matmul_nbits import to_nbits
from onnxq.targets.weight_only.packed_blocks import PackedBlocks, pack_bits
from onnxq.torchnet import to_torch
from onnxq.torchnet.values import from_numpy, to_numpy
from onnxq.types import PerBlock, QuantSpec
from tests.targets.weight_only.block_layers import LAYERS, OUTPUTS, gather, gemm, matmul, operators, quantized, run
from tests.zoo_graphs.net import Net

TOLERANCE = 1e-5
"""Relative to the largest value: sums in float32 have another order in numpy."""

WHOLE, RAGGED = 128, 70
"""Numbers of inputs: whole blocks of every size, and blocks with a rest in every size."""


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE * float(np.abs(wanted).max()))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("form", ["dq", "nbits"])
@pytest.mark.parametrize(("bits", "symmetric"), list(product(("8", "4", "2"), ("yes", "no"))))
def test_every_block_size_of_every_layer_is_what_numerics_says(
    layer: str, form: str, bits: str, symmetric: str, tmp_path: Path
) -> None:
    exact = ",accuracy_level=1" if form == "nbits" else ""  # 8 bits would have their inputs rounded
    for block, inputs in product(("16", "32", "64", "128", "256"), (WHOLE, RAGGED)):
        case = LAYERS[layer](inputs)
        backend = f"weight_only:bits={bits},block={block},symmetric={symmetric},form={form}{exact}"
        model, meant = quantized(case.model, backend, tmp_path)
        assert list(meant) == ["w"]
        onnx.checker.check_model(model)
        assert_close(run(model, case.feed)[0], case.result(meant["w"]))


@pytest.mark.parametrize(("option", "level"), [("", 4), (",accuracy_level=0", 0), (",accuracy_level=1", 1)])
def test_8_bits_have_the_level_that_onnxruntime_has_a_kernel_for(option: str, level: int, tmp_path: Path) -> None:
    model, _ = quantized(LAYERS["MatMul"](WHOLE).model, f"weight_only:bits=8,form=nbits{option}", tmp_path)
    (node,) = model.graph.node
    assert {entry.name: entry.i for entry in node.attribute}["accuracy_level"] == level


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("block", ["16", "128", "channel"])
def test_float8_blocks_and_channels_are_what_numerics_says(layer: str, kind: str, block: str, tmp_path: Path) -> None:
    for inputs in (WHOLE, RAGGED):
        case = LAYERS[layer](inputs)
        model, meant = quantized(case.model, f"weight_only:format={kind},block={block}", tmp_path)
        assert_close(run(model, case.feed, optimized=True)[0], case.result(meant["w"]))


@pytest.mark.parametrize("layer", LAYERS)
def test_integers_with_a_scale_for_each_channel(layer: str, tmp_path: Path) -> None:
    case = LAYERS[layer](RAGGED)
    model, meant = quantized(case.model, "weight_only:bits=8,block=channel,symmetric=no", tmp_path)
    assert_close(run(model, case.feed)[0], case.result(meant["w"]))


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        ("MatMul", ["MatMulNBits"]),
        ("Gemm", ["MatMulNBits", "Add"]),
        ("Gemm transB", ["MatMulNBits", "Add"]),
        ("Gather", ["GatherBlockQuantized"]),
        ("Conv", ["DequantizeLinear", "Conv"]),
    ],
)
def test_packed_weights_are_read_by_the_operators_of_onnxruntime(layer: str, wanted: list[str], tmp_path: Path) -> None:
    case = LAYERS[layer](WHOLE)
    model, meant = quantized(case.model, "weight_only:form=nbits,symmetric=no", tmp_path)
    assert operators(model) == wanted
    assert {entry.domain for entry in model.opset_import} == ({"", "com.microsoft"} if layer != "Conv" else {""})
    # As anybody would run it: with the optimizer, and prepacked by the kernel.
    assert_close(run(model, case.feed, optimized=True)[0], case.result(meant["w"]))


@pytest.mark.parametrize("backend", ["weight_only", "weight_only:bits=2,symmetric=no,block=16", "weight_only:bits=8"])
@pytest.mark.parametrize("form", ["dq", "nbits"])
def test_torch_reads_the_file_as_onnxruntime_does(backend: str, form: str, tmp_path: Path) -> None:
    case = matmul(RAGGED)
    exact = ",accuracy_level=1" if form == "nbits" else ""
    name = f"{backend},form={form}" if ":" in backend else f"{backend}:form={form}"
    model, _ = quantized(case.model, f"{name}{exact}", tmp_path)
    net = to_torch(Graph.from_model(model)).eval()
    assert_close(to_numpy(net(from_numpy(case.feed["x"]))), run(model, case.feed)[0])


@pytest.mark.parametrize("form", ["dq", "nbits"])
def test_a_weight_takes_its_bits_and_a_scale_for_each_block(form: str, tmp_path: Path) -> None:
    model, _ = quantized(matmul(WHOLE).model, f"weight_only:symmetric=yes,form={form}", tmp_path)
    held = {tensor.name: len(tensor.raw_data) for tensor in model.graph.initializer}
    assert sum(held.values()) == WHOLE * OUTPUTS // 2 + WHOLE // 32 * OUTPUTS * 4, held


# ---- the layout ------------------------------------------------------------------------------------------------------


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """`count` numbers from the bytes of the last axis, the lowest bits first."""
    stream = np.unpackbits(packed, axis=-1, bitorder="little")[..., : count * bits]
    return (stream.reshape(*packed.shape[:-1], count, bits) << np.arange(bits)).sum(-1)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 150),
    bits=st.sampled_from([2, 3, 4, 8]),
    size=st.sampled_from([16, 32, 64, 128]),
    symmetric=st.booleans(),
    signed=st.booleans(),
    axis=st.sampled_from([0, 1, -1]),
)
def test_packed_codes_are_the_quantized_numbers(
    rows: int, columns: int, bits: int, size: int, symmetric: bool, signed: bool, axis: int
) -> None:
    spec = QuantSpec(f"{'int' if signed else 'uint'}{bits}", symmetric=symmetric, granularity=PerBlock(axis, size))
    shape = (columns, rows) if axis == 0 else (rows, columns)
    values = np.random.default_rng(rows * columns).normal(0.1, 1, shape).astype(np.float32)
    scales = spec.scale_shape(shape)
    parameters = qparams_from_range(np.full(scales, -1.7), np.full(scales, 2.1), spec)
    blocks = PackedBlocks(shape, parameters)
    numbers = quantize(values, parameters).astype(int)
    numbers = numbers.T if axis == 0 else numbers
    offset = 2 ** (blocks.bits - 1) if signed else 0
    found = unpacked(blocks.pack(values), blocks.bits, size).reshape(rows, -1)
    np.testing.assert_array_equal(found[:, :columns], numbers + offset)
    zeros = blocks.zero_points()
    wanted = parameters.zero_point.T if axis == 0 else parameters.zero_point
    if zeros is None:
        assert not wanted.any()
        assert offset == 2 ** (blocks.bits - 1)
    else:
        np.testing.assert_array_equal(unpacked(zeros, blocks.bits, blocks.count), wanted + offset)
    np.testing.assert_array_equal(blocks.scales(), parameters.scale.T if axis == 0 else parameters.scale)


def test_integers_that_an_algorithm_has_fixed_are_written(tmp_path: Path) -> None:
    case = matmul(WHOLE)
    prepared = prepare(case.model, "weight_only:symmetric=yes,form=nbits")
    plan = place(prepared.graph, prepared.backend)
    parameters, plan, _ = calibrate(prepared.graph, plan)
    fixed = np.random.default_rng(0).integers(-8, 8, (WHOLE, OUTPUTS)).astype(np.int8)
    parameters.integer_weights["w"] = fixed
    model = to_nbits(prepared.graph, plan, parameters, prepared.backend)[0].to_model()
    assert_close(run(model, case.feed)[0], case.result(dequantize(fixed, parameters["w"])))
    assert fixed.min() == -8  # packing works on a copy


# ---- what does not fit -----------------------------------------------------------------------------------------------


def test_what_onnxruntime_has_no_packed_operator_for_stays_a_dequantize_linear_and_says_why(tmp_path: Path) -> None:
    net = Net("misfits")
    x = net.input("x", [2, WHOLE])
    net.output(net.node("Gemm", x, net.weight(WHOLE, 8, name="scaled"), alpha=0.5))
    net.output(net.node("MatMul", x, net.weight(3, WHOLE, 8, name="stack")))
    net.output(net.node("MatMul", net.input("v", [WHOLE]), net.weight(WHOLE, 8, name="of_vector")))
    net.output(net.node("Gather", net.weight(6, 71, name="odd"), net.input("ids", [4], np.int64)))
    prepared = prepare(net.model(), "weight_only:form=nbits")
    plan = place(prepared.graph, prepared.backend)
    parameters, plan, _ = calibrate(prepared.graph, plan)
    result, notes = to_nbits(prepared.graph, plan, parameters, prepared.backend)
    assert [node.op for node in result.nodes()].count("DequantizeLinear") == 4
    reasons = {note.split("'")[1]: note.partition(": ")[2] for note in notes if note.startswith("weight")}
    assert "alpha" in reasons["scaled"]
    assert reasons["stack"] == "it has 3 axes"
    assert "multiplies a vector" in reasons["of_vector"]
    assert "whole bytes" in reasons["odd"]
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(2, WHOLE)), "v": rng.normal(size=WHOLE), "ids": np.arange(4)}
    feed = {name: value.astype(np.int64 if name == "ids" else np.float32) for name, value in feed.items()}
    w = {p.tensor: fake_quantize(prepared.graph.values(p.tensor), parameters[p.tensor]) for p in plan}
    found = run(result.to_model(), feed)
    wanted = [0.5 * feed["x"] @ w["scaled"], feed["x"] @ w["stack"], feed["v"] @ w["of_vector"], w["odd"][:4]]
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other)


def test_a_weight_inside_a_body_is_packed_there(tmp_path: Path) -> None:
    net = Net("in_body")
    x, flag = net.input("x", [2, WHOLE]), net.input("flag", [], np.bool_)
    then, other = net.branch("then"), net.branch("otherwise")
    then.output(then.node("MatMul", x, then.weight(WHOLE, 8, name="inner")), [2, 8])
    other.output(other.node("MatMul", x, net.weight(WHOLE, 8, name="outer")), [2, 8])
    net.output(net.node("If", flag, then_branch=then.graph(), else_branch=other.graph()), [2, 8])
    for form in ("dq", "nbits"):
        model, meant = quantized(net.model(), f"weight_only:form={form}", tmp_path)
        values = np.random.default_rng(0).normal(size=(2, WHOLE)).astype(np.float32)
        for chosen, weight in ((True, "inner"), (False, "outer")):
            found = run(model, {"x": values, "flag": np.array(chosen)})[0]
            assert_close(found, values @ meant[weight])


def test_a_reader_that_stays_float_keeps_the_float_values(tmp_path: Path) -> None:
    net = Net("other_reader")
    weight = net.weight(8, 16, name="w")
    x = net.input("x", [3, 16])
    net.output(net.node("Gemm", x, weight, transB=1))
    net.output(net.node("Add", weight, net.input("s", [])))
    values = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    given = onnx.numpy_helper.to_array(net.model().graph.initializer[0])
    for form in ("dq", "nbits"):
        model, meant = quantized(net.model(), f"weight_only:form={form}", tmp_path)
        product_, added = run(model, {"x": values, "s": np.array(1.0, np.float32)})
        assert_close(product_, values @ meant["w"].T)
        np.testing.assert_array_equal(added, given + 1)


def test_blocks_lie_along_the_axis_that_a_layer_sums_over() -> None:
    axes = []
    for build in (matmul, gemm, gather):
        prepared = prepare(build(WHOLE).model, "weight_only")
        granularity = place(prepared.graph, prepared.backend)["w"].spec.granularity
        assert isinstance(granularity, PerBlock)
        axes.append(granularity.axis)
    assert axes == [0, 0, 1]


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 40), (37, 129)])
def test_bytes_do_not_depend_on_how_the_numbers_lie_in_memory(bits: int, shape: tuple[int, int]) -> None:
    codes = np.random.default_rng(bits).integers(0, 2**bits, shape).astype(np.uint8)
    numbers = np.pad(codes, ((0, 0), (0, -shape[1] % (8 // bits))))
    expected = sum(numbers[:, place :: 8 // bits].astype(int) << (place * bits) for place in range(8 // bits))
    for given_codes in (codes, np.asfortranarray(codes)):
        packed = pack_bits(given_codes, bits)
        assert packed.flags.c_contiguous
        assert np.array_equal(packed, expected)
