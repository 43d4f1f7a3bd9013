"""MX, NVFP4 and NF4 in files: activations in float operators, weights as codes, ONNX's own types; the bits of numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxq import quantize
from onnxq.emit import EMITTERS, EmitRequest
from onnxq.emit.qdq import to_qdq
from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError
from onnxq.lint import lint
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.session.prepare import prepare
from onnxq.targets import get_backend
from onnxq.types import PerBlock, Placement, QParamsTable, QuantPlan, QuantSpec
from onnxq.types.number_format import number_format
from tests.emit.test_bfp16_model import assert_same_bits, awkward, relu_model, run

NAMES = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "nvfp4", "nf4")
OWN = NAMES[:-1]
BACKEND = get_backend("academic")


@pytest.mark.parametrize("write", [to_qdq, simulate])
@pytest.mark.parametrize(("shape", "axis", "open_sizes"), [((3, 70), -1, False), ((2, 40, 5, 4), 1, True)])
@pytest.mark.parametrize("name", NAMES)
def test_operators_of_the_file_compute_what_numpy_computes(
    name: str, shape: tuple[int, ...], axis: int, open_sizes: bool, write: object
) -> None:
    form = number_format(name)
    rule = form.scale_rules[axis % len(form.scale_rules)] if form.scale_rules else None
    spec = QuantSpec(name, granularity=PerBlock(axis, form.block), dynamic=True, scale_rule=rule)  # type: ignore[attr-defined]
    held = qparams_from_range(-3.0, 2.0, spec)
    plan, table = QuantPlan(BACKEND.name), QParamsTable()
    plan.placements["y"] = Placement("y", spec, "activation", "test")
    table.put("y", held, "test")
    graph = relu_model([None] * len(shape) if open_sizes else list(shape), 13)
    written, _ = write(graph, plan, table, BACKEND)  # type: ignore[operator]
    for seed in (0, 1):
        x = np.nan_to_num(awkward(shape, seed), nan=1.0, posinf=np.inf, neginf=-np.inf)
        for level in ("as it is", "optimized"):
            assert_same_bits(run(written, level, x=x)[0], fake_quantize(x, held))


def language_model(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """An embedding and three layers, with lengths that are no multiples of blocks."""
    rng = np.random.default_rng(0)
    weights = {
        "table": rng.normal(size=(20, 100)).astype(np.float32),
        "first": rng.normal(size=(100, 64)).astype(np.float32),
        "second": rng.normal(size=(24, 64)).astype(np.float32),
        "third": rng.normal(size=(24, 8)).astype(np.float32) * np.float32(0.01),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embedding"),
        helper.make_node("MatMul", ["rows", "first"], ["a"], name="matmul"),
        helper.make_node("Gemm", ["a", "second", "bias"], ["b"], name="gemm", transB=1),
        helper.make_node("MatMul", ["b", "third"], ["y"], name="head"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 8])],
        [
            *(numpy_helper.from_array(values, name) for name, values in weights.items()),
            numpy_helper.from_array(rng.normal(size=24).astype(np.float32), "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "float.onnx"
    onnx.save(model, path)
    return path, weights


def readers_of_weights(model: onnx.ModelProto) -> dict[str, str]:
    """The weight of each layer -> the tensor that the layer reads in its place."""
    ports = {"embedding": ("table", 0), "matmul": ("first", 1), "gemm": ("second", 1), "head": ("third", 1)}
    by_name = {node.name: node for node in model.graph.node}
    return {weight: by_name[node].input[port] for node, (weight, port) in ports.items()}


@pytest.mark.parametrize("name", NAMES)
def test_weights_in_files_are_the_numbers_of_the_parameters(name: str, tmp_path: Path) -> None:
    path, weights = language_model(tmp_path)
    target = f"weight_only:format={name}" + (",types=yes" if name in OWN else "")
    result = quantize(path, backend=target, config={"report": "no"}, out=tmp_path / "out", progress=False)
    feed = {"ids": np.arange(5)}
    for file in ("model.onnx", *(["model_onnx_types.onnx"] if name in OWN else [])):
        model = onnx.load(tmp_path / "out" / file)
        onnx.checker.check_model(model, full_check=True)
        assert not lint(tmp_path / "out" / file, get_backend(target))
        read = readers_of_weights(model)
        for tensor in read.values():
            model.graph.output.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None))
        if file == "model.onnx":
            found = ort.InferenceSession(model.SerializeToString()).run([*read.values()], feed)
        else:  # onnxruntime has no kernels for these types; the reference implementation of ONNX has
            found = ReferenceEvaluator(model).run([*read.values()], feed)
        for weight, values in zip(read, found, strict=True):
            assert_same_bits(np.asarray(values, np.float32), fake_quantize(weights[weight], result.qparams[weight]))


def test_weights_of_four_bits_take_half_a_byte(tmp_path: Path) -> None:
    path, _ = language_model(tmp_path)
    quantize(path, backend="weight_only:format=mxfp4", config={"report": "no"}, out=tmp_path / "out", progress=False)
    model = onnx.load(tmp_path / "out" / "model.onnx")
    codes = {item.name: item for item in model.graph.initializer}["second_codes"]
    assert codes.data_type == TensorProto.UINT4
    assert len(codes.raw_data or codes.int32_data) == 24 * 64 // 2


def test_nf4_layers_become_matmulbnb4_where_rows_are_whole_blocks(tmp_path: Path) -> None:
    path, weights = language_model(tmp_path)
    target = "weight_only:format=nf4,form=nbits"
    result = quantize(path, backend=target, config={"report": "no"}, out=tmp_path / "out", progress=False)
    model = onnx.load(tmp_path / "out" / "model.onnx")
    kinds = {node.name: node.op_type for node in model.graph.node}
    assert (kinds["gemm"], kinds["matmul"]) == ("MatMulBnb4", "MatMul")
    model.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    gemm = next(node for node in model.graph.node if node.name == "gemm")
    model.graph.output.append(helper.make_tensor_value_info(gemm.output[0], TensorProto.FLOAT, None))
    session = ort.InferenceSession(model.SerializeToString())
    a, found = session.run(["a", gemm.output[0]], {"ids": np.arange(5)})
    wanted = a @ fake_quantize(weights["second"], result.qparams["second"]).T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_what_computes_its_scales_at_run_time_lies_along_what_a_layer_sums_over(tmp_path: Path) -> None:
    path, _ = language_model(tmp_path)
    form = {"dtype": "mxfp4", "scale_rule": "even"}
    result = quantize(
        path,
        backend="academic_nlp",
        data=[{"ids": np.arange(5)}] * 4,
        config={"activation": form, "weight": {"dtype": "nvfp4"}, "effort": 0, "report": "no"},
        out=tmp_path / "out",
        progress=False,
    )
    specs = {name: placement.spec for name, placement in result.plan.placements.items()}
    assert specs["a"] == QuantSpec("mxfp4", granularity=PerBlock(1, 32), dynamic=True, scale_rule="even")
    assert specs["rows"].granularity == PerBlock(-1, 32)
    assert specs["second"] == QuantSpec("nvfp4", granularity=PerBlock(1, 16))
    assert result.qparams["a"].scale == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("format=mxfp4,bits=8", "format=mxfp4 has 4 bits"),
        ("format=nvfp4,block=32", "format=nvfp4 has blocks of 16"),
        ("format=mxfp4,symmetric=no", "has no zero point"),
        ("format=nf4,types=yes", "types=yes is for MX formats and nvfp4, not nf4"),
        ("format=mxfp4,form=nbits", "MatMulNBits holds integers, and MatMulBnb4 nf4, not mxfp4"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_backend(f"weight_only:{options}")


def test_a_changed_scale_in_the_file_of_own_types_is_found(tmp_path: Path) -> None:
    path, _ = language_model(tmp_path)
    backend = get_backend("weight_only:format=mxfp4,types=yes")
    result = quantize(path, backend=backend, config={"report": "no"}, out=tmp_path / "out", progress=False)
    prepared = prepare(path, backend)
    request = EmitRequest(prepared.graph, result.plan, result.qparams, backend, tmp_path / "out", "model")
    read_back = EMITTERS.get("own_types").read_back
    assert read_back is not None
    assert list(read_back(request)) == []
    file = tmp_path / "out" / "model_onnx_types.onnx"
    model = onnx.load(file)
    scales = next(item for item in model.graph.initializer if item.data_type == TensorProto.FLOAT8E8M0)
    scales.raw_data = bytes([scales.raw_data[0] + 1]) + scales.raw_data[1:]
    onnx.save(model, file)
    (said,) = read_back(request)
    assert "has other values" in said
