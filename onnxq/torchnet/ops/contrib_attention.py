"""Attention of com.microsoft: with projections inside, with heads apart, and with shared heads and a cache."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.attention import merge_heads, shared_heads, split_heads
from onnxq.torchnet.ops.contrib import MICROSOFT
from onnxq.torchnet.ops.linear_attention import turned
from onnxq.torchnet.registry import Kernel, op

Outputs = tuple[Tensor | None, ...]


@op("RotaryEmbedding", since=1, domain=MICROSOFT)
def rotary_embedding(call: Call) -> Kernel:
    """Positions are the second input: one for each token, or that of the first alone."""
    heads, size = int(call.attribute("num_heads", 0)), int(call.attribute("rotary_embedding_dim", 0))
    interleaved = bool(call.attribute("interleaved", 0))
    if call.attribute("is_packed_batching", 0) or call.attribute("scale", 1.0) != 1.0:
        raise call.unsupported("packed batches, or positions that are scaled")

    def run(x: Tensor, positions: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        packed = x.dim() == 3
        split = split_heads(x, heads or x.shape[-1] // (2 * cosine.shape[-1])) if packed else x
        places = positions.long()
        if places.numel() == 1 and places.dim() == 1:
            places = places + torch.arange(split.shape[2], device=x.device)[None]
        y = turned(split, cosine[places][:, None], sine[places][:, None], size or split.shape[-1], interleaved)
        return merge_heads(y) if packed else y

    return run


@op("MultiHeadAttention", since=1, domain=MICROSOFT)
def multi_head_attention(call: Call) -> Kernel:
    heads, causal = int(call.attribute("num_heads")), bool(call.attribute("unidirectional", 0))
    scale, filled = call.attribute("scale", None), float(call.attribute("mask_filter_value", -10000.0))
    if call.has_input(8) or call.has_input(9):
        raise call.unsupported("a cache that is written in place")

    def run(
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        bias: Tensor | None = None,
        padding: Tensor | None = None,
        added: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
    ) -> Outputs:
        q, k, v = _apart(query, key, value, bias, heads)
        past = 0
        if past_key is not None and past_value is not None:
            past = past_key.shape[2]
            k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
        scores = _scores(q, k, scale)
        scores = scores if padding is None else scores + _padding(padding, filled, scores)
        scores = scores if added is None else scores + added
        y = _attended(scores, v, _behind(scores, past) if causal else None)
        return merge_heads(y), k, v, scores

    return run


@op("Attention", since=1, domain=MICROSOFT)
def packed_attention(call: Call) -> Kernel:
    """Query, key and value are one product of the input; the cache holds keys and values in one tensor."""
    heads, causal = int(call.attribute("num_heads")), bool(call.attribute("unidirectional", 0))
    scale, filled = call.attribute("scale", None), float(call.attribute("mask_filter_value", -10000.0))
    sizes = [int(size) for size in call.attribute("qkv_hidden_sizes", [])]
    if call.attribute("do_rotary", 0) or call.attribute("past_present_share_buffer", 0) or not call.has_input(1):
        raise call.unsupported("rotary positions, a cache that is written in place, or no weights")

    def run(
        x: Tensor,
        weights: Tensor,
        bias: Tensor | None = None,
        padding: Tensor | None = None,
        past: Tensor | None = None,
        added: Tensor | None = None,
    ) -> Outputs:
        projected = x @ weights if bias is None else x @ weights + bias
        parts = torch.split(projected, sizes or [projected.shape[-1] // 3] * 3, -1)
        q, k, v = (split_heads(part, heads) for part in parts)
        before = 0
        if past is not None:
            before = past.shape[3]
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        scores = _scores(q, k, scale)
        scores = scores if padding is None else scores + _padding(padding, filled, scores)
        scores = scores if added is None else scores + added
        y = _attended(scores, v, _behind(scores, before) if causal else None)
        return merge_heads(y), torch.stack((k, v)) if k.shape == v.shape else None

    return run


@op("GroupQueryAttention", since=1, domain=MICROSOFT)
def group_query_attention(call: Call) -> Kernel:
    """Heads of the query that share keys and values, rotary positions, and a cache with a length for each sequence."""
    heads, shared = int(call.attribute("num_heads")), int(call.attribute("kv_num_heads"))
    scale, softcap = call.attribute("scale", None), float(call.attribute("softcap", 0.0))
    rotary, interleaved = bool(call.attribute("do_rotary", 0)), bool(call.attribute("rotary_interleaved", 0))
    window = int(call.attribute("local_window_size", -1))
    if call.has_input(12) or call.has_input(13) or call.attribute("k_quant_type", "NONE") != "NONE":
        raise call.unsupported("a quantized cache")
    if call.has_output(3):
        raise call.unsupported("showing its scores")
    smooth = int(call.attribute("smooth_softmax", 0)) == 1

    def run(
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        past_key: Tensor | None,
        past_value: Tensor | None,
        last: Tensor,
        total: Tensor,
        cosine: Tensor | None = None,
        sine: Tensor | None = None,
        positions: Tensor | None = None,
        added: Tensor | None = None,
        sink: Tensor | None = None,
    ) -> Outputs:
        if key is None or value is None:
            size = query.shape[-1] // (heads + 2 * shared)
            query, key, value = torch.split(query, [heads * size, shared * size, shared * size], -1)
        q, k, v = split_heads(query, heads), split_heads(key, shared), split_heads(value, shared)
        length = q.shape[2]
        past = (last.long().reshape(-1) + 1 - length).clamp(min=0)
        steps = torch.arange(length, device=q.device)
        if rotary and cosine is not None and sine is not None:
            places = past[:, None] + steps if positions is None else positions.long()
            places = places.clamp(max=cosine.shape[0] - 1)
            angles = cosine[places][:, None], sine[places][:, None]
            q, k = (turned(item, *angles, 2 * cosine.shape[-1], interleaved) for item in (q, k))
        if past_key is not None and past_value is not None:
            k, v = _appended(past_key, k, past), _appended(past_value, v, past)
        scores = _scores(q, shared_heads(k, q), scale)
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        scores = scores if added is None else scores + added
        ahead = torch.arange(k.shape[2], device=q.device) - steps[:, None] - past.reshape(-1, 1, 1, 1)
        hidden = ahead > 0
        if window > 0:
            hidden = hidden | (ahead <= -window)
        if sink is None and not smooth:
            y = _attended(scores, shared_heads(v, q), hidden)
        else:
            extra = scores.new_zeros(heads) if sink is None else sink.to(scores.dtype)
            column = extra.reshape(1, heads, 1, 1).expand(*scores.shape[:3], 1)
            open_scores = scores.masked_fill(hidden, -math.inf)
            y = torch.softmax(torch.cat((open_scores, column), -1), -1)[..., :-1] @ shared_heads(v, q)
        return merge_heads(y), k, v

    return run


def _apart(
    query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as (batch, heads, length, size), the bias added."""
    if query.dim() == 5:
        q, k, v = (part.transpose(1, 2) for part in query.unbind(3))
        return q, k, v
    assert key is not None
    if bias is not None:
        width = query.shape[-1]
        query = query + bias[:width]
        if key.dim() == 3 and value is not None:
            key, value = key + bias[width : 2 * width], value + bias[2 * width :]
    if key.dim() == 5:
        k, v = (part.transpose(1, 2) for part in key.unbind(3))
        return split_heads(query, heads), k, v
    assert value is not None
    if key.dim() == 4:
        return split_heads(query, heads), key, value
    return split_heads(query, heads), split_heads(key, heads), split_heads(value, heads)


