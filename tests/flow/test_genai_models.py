"""Language models as ONNX Runtime GenAI writes them: operators that onnxruntime has and ONNX does not define."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.graph import Graph
from onnxq.verify.checker import check_file

WIDTH, HEADS, WORDS = 32, 2, 20
HEAD = WIDTH // HEADS
MICROSOFT = "com.microsoft"


def language_model(logits: list[int | str] | None) -> onnx.ModelProto:
    """One layer, SimplifiedLayerNormalization in the default domain; `logits` is the declared shape of the output."""
    rng = np.random.default_rng(0)
    angles = np.outer(np.arange(16), 1 / 100 ** (np.arange(0, HEAD, 2) / HEAD))
    constants: dict[str, np.ndarray] = {
        "embedding": rng.normal(size=(WORDS, WIDTH)),
        "gain": np.ones(WIDTH),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        **{name: rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)) for name in ("wq", "wk", "wv", "wo", "up")},
        "head": rng.normal(0, WIDTH**-0.5, (WIDTH, WORDS)),
    }
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    tensors.append(numpy_helper.from_array(np.int64([1]), "one"))

    def node(op: str, inputs: str, outputs: list[str], domain: str = "", **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs.split(), outputs, name=f"{outputs[0]}_node", domain=domain, **attributes)

    nodes = [
        node("Gather", "embedding tokens", ["words"]),
        node("Sub", "lengths one", ["before"]),
        node("Cast", "before", ["seqlens"], to=TensorProto.INT32),
        node("ReduceMax", "lengths", ["longest"], keepdims=0),
        node("Cast", "longest", ["total"], to=TensorProto.INT32),
        node("SimplifiedLayerNormalization", "words gain", ["normed"], axis=-1, epsilon=1e-5, stash_type=1),
        *(node("MatMul", f"normed w{port}", [port]) for port in "qkv"),
        node("RotaryEmbedding", "q positions cos sin", ["q_turned"], MICROSOFT, num_heads=HEADS),
        node("RotaryEmbedding", "k positions cos sin", ["k_turned"], MICROSOFT, num_heads=HEADS),
        node(
            "GroupQueryAttention",
            "q_turned k_turned v past_key past_value seqlens total",
            ["attended", "present_key", "present_value"],
            MICROSOFT,
            num_heads=HEADS,
            kv_num_heads=HEADS,
        ),
        node("MatMul", "attended wo", ["projected"]),
        node(
            "SkipSimplifiedLayerNormalization",
            "words projected gain",
            ["again", "", "", "sum"],
            MICROSOFT,
            epsilon=1e-5,
        ),
        node("MatMul", "again up", ["wide"]),
        node("Sigmoid", "wide", ["gate"]),
        node("Mul", "wide gate", ["silu"]),
        node("Add", "silu sum", ["last"]),
        node("MatMul", "last head", ["logits"]),
    ]
    value = helper.make_tensor_value_info
    caches = {kind: ["batch", HEADS, kind, HEAD] for kind in ("past", "present")}
    inputs = [
        value("tokens", TensorProto.INT64, ["batch", "words"]),
        value("positions", TensorProto.INT64, ["batch", "words"]),
        value("lengths", TensorProto.INT64, ["batch"]),
        *(value(f"past_{what}", TensorProto.FLOAT, caches["past"]) for what in ("key", "value")),
    ]
    outputs = [
        value("logits", TensorProto.FLOAT, logits),
        *(value(f"present_{what}", TensorProto.FLOAT, caches["present"]) for what in ("key", "value")),
    ]
    graph = helper.make_graph(nodes, "genai", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", 14), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def sentences(count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    nothing = np.zeros((1, HEADS, 0, HEAD), np.float32)
    return [
        {
            "tokens": rng.integers(0, WORDS, (1, 5)),
            "positions": np.arange(5)[np.newaxis],
            "lengths": np.int64([5]),
            "past_key": nothing,
            "past_value": nothing,
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("backend", ["onnxruntime", "weight_only", "tensorrt", "qnn"])
@pytest.mark.parametrize(
    "logits", [["batch", "words", WORDS], None, []], ids=["declared", "without a shape", "with a stale rank"]
)
def test_a_model_that_onnxruntime_takes_and_the_checker_refuses_is_quantized(
    backend: str, logits: list[int | str] | None, tmp_path: Path
) -> None:
    given = language_model(logits)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(given)
    config = {"effort": 0, "minimum_sqnr_db": 3.0}
    result = onnxq.quantize(given, backend=backend, data=sentences(), config=config, out=tmp_path / "out")
    session = ort.InferenceSession(result.model)
    assert session.run(["logits"], sentences(1)[0])[0].shape == (1, 5, WORDS)
    notes = " ".join(result.report["notes"])
    whole = backend in ("onnxruntime", "weight_only")
    kinds = {(node.domain, node.op_type) for node in onnx.load(result.model).graph.node}
    theirs = {(MICROSOFT, "GroupQueryAttention"), (MICROSOFT, "RotaryEmbedding"), ("", "SimplifiedLayerNormalization")}
    assert theirs & kinds == (theirs if whole else set())
    assert ("the ONNX checker refuses operator SimplifiedLayerNormalization of domain 'ai.onnx'" in notes) == whole
    if not whole:
        onnx.checker.check_model(onnx.load(result.model))
    assert "is declared without a shape" not in notes  # it follows from the operators, also from those of onnxruntime
    declared = onnx.load(result.model).graph.output[0].type.tensor_type
    assert [dim.dim_param or dim.dim_value for dim in declared.shape.dim] == (logits or ["batch", "words", WORDS])


def test_what_the_checker_has_against_the_file_alone_is_a_refusal(tmp_path: Path) -> None:
    original = Graph.from_model(language_model(["batch", "words", WORDS]))
    path = tmp_path / "written.onnx"
    damaged = language_model(["batch", "words", WORDS])
    damaged.graph.node.append(helper.make_node("NoSuchOperator", ["logits"], ["nothing"], name="new"))
    onnx.save(damaged, path)
    checked = check_file(path, original)
    assert ["NoSuchOperator" in text for text in checked.refusals] == [True]
    assert len(checked.inherited) == 1
    assert len(check_file(path).refusals) == 1
    assert list(tmp_path.iterdir()) == [path]
