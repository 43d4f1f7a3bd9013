"""Attention in all its forms becomes small operators with the same results, as onnxruntime computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.torchnet import to_torch
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


def test_attention_of_onnx_shows_its_masked_scores() -> None:
    random = np.random.default_rng(3)
    feeds: dict[str, np.ndarray | None] = {f"i{port}": values(random, 1, 2, 4, 4) for port in range(3)}
    feeds["i3"] = np.where(random.random((4, 4)) < 0.7, values(random, 4, 4), -np.inf).astype(np.float32)
    model = one_node("Attention", feeds, ["y", "", "", "s"], is_causal=1, qk_matmul_output_mode=2)
    graph = Graph.from_model(model)
    run_passes(graph, ["decompose_attention"])
    # onnxruntime shows other numbers than minus infinity: the referee is ONNX's own.
    expected = dict(zip(["y", "s"], ReferenceEvaluator(model).run(None, feeds), strict=True))
    assert_same_outputs(expected, run_model(graph.to_model(), feeds), 2e-5)


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
    mask=st.sampled_from(["", "keys", "queries and keys", "lengths", "lengths and sums"]),
    added=st.booleans(),
    past=st.booleans(),
    queries=st.sampled_from([1, 3, 4]),
)
def test_multi_head_attention(
    seed: int, form: str, bias: bool, causal: bool, mask: str, added: bool, past: bool, queries: int
) -> None:
    random = np.random.default_rng(seed)
    heads, size, length = 2, 4, 4
    width = heads * size
    feeds: dict[str, np.ndarray | None] = {f"i{port}": None for port in range(8)}
    feeds["i0"] = values(random, 2, queries, width)
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
    if mask.startswith("lengths"):
        lengths = random.integers(1, total + 1, 2)
        sums = [[0, queries, 2 * queries], [0, lengths[0], lengths.sum()]] if mask.endswith("sums") else []
        feeds["i4"] = np.concatenate([lengths, *sums]).astype(np.int32)
    elif mask:
        shape = (2, total) if mask == "keys" else (2, queries, total)
        feeds["i4"] = (random.random(shape) < 0.7).astype(np.int32)
        feeds["i4"][..., 0] = 1  # where all is hidden, what counts are the digits that -10000 leaves
    if added:
        feeds["i5"] = values(random, 1, heads, queries, total)
    outputs = ["y", "present_key", "present_value"] if before else ["y"]
    model = one_node(
        "MultiHeadAttention",
        feeds,
        outputs,
        domain=MICROSOFT,
        opset=17,
        free=not mask.startswith("lengths") and (form != "apart" or not bias),
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
    mask=st.sampled_from(["", "keys", "ends", "ends and starts"]),
    past=st.booleans(),
    sizes=st.sampled_from([None, [8, 8, 4]]),
    opset=st.sampled_from([12, 17]),
)
def test_attention_with_its_weights_inside(
    seed: int, causal: bool, mask: str, past: bool, sizes: list[int] | None, opset: int
) -> None:
    random = np.random.default_rng(seed)
    heads, length = 2, 3
    past = past and sizes is None
    total, keys = sum(sizes or [8, 8, 8]), length + 2 * past
    given_mask: np.ndarray | None = None
    if mask == "keys":
        given_mask = random.random((2, keys)) < [1, *[0.7] * (keys - 1)]
    elif mask:  # the first key is always seen
        given_mask = np.concatenate([random.integers(1, keys + 1, 2), np.zeros(2 * mask.endswith("starts"))])
        if mask.endswith("starts") and not causal:
            given_mask = np.asarray([keys, keys - 1, *random.integers(0, keys - 1, 2)])
    feeds: dict[str, np.ndarray | None] = {
        "i0": values(random, 2, length, 6),
        "i3": None if given_mask is None else given_mask.astype(np.int32),
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
        free=not mask.startswith("ends"),
        num_heads=heads,
        unidirectional=int(causal),
        **attributes,
    )
    graph = assert_decomposed(model, "decompose_packed_attention", feeds)
    assert graph.node("whole_projection").inputs[1].name == "i1"


def test_a_list_of_unknown_length_and_a_cache_of_two_sizes_stay() -> None:
    random = np.random.default_rng(0)
    feeds: dict[str, np.ndarray | None] = {"i0": values(random, 2, 3, 6), "i3": np.asarray([2, 3], np.int32)}
    constants = {"i1": values(random, 6, 24), "i2": values(random, 24)}
    how = {"domain": MICROSOFT, "opset": 17, "constants": constants, "num_heads": 2}
    assert "a list" in declined(one_node("Attention", feeds, ["y"], **how), "decompose_packed_attention")
    del feeds["i3"]
    model = one_node("Attention", feeds, ["y", "present"], qkv_hidden_sizes=[8, 8, 8], **how)
    model.graph.node[0].attribute[-1].ints[:] = [6, 6, 12]
    assert "unlike sizes" in declined(model, "decompose_packed_attention")


def angles(size: int) -> dict[str, np.ndarray]:
    turns = np.arange(16)[:, None] * 10.0 ** -np.arange(0, size, 2)[None] / 2
    return {"i7": np.cos(turns).astype(np.float32), "i8": np.sin(turns).astype(np.float32)}


CACHES = [None, ("PER_TENSOR", 8), ("PER_CHANNEL", 8), ("PER_TENSOR", 4), ("PER_CHANNEL", 4)]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    packed=st.booleans(),
    rotary=st.sampled_from([None, 0, 1]),
    positions=st.booleans(),
    stage=st.sampled_from(["prompt", "token", "chunk"]),
    batch=st.sampled_from([1, 2]),
    free=st.booleans(),
    window=st.sampled_from([-1, 3, "both ways"]),
    softcap=st.sampled_from([0.0, 2.0]),
    sink=st.sampled_from(["", "smooth", "of each head"]),
    cache=st.sampled_from(CACHES),
    shown=st.sampled_from([0, 1, 2]),
)
def test_group_query_attention(
    seed: int,
    packed: bool,
    rotary: int | None,
    positions: bool,
    stage: str,
    batch: int,
    free: bool,
    window: int | str,
    softcap: float,
    sink: str,
    cache: tuple[str, int] | None,
    shown: int,
) -> None:
    """As onnxruntime computes it, and in torch; what a cache holds in 8 or 4 bits is the same code for code."""
    random = np.random.default_rng(seed)
    heads, shared, size = 4, 2, 16
    length, past = {"prompt": (4, 0), "token": (1, 5), "chunk": (3, 4)}[stage]
    batch = 1 if stage == "chunk" else batch  # all that the operator takes
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
    how: dict[str, Any] = {} if rotary is None else {"do_rotary": 1, "rotary_interleaved": rotary}
    constants = dict.fromkeys(("i7", "i8")) if rotary is None else dict(angles(size))
    feeds["i9"] = random.integers(0, 9, (batch, length)) if positions and rotary is not None else None
    feeds["i10"] = None
    feeds["i11"] = values(random, heads) if sink == "of each head" else None
    how |= {"causal": 0} if window == "both ways" else {"local_window_size": window}
    how |= {"smooth_softmax": 1} if sink == "smooth" else {}
    stored = TensorProto.FLOAT
    if cache is not None:
        kind, bits = cache
        how |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
        stored = TensorProto.INT8 if bits == 8 else TensorProto.UINT8
        low, end, element = (-128, 128, np.int8) if bits == 8 else (0, 256, np.uint8)
        for port, scale in ((3, 12), (4, 13)):
            feeds[f"i{port}"] = random.integers(low, end, (batch, shared, past, size * bits // 8)).astype(element)
            shape = (1,) if kind == "PER_TENSOR" else (1, shared, 1, size)
            constants[f"i{scale}"] = random.uniform(0.02 * 2 ** (8 - bits), 0.03 * 2 ** (8 - bits), shape).astype("f")
    outputs = ["y", "present_key", "present_value", *(["scores"] if shown else [])]
    how |= {"qk_output": shown} if shown else {}
    model = one_node(
        "GroupQueryAttention",
        feeds,
        outputs,
        domain=MICROSOFT,
        opset=17,
        constants=constants,
        free=free,
        num_heads=heads,
        kv_num_heads=shared,
        softcap=softcap,
        **how,
    )
    for info in model.graph.output[1:3]:
        info.type.tensor_type.elem_type = stored
    graph = Graph.from_model(model)
    (report,) = run_passes(graph, ["decompose_group_query_attention"])
    assert not report.declined
    given_feeds = {name: array for name, array in feeds.items() if array is not None}
    before, after = run_model(model, given_feeds), run_model(graph.to_model(), given_feeds)
    net = to_torch(Graph.from_model(model)).eval()
    in_torch = net(*(torch.from_numpy(given_feeds[info.name]) for info in model.graph.input))
    trained = {name: tensor.detach().numpy() for name, tensor in zip(outputs, in_torch, strict=True)}
    last = given_feeds["i5"] + 1
    for sequence in range(batch):  # what stands behind a shorter sequence in the cache means nothing
        one, used = slice(sequence, sequence + 1), slice(0, int(last[sequence]))
        parts = {
            "y": (one,),
            "present_key": (one, slice(None), used),
            "present_value": (one, slice(None), used),
            "scores": (one, slice(None), slice(None), used),
        }
        wanted = {name: before[name][parts[name]] for name in before}
        for made in (after, trained):
            assert_same_outputs(wanted, {name: made[name][parts[name]] for name in before}, 2e-5)


def test_norms_of_heads_inside_group_query_attention() -> None:
    """onnxruntime has them on GPUs only: the referee are norms in front of the operator."""
    random, heads, size = np.random.default_rng(5), 2, 8
    q, k, v = (values(random, 1, 3, heads * size) for _ in "qkv")
    q_norm, k_norm = values(random, size), values(random, size)
    rest = {"i3": None, "i4": None, "i5": np.asarray([2], np.int32), "i6": np.asarray(3, np.int32)}
    how: dict[str, Any] = {"domain": MICROSOFT, "opset": 17, "num_heads": heads, "kv_num_heads": heads}

    def normal(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        apart = x.reshape(1, 3, heads, size)
        return (apart / np.sqrt(np.square(apart).mean(-1, keepdims=True) + 1e-6) * gain).reshape(x.shape)

    apart = {"i0": normal(q, q_norm), "i1": normal(k, k_norm), "i2": v, **rest}
    expected = run_model(
        one_node("GroupQueryAttention", apart, ["y"], **how), {n: x for n, x in apart.items() if x is not None}
    )
    norms = {"i14": q_norm, "i15": k_norm}
    feeds = {"i0": q, "i1": k, "i2": v, **rest, **{f"i{port}": None for port in range(7, 14)}}
    model = one_node("GroupQueryAttention", feeds, ["y"], constants=norms, qk_norm_epsilon=1e-6, **how)
    graph = Graph.from_model(model)
    run_passes(graph, ["decompose_group_query_attention"])
    given_feeds = {name: array for name, array in feeds.items() if array is not None}
    assert_same_outputs(expected, run_model(graph.to_model(), given_feeds), 2e-5)
    net = to_torch(Graph.from_model(model)).eval()
    made = net(*(torch.from_numpy(given_feeds[info.name]) for info in model.graph.input))
    assert_same_outputs(expected, {"y": made.detach().numpy()}, 2e-5)


def test_group_query_attention_with_a_cache_that_forgets_stays() -> None:
    random = np.random.default_rng(0)
    cache = {port: values(random, 1, 1, 4, 16) for port in ("i3", "i4")}
    feeds = {
        "i0": values(random, 1, 2, 32),
        "i1": values(random, 1, 2, 16),
        "i2": values(random, 1, 2, 16),
        **cache,
        "i5": np.asarray([1], np.int32),
        "i6": np.asarray(2, np.int32),
    }
    how: dict[str, Any] = {"domain": MICROSOFT, "opset": 17, "num_heads": 2, "kv_num_heads": 1}
    model = one_node("GroupQueryAttention", feeds, ["y"], local_window_size=4, sliding_window_cache=1, **how)
    assert "forgets" in declined(model, "decompose_group_query_attention")
    with pytest.raises(UnsupportedError, match="forgets"):
        to_torch(Graph.from_model(model))
    model = one_node("GroupQueryAttention", feeds, ["y"], k_quant_type="PER_TENSOR", **how)
    assert "not known" in declined(model, "decompose_group_query_attention")
