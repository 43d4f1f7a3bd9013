"""Attention in all its forms becomes small operators with the same results, as onnxruntime computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_same_outputs, run_model

MICROSOFT = "com.microsoft"
FEW = settings(max_examples=12, deadline=None)
Arrays = Mapping[str, np.ndarray | None]


def one_node(
    op: str,
    feeds: Arrays,
    outputs: list[str],
    *,
    domain: str = "",
    opset: int = 23,
    constants: Arrays | None = None,
    free: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; with `free` the sizes of its inputs but the last are names."""
    held = constants or {}
    order = {**feeds, **held}
    names = [name if order[name] is not None else "" for name in sorted(order, key=lambda name: int(name[1:]))]
    inputs = []
    for name, values in feeds.items():
        if values is not None:
            inner = 1 if values.ndim == 4 else None  # the number of heads
            shape = [
                size if not free or axis in (values.ndim - 1, inner) or values.ndim > 4 else f"{name}_{axis}"
                for axis, size in enumerate(values.shape)
            ]
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), shape))
    stored = [numpy_helper.from_array(values, name) for name, values in held.items() if values is not None]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name]
    node = helper.make_node(op, names, outputs, name="whole", domain=domain, **attributes)
    graph = helper.make_graph([node], "g", inputs, results, stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def assert_decomposed(model: onnx.ModelProto, name: str, feeds: Arrays, *, rtol: float = 2e-5) -> Graph:
    """The pass leaves nothing of the node, says so, and keeps every output."""
    graph = Graph.from_model(model)
    (report,) = run_passes(graph, [name])
    assert not report.declined
    assert len(report.changed) == 1
    assert not [node for node in graph.nodes() if node.name == "whole"]
    given_feeds = {key: value for key, value in feeds.items() if value is not None}
    after = graph.to_model()
    onnx.checker.check_model(after)
    assert_same_outputs(run_model(model, given_feeds), run_model(after, given_feeds), rtol)
    assert not run_passes(graph, [name])[0].changed
    assert graph.has_node(graph.origins.current_node("whole"))
    return graph


def declined(model: onnx.ModelProto, name: str) -> str:
    graph = Graph.from_model(model)
    nodes = len(graph.nodes())
    (report,) = run_passes(graph, [name])
    assert not report.changed
    assert len(graph.nodes()) == nodes
    return report.declined[0]


def values(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.normal(size=shape).astype(np.float32)


@FEW
@given(
    seed=st.integers(0, 2**16),
    packed=st.booleans(),
    groups=st.sampled_from([1, 2]),
    causal=st.booleans(),
    past=st.sampled_from([0, 3]),
    mask=st.sampled_from(["", "bool", "bool4", "float", "float with minus infinity", "constant"]),
    softcap=st.sampled_from([0.0, 2.0]),
    free=st.booleans(),
)
def test_attention_of_onnx(
    seed: int, packed: bool, groups: int, causal: bool, past: int, mask: str, softcap: float, free: bool
) -> None:
    random = np.random.default_rng(seed)
    heads, size, queries, keys = 4, 6, 3, 5
    shared = heads // groups
    if packed:
        q, k, v = values(random, 2, queries, heads * size), *(values(random, 2, keys, shared * size) for _ in "kv")
        attributes = {"q_num_heads": heads, "kv_num_heads": shared}
    else:
        q, k, v = values(random, 2, heads, queries, size), *(values(random, 2, shared, keys, size) for _ in "kv")
        attributes = {}
    feeds: dict[str, np.ndarray | None] = {"i0": q, "i1": k, "i2": v}
    shape = (2, heads, queries, keys + past) if mask == "bool4" else (queries, keys + past)
    seen = random.random(shape) < 0.6  # some rows may be all False
    given_mask: np.ndarray | None = None
    if mask.startswith("bool"):
        given_mask = seen
    elif mask:
        given_mask = values(random, *shape) if mask == "float" else np.where(seen, 0, -np.inf).astype(np.float32)
    constants = {"i3": given_mask} if mask == "constant" else {}
    feeds |= {} if mask == "constant" else {"i3": given_mask}
    if past:
        feeds |= {"i4": values(random, 2, shared, past, size), "i5": values(random, 2, shared, past, size)}
    outputs = ["y", "present_key", "present_value"] if past else ["y"]
    model = one_node(
        "Attention",
        feeds,
        outputs,
        constants=constants,
        free=free,
        is_causal=int(causal),
        softcap=softcap,
        **attributes,
    )
    assert_decomposed(model, "decompose_attention", feeds)


@FEW
@given(seed=st.integers(0, 2**16), causal=st.booleans(), lengths=st.lists(st.integers(3, 6), min_size=2, max_size=2))
def test_attention_of_onnx_with_padded_keys(seed: int, causal: bool, lengths: list[int]) -> None:
    random = np.random.default_rng(seed)
    q, k, v = values(random, 2, 2, 3, 4), values(random, 2, 2, 6, 4), values(random, 2, 2, 6, 4)
    feeds = {"i0": q, "i1": k, "i2": v, "i3": None, "i4": None, "i5": None, "i6": np.asarray(lengths, np.int64)}
    model = one_node("Attention", feeds, ["y"], opset=24, is_causal=int(causal))
    assert_decomposed(model, "decompose_attention", feeds)


@pytest.mark.parametrize("mode", [0, 1, 3])
def test_attention_of_onnx_shows_its_scores(mode: int) -> None:
    random = np.random.default_rng(3)
    feeds = {"i0": values(random, 1, 2, 3, 4), "i1": values(random, 1, 2, 5, 4), "i2": values(random, 1, 2, 5, 4)}
    model = one_node("Attention", feeds, ["y", "", "", "s"], softcap=1.5, qk_matmul_output_mode=mode)
    # What onnxruntime shows of a soft cap came in other modes than ONNX says; torchnet follows ONNX.
    graph = Graph.from_model(model)
    run_passes(graph, ["decompose_attention"])
    after = run_model(graph.to_model(), feeds)
    scores = feeds["i0"] @ feeds["i1"].transpose(0, 1, 3, 2) / 2
    capped = 1.5 * np.tanh(scores / 1.5)
    weights = np.exp(capped) / np.exp(capped).sum(-1, keepdims=True)
    np.testing.assert_allclose(after["s"], {0: scores, 1: capped, 3: weights}[mode], rtol=1e-4, atol=1e-5)


def test_keys_that_are_the_values_are_shown_twice() -> None:
    feeds = {"i0": values(np.random.default_rng(1), 1, 2, 3, 4)}
    model = one_node("Attention", feeds, ["y", "present_key", "present_value"])
    model.graph.node[0].input[:] = ["i0", "i0", "i0"]
    assert_decomposed(model, "decompose_attention", feeds)


def test_attention_of_unknown_rank_stays() -> None:
    random = np.random.default_rng(0)
    feeds = {f"i{port}": values(random, 1, 2, 3, 4) for port in range(3)}
    model = one_node("Attention", feeds, ["y"])
    for info in model.graph.input:
        info.type.tensor_type.ClearField("shape")
    assert "number of dimensions" in declined(model, "decompose_attention")


@FEW
@given(
    seed=st.integers(0, 2**16),
    form=st.sampled_from(["apart", "of an encoder"]),
    bias=st.booleans(),
    causal=st.booleans(),
    mask=st.sampled_from(["", "keys", "queries and keys"]),
    added=st.booleans(),
    past=st.booleans(),
)
def test_multi_head_attention(
    seed: int, form: str, bias: bool, causal: bool, mask: str, added: bool, past: bool
) -> None:
    random = np.random.default_rng(seed)
    heads, size, length = 2, 4, 3
    width = heads * size
    feeds: dict[str, np.ndarray | None] = {f"i{port}": None for port in range(8)}
    feeds["i0"] = values(random, 2, length, width)
    if form == "of an encoder":
        feeds |= {"i1": values(random, 2, heads, length, size), "i2": values(random, 2, heads, length, size)}
    else:
        feeds |= {"i1": values(random, 2, length, width), "i2": values(random, 2, length, width)}
    before = 2 if past and form == "apart" else 0
    if before:
        feeds |= {"i6": values(random, 2, heads, before, size), "i7": values(random, 2, heads, before, size)}
    if bias and form == "apart":
        feeds["i3"] = values(random, 3 * width)
    total = length + before
    if mask:
        shape = (2, total) if mask == "keys" else (2, length, total)
        feeds["i4"] = (random.random(shape) < 0.7).astype(np.int32)
        feeds["i4"][..., 0] = 1  # where all is hidden, what counts are the digits that -10000 leaves
    if added:
        feeds["i5"] = values(random, 1, heads, length, total)
    outputs = ["y", "present_key", "present_value"] if before else ["y"]
    model = one_node(
        "MultiHeadAttention",
        feeds,
        outputs,
        domain=MICROSOFT,
        opset=17,
        free=form != "apart" or not bias,
        num_heads=heads,
        unidirectional=int(causal),
    )
    assert_decomposed(model, "decompose_multi_head_attention", feeds)


@pytest.mark.parametrize("packed", ["query, key and value", "key and value"])
def test_multi_head_attention_with_packed_inputs(packed: str) -> None:
    """onnxruntime has kernels for these forms on GPUs only: the referee is the form that is not packed."""
    random, heads, size = np.random.default_rng(0), 2, 4
    together = values(random, 2, 3, heads, 3, size)
    apart = {f"i{port}": together[:, :, :, port].reshape(2, 3, heads * size) for port in range(3)}
    expected = run_model(
        one_node("MultiHeadAttention", apart, ["y"], domain=MICROSOFT, opset=17, num_heads=heads), apart
    )
    feeds: dict[str, np.ndarray] = {"i0": together}
    if packed == "key and value":
        feeds = {"i0": apart["i0"], "i1": np.ascontiguousarray(together[:, :, :, 1:])}
    graph = Graph.from_model(one_node("MultiHeadAttention", feeds, ["y"], domain=MICROSOFT, opset=17, num_heads=heads))
    run_passes(graph, ["decompose_multi_head_attention"])
    assert_same_outputs(expected, run_model(graph.to_model(), feeds))


@FEW
@given(
    seed=st.integers(0, 2**16),
    causal=st.booleans(),
    mask=st.booleans(),
    past=st.booleans(),
    sizes=st.sampled_from([None, [8, 8, 4]]),
    opset=st.sampled_from([12, 17]),
)
def test_attention_with_its_weights_inside(
    seed: int, causal: bool, mask: bool, past: bool, sizes: list[int] | None, opset: int
) -> None:
    random = np.random.default_rng(seed)
    heads, length = 2, 3
    past = past and sizes is None
    total = sum(sizes or [8, 8, 8])
    feeds: dict[str, np.ndarray | None] = {
        "i0": values(random, 2, length, 6),
        "i3": (random.random((2, length + 2 * past)) < [1, *[0.7] * (length + 2 * past - 1)]).astype(np.int32)
        if mask
        else None,
        "i4": values(random, 2, 2, heads, 2, 4) if past else None,
    }
    constants = {"i1": values(random, 6, total), "i2": values(random, total)}
    attributes = {"qkv_hidden_sizes": sizes} if sizes else {}
    model = one_node(
        "Attention",
        feeds,
        ["y", "present"] if past else ["y"],
        domain=MICROSOFT,
        opset=opset,
        constants=constants,
        num_heads=heads,
        unidirectional=int(causal),
        **attributes,
    )
    graph = assert_decomposed(model, "decompose_packed_attention", feeds)
    assert graph.node("whole_projection").inputs[1].name == "i1"


def angles(size: int) -> dict[str, np.ndarray]:
    turns = np.arange(16)[:, None] * 10.0 ** -np.arange(0, size, 2)[None] / 2
    return {"i7": np.cos(turns).astype(np.float32), "i8": np.sin(turns).astype(np.float32)}


@FEW
@given(
    seed=st.integers(0, 2**16),
    packed=st.booleans(),
    rotary=st.sampled_from([None, 0, 1]),
    stage=st.sampled_from(["prompt", "token"]),
    batch=st.sampled_from([1, 2]),
    free=st.booleans(),
    window=st.sampled_from([-1, 3]),
    softcap=st.sampled_from([0.0, 2.0]),
)
def test_group_query_attention(
    seed: int, packed: bool, rotary: int | None, stage: str, batch: int, free: bool, window: int, softcap: float
) -> None:
    random = np.random.default_rng(seed)
    heads, shared, size = 4, 2, 16
    length, past = (4, 0) if stage == "prompt" else (1, 5)
    q, k, v = (values(random, batch, length, count * size) for count in (heads, shared, shared))
    feeds: dict[str, np.ndarray | None] = {
        "i0": np.concatenate([q, k, v], -1) if packed else q,
        "i1": None if packed else k,
        "i2": None if packed else v,
        "i3": values(random, batch, shared, past, size),
        "i4": values(random, batch, shared, past, size),
        "i5": np.full(batch, past + length - 1, np.int32),
        "i6": np.asarray(past + length, np.int32),
    }
    if stage == "token":
        feeds["i5"] -= random.integers(0, 3, batch).astype(np.int32) * (batch > 1)  # type: ignore[operator]
    turned = {} if rotary is None else {"do_rotary": 1, "rotary_interleaved": rotary}
    model = one_node(
        "GroupQueryAttention",
        feeds,
        ["y", "present_key", "present_value"],
        domain=MICROSOFT,
        opset=17,
        constants=angles(size) if turned else {},
        free=free,
        num_heads=heads,
        kv_num_heads=shared,
        local_window_size=window,
        softcap=softcap,
        **turned,
    )
    graph = Graph.from_model(model)
    (report,) = run_passes(graph, ["decompose_group_query_attention"])
    assert not report.declined
    given_feeds = {name: array for name, array in feeds.items() if array is not None}
    before, after = run_model(model, given_feeds), run_model(graph.to_model(), given_feeds)
    last = given_feeds["i5"] + 1
    for sequence in range(batch):  # what stands behind a shorter sequence in the cache means nothing
        used = {
            name: (slice(sequence, sequence + 1), slice(None), slice(0, int(last[sequence])))
            for name in ("present_key", "present_value")
        }
        used["y"] = (slice(sequence, sequence + 1), slice(None), slice(None))
        assert_same_outputs(
            {name: before[name][used[name]] for name in before}, {name: after[name][used[name]] for name in after}, 2e-5
        )


def test_group_query_attention_with_a_sink_stays() -> None:
    random = np.random.default_rng(0)
    feeds = {
        "i0": values(random, 1, 2, 16),
        "i1": values(random, 1, 2, 8),
        "i2": values(random, 1, 2, 8),
        "i5": np.asarray([1], np.int32),
        "i6": np.asarray(2, np.int32),
        "i3": None,
        "i4": None,
    }
    model = one_node(
        "GroupQueryAttention",
        feeds,
        ["y"],
        domain=MICROSOFT,
        opset=17,
        num_heads=2,
        kv_num_heads=1,
        smooth_softmax=1,
    )
    assert "sink" in declined(model, "decompose_group_query_attention")
