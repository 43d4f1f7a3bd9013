"""onnxruntime is the referee: the same bits as its QuantizeLinear and DequantizeLinear."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxq.numerics import dequantize, fake_quantize, qparams_from_range, quantize, with_float16_scale
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec

ONNX_TYPE = {
    "int2": TensorProto.INT2,
    "uint2": TensorProto.UINT2,
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
    "fp8_e4m3": TensorProto.FLOAT8E4M3FN,
    "fp8_e5m2": TensorProto.FLOAT8E5M2,
}
INTEGERS = ["int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16"]
FLOAT8 = ["fp8_e4m3", "fp8_e5m2"]


def run(nodes, inputs, output, initializers):
    """Run a model of `nodes` without any graph optimization, so that the operators themselves are asked."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()
    ]
    graph = helper.make_graph(nodes, "referee", infos, [helper.make_tensor_value_info("y", output, None)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def scale_and_zero_point(qparams: QParams, scale_type: int) -> list[onnx.TensorProto]:
    kind = ONNX_TYPE[qparams.spec.dtype]
    scale, zero_point = qparams.scale, qparams.zero_point
    return [
        helper.make_tensor("scale", scale_type, scale.shape, scale.ravel().tolist()),
        helper.make_tensor("zero_point", kind, scale.shape, zero_point.ravel().tolist()),
    ]


def attributes(qparams: QParams) -> dict[str, int]:
    granularity = qparams.spec.granularity
    if isinstance(granularity, PerTensor):
        return {}
    if isinstance(granularity, PerBlock):
        return {"axis": granularity.axis, "block_size": granularity.size}
    return {"axis": granularity.axis}


def referee_quantize(x: np.ndarray, qparams: QParams) -> np.ndarray:
    """Stored numbers of QuantizeLinear as float32, which holds every one of them exactly."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero_point"], ["q"], **attributes(qparams)),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    parameters = scale_and_zero_point(qparams, helper.np_dtype_to_tensor_dtype(x.dtype))
    return run(nodes, {"x": x}, TensorProto.FLOAT, parameters)


def referee_fake_quantize(x: np.ndarray, qparams: QParams) -> np.ndarray:
    """QuantizeLinear followed by DequantizeLinear, in the number type of `x`."""
    names, extra = ["scale", "zero_point"], attributes(qparams)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], **extra),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"], **extra),
    ]
    real = helper.np_dtype_to_tensor_dtype(x.dtype)
    return run(nodes, {"x": x}, real, scale_and_zero_point(qparams, real))


def saturates_in_onnxruntime(qparams: QParams) -> bool:
    """Whether huge values have a right answer: onnxruntime's kernels for blocks and for fewer than 8 bits go through
    int32, and wrap a quotient that does not fit (positive infinity becomes the lowest number)."""
    blocks = isinstance(qparams.spec.granularity, PerBlock)
    return not qparams.spec.evenly_spaced or (qparams.spec.bits >= 8 and not blocks)


def sample_data(qparams: QParams, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Normal values, exact ties, their float32 neighbours, tiny, subnormal, huge and infinite ones."""
    rng = np.random.default_rng(seed)
    scale = np.float32(qparams.scale.mean())
    count = int(np.prod(shape))
    ties = (rng.integers(-200, 200, count) + 0.5).astype(np.float32) * scale
    pools = [
        rng.standard_normal(count).astype(np.float32) * scale * 50,
        ties,
        np.nextafter(ties, np.float32(np.inf)),
        np.nextafter(ties, np.float32(-np.inf)),
        (rng.standard_normal(count) * 10.0 ** rng.uniform(-44, 6, count)).astype(np.float32),
    ]
    if saturates_in_onnxruntime(qparams):
        special = np.array([np.inf, -np.inf, 3.4e38, -3.4e38, 1e20, -1e20, 0.0, -0.0], np.float32)
        pools.append(rng.choice(special, count))
    return np.choose(rng.integers(0, len(pools), count), pools).astype(np.float32).reshape(shape)


def parameters(dtype: str, granularity, shape: tuple[int, ...], seed: int = 0) -> QParams:
    rng = np.random.default_rng(seed)
    spec = QuantSpec(dtype, symmetric=dtype in FLOAT8, granularity=granularity)
    scale_shape = granularity.scale_shape(shape)
    zero_point = 0 if spec.symmetric else rng.integers(spec.qmin, spec.qmax + 1, scale_shape)
    return QParams(spec, rng.uniform(0.003, 0.3, scale_shape), zero_point)


SHAPE = (6, 35, 10)
GRANULARITIES = [
    PerTensor(),
    PerChannel(0),
    PerChannel(1),
    PerChannel(-1),
    PerBlock(1, 16),
    PerBlock(2, 5),
    PerBlock(0, 4),
]


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOAT8])
def test_same_bits_in_float32(dtype, granularity):
    qparams = parameters(dtype, granularity, SHAPE)
    x = sample_data(qparams, SHAPE)
    stored = quantize(x, qparams)
    assert stored.astype(np.float32).tobytes() == referee_quantize(x, qparams).tobytes()
    faked = fake_quantize(x, qparams)
    assert faked.tobytes() == referee_fake_quantize(x, qparams).tobytes()
    assert len(np.unique(stored.astype(np.float32))) > 2


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int4", "fp8_e4m3"])
@pytest.mark.parametrize("seed", range(3))
def test_same_bits_for_long_tensors(dtype, seed):
    shape = (50_021,)
    qparams = parameters(dtype, PerTensor(), shape, seed)
    x = sample_data(qparams, shape, seed)
    assert quantize(x, qparams).astype(np.float32).tobytes() == referee_quantize(x, qparams).tobytes()