def _scores(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    factor = scale if scale else 1 / math.sqrt(query.shape[-1])
    return (query * factor) @ key.transpose(-1, -2)


def _padding(mask: Tensor, filled: float, scores: Tensor) -> Tensor:
    """0 or `filled`, of the shape of the scores: from (batch, keys), (batch, queries, keys) or with the heads."""
    if mask.dim() == 1:
        places = torch.arange(scores.shape[-1], device=mask.device)
        batch = scores.shape[0]
        mask = places < mask[:batch, None]
    shape = (mask.shape[0], *(1,) * (4 - mask.dim()), *mask.shape[1:])
    return torch.where(mask.reshape(shape) > 0, scores.new_zeros(()), scores.new_tensor(filled))


def _behind(scores: Tensor, past: int) -> Tensor:
    """True for keys that come after the query."""
    queries, keys = scores.shape[-2:]
    places = torch.arange(keys, device=scores.device)
    return places > torch.arange(queries, device=scores.device)[:, None] + past


def _attended(scores: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores if hidden is None else scores.masked_fill(hidden, lowest), -1) @ value


def _appended(past: Tensor, new: Tensor, lengths: Tensor) -> Tensor:
    """The cache with the new tokens right behind those of each sequence."""
    joined = torch.cat((past, new), 2)
    places = torch.arange(joined.shape[2], device=past.device)[None]
    behind = places + (past.shape[2] - lengths[:, None])
    chosen = torch.where(places < lengths[:, None], places, behind.clamp(max=joined.shape[2] - 1))
    return joined.gather(2, chosen[:, None, :, None].expand_as(joined))
