"""Sophgo targets: which combinations of chip, mode, strategy and precision exist, and what each of them writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.errors import ConfigError
from onnxq.pipeline.artifacts import Result
from onnxq.targets import BACKENDS, get_backend

BM = ("sophgo_bm1688", "sophgo_bm1684x", "sophgo_bm1690", "sophgo_sg2260")
CV = ("sophgo_cv18x", "sophgo_mars3")


def attention() -> onnx.ModelProto:
    """MatMul, Add, Transpose, MatMul of two computed matrices, a division by a number, Softmax, MatMul."""
    rng = np.random.default_rng(3)

    def held(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.normal(0, 0.2, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["q"]),
        helper.make_node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Div", ["scores", "root"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["y"]),
    ]
    root = numpy_helper.from_array(np.array(4.0, np.float32), "root")
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 16])],
        [held("w", 16, 16), held("b", 16), root],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantized(backend: str, folder: Path) -> Result:
    rng = np.random.default_rng(4)
    samples = [{"x": rng.normal(0, 1, (1, 6, 16)).astype(np.float32)} for _ in range(4)]
    return onnxq.quantize(attention(), backend=backend, data=samples, out=folder, config={"effort": 0})


def modes(folder: Path) -> dict[str, str]:
    path = next(folder.glob("model_q_table_*"))
    return dict(line.split() for line in path.read_text().splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("name", [*BM, *CV, "sophgo_academic"])
def test_weight_only_exists_for_transformers_alone(name: str) -> None:
    with pytest.raises(ConfigError, match=r"weight_only does not exist for strategy=CNN.*strategy=Transformer"):
        get_backend(f"{name}:mode=weight_only,precision=INT8")
    assert get_backend(f"{name}:mode=weight_only,strategy=Transformer,precision=INT8").scheme.activation is None


@pytest.mark.parametrize("name", CV)
def test_cv18x_refuses_zero_points_and_what_it_cannot_compute(name: str) -> None:
    with pytest.raises(ConfigError, match=r"asymmetric=yes is not possible.*BM chip"):
        get_backend(f"{name}:asymmetric=yes")
    for precision in ("INT4", "F8E4M3"):
        with pytest.raises(ConfigError, match="INT8, BF16"):
            get_backend(f"{name}:precision={precision}")
    assert get_backend(name).limits.zero_point_zero


def test_four_bits_for_activations_exist_on_bm1688_alone() -> None:
    assert get_backend("sophgo_bm1688:precision=INT4").rules_for("Conv")[0].activation_spec.dtype == "int4"
    for name in ("sophgo_bm1684x", "sophgo_bm1690"):
        with pytest.raises(ConfigError, match=r"mode=weight_only"):
            get_backend(f"{name}:precision=INT4")


def test_float8_exists_on_bm1690_alone() -> None:
    for name in ("sophgo_bm1690", "sophgo_sg2260", "sophgo_academic"):
        assert get_backend(f"{name}:precision=F8E4M3").scheme.weight.dtype == "fp8_e4m3"  # type: ignore[union-attr]
    for name in ("sophgo_bm1688", "sophgo_bm1684x"):
        with pytest.raises(ConfigError, match="F8E4M3"):
            get_backend(f"{name}:precision=F8E4M3")


def test_other_names_of_a_chip_are_the_same_target() -> None:
    for one, other in (("sophgo_bm1690", "sophgo_sg2260"), ("sophgo_cv18x", "sophgo_mars3")):
        first, second = BACKENDS.get(one), BACKENDS.get(other)
        assert (first.scheme, first.limits, first.emitters) == (second.scheme, second.limits, second.emitters)
        assert [rule.ops for rule in first.rules] == [rule.ops for rule in second.rules]


def test_a_transformer_runs_its_matrices_in_int8_and_the_rest_in_float(tmp_path: Path) -> None:
    quantized("sophgo_bm1684x:strategy=Transformer", tmp_path)
    rows = modes(tmp_path)
    assert [rows[name] for name in ("q_Add", "scores_MatMul", "y_MatMul")] == ["INT8"] * 3
    assert rows["scaled_Div"] == rows["p_Softmax"] == "F32"
    table = (tmp_path / "model_cali_table_from_sophgo_mq_Academic_NLP").read_text()
    found = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.count(" ") == 3}
    # tpu-mlir asks for the range behind the division, too: a quarter of the range in front of it
    assert float(found["scaled_Div"][0]) == pytest.approx(float(found["scores_MatMul"][0]) / 4, rel=1e-7)


def test_cv18x_multiplies_two_computed_matrices_in_bf16(tmp_path: Path) -> None:
    quantized("sophgo_cv18x:strategy=Transformer", tmp_path)
    rows = modes(tmp_path)
    assert rows["q_Add"] == "INT8"
    assert rows["scores_MatMul"] == rows["y_MatMul"] == rows["p_Softmax"] == "BF16"


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ("sophgo_bm1684x:mode=weight_only,strategy=Transformer", "W8F16"),
        ("sophgo_bm1684x:mode=weight_only,strategy=Transformer,precision=INT4", "W4F16"),
        ("sophgo_cv18x:mode=weight_only,strategy=Transformer", "W8BF16"),
        ("sophgo_bm1690:precision=F8E4M3,strategy=Transformer", "F8E4M3"),
        ("sophgo_bm1688:precision=F16", "F16"),
        ("sophgo_cv18x:precision=BF16", "BF16"),
        ("sophgo_bm1684x:mode=weight_only,strategy=Transformer,float=BF16", "W8BF16"),
    ],
)
def test_each_choice_has_its_word_in_the_table_of_modes(options: str, mode: str, tmp_path: Path) -> None:
    result = quantized(options, tmp_path)
    assert modes(tmp_path)["q_Add"] == mode
    assert result.model.exists()


@pytest.mark.parametrize("name", [*BM, *CV])
def test_the_default_keeps_an_attention_block_above_25_db(name: str, tmp_path: Path) -> None:
    result = quantized(name, tmp_path)
    assert min(result.report["sqnr_db"].values()) > 25


def test_operators_that_stay_float_run_in_the_chosen_format(tmp_path: Path) -> None:
    for choice, word in (("", "F32"), (":float=F16", "F16"), (":float=BF16", "BF16")):
        quantized(f"sophgo_bm1684x{choice}", tmp_path / word)
        rows = modes(tmp_path / word)
        assert rows["p_Softmax"] == rows["scaled_Div"] == word
        assert rows["q_Add"] == "INT8"
    with pytest.raises(ConfigError, match="BF16"):
        get_backend("sophgo_cv18x:float=F32")
    with pytest.raises(ConfigError, match=r"precision=F16 and float=BF16 contradict"):
        get_backend("sophgo_bm1688:precision=F16,float=BF16")


def test_each_chip_is_described_by_its_own_name() -> None:
    for name in [*BM, *CV]:
        words = BACKENDS.get(name).summary.lower()
        assert name.removeprefix("sophgo_").removesuffix("x") in words


def test_abs_keeps_the_scale_of_its_input(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    weight = numpy_helper.from_array(rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Abs", ["c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "abs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = [{"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(3)]
    result = onnxq.quantize(model, backend="sophgo_bm1688", data=samples, out=tmp_path, config={"effort": 0})
    assert result.qparams["y"] == result.qparams["c"]
    assert result.plan["y"].spec.dtype == "int8"


def test_four_bit_layers_lie_between_ends_of_eight_bits() -> None:
    backend = get_backend("sophgo_bm1688:precision=INT4")
    assert [spec.dtype for spec in backend.scheme.ends or ()] == ["int8", "int8"]
    assert "uint4" in backend.limits.dtypes