@pytest.mark.parametrize("granularity", [PerTensor(), PerChannel(1), PerBlock(1, 16)], ids=str)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOAT8])
def test_same_bits_in_float16(dtype, granularity):
    qparams = with_float16_scale(parameters(dtype, granularity, SHAPE))
    rng = np.random.default_rng(4)
    x = (rng.standard_normal(SHAPE) * 10.0 ** rng.uniform(-7, 4, SHAPE)).astype(np.float16)
    assert quantize(x, qparams).astype(np.float32).tobytes() == referee_quantize(x, qparams).tobytes()
    faked = fake_quantize(x, qparams)
    with np.errstate(over="ignore"):
        assert faked.astype(np.float16).tobytes() == referee_fake_quantize(x, qparams).tobytes()


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_float16_number_becomes_the_same_float8_number(dtype):
    x = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    x = x[~np.isnan(x)]
    qparams = QParams(QuantSpec(dtype), 0.75, 0)
    assert quantize(x, qparams).astype(np.float32).tobytes() == referee_quantize(x, qparams).tobytes()


@pytest.mark.parametrize("granularity", [PerTensor(), PerChannel(0)], ids=str)
def test_int32_dequantizes_to_the_same_bits(granularity):
    rng = np.random.default_rng(5)
    stored = rng.integers(-(2**31), 2**31, (12, 400), dtype=np.int32)
    stored[0, :2] = [2**31 - 1, -(2**31)]
    spec = QuantSpec("int32", granularity=granularity)
    qparams = QParams(spec, rng.uniform(1e-9, 1e-3, granularity.scale_shape(stored.shape)), 0)
    node = helper.make_node("DequantizeLinear", ["q", "scale"], ["y"], **attributes(qparams))
    scale = scale_and_zero_point(qparams, TensorProto.FLOAT)[:1]
    answer = run([node], {"q": stored}, TensorProto.FLOAT, scale)
    assert dequantize(stored, qparams).tobytes() == answer.tobytes()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("spread", [1e-9, 1.0, 1e9])
def test_parameters_from_a_range_run_in_onnxruntime(dtype, spread):
    x = np.random.default_rng(6).standard_normal(1000).astype(np.float32) * np.float32(spread)
    qparams = qparams_from_range(x.min(), x.max(), QuantSpec(dtype, symmetric=False))
    assert fake_quantize(x, qparams).tobytes() == referee_fake_quantize(x, qparams).tobytes()
