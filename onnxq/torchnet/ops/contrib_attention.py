"""Attention of com.microsoft with projections inside and with heads apart, and rotary positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.attention import merge_heads, split_heads
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
    call.keep_fixed(2, 3)

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
        scores = _up_to_own(scores, past) if causal else scores
        return merge_heads(torch.softmax(scores, -1) @ v), k, v, scores

    return run


@op("Attention", since=1, domain=MICROSOFT)
def packed_attention(call: Call) -> Kernel:
    """Query, key and value are one product of the input; the cache holds keys and values in one tensor."""
    heads, causal = int(call.attribute("num_heads")), bool(call.attribute("unidirectional", 0))
    scale, filled = call.attribute("scale", None), float(call.attribute("mask_filter_value", -10000.0))
    sizes = [int(size) for size in call.attribute("qkv_hidden_sizes", [])]
    if call.attribute("do_rotary", 0) or call.attribute("past_present_share_buffer", 0) or not call.has_input(1):
        raise call.unsupported("rotary positions, a cache that is written in place, or no weights")
    if call.has_output(1) and len(set(sizes[1:])) > 1:
        raise call.unsupported("a cache of keys and values of unlike sizes")

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
        scores = _up_to_own(scores, before) if causal else scores
        return merge_heads(torch.softmax(scores, -1) @ v), torch.stack((k, v)) if k.shape == v.shape else None

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
    """0 or `filled`, of the shape of the scores: from (batch, keys), (batch, queries, keys) or a list.

    A list has the number of keys of each of the batch, and where it is twice as long, the first of them.
    """
    if mask.dim() == 1:
        places = torch.arange(scores.shape[-1], device=mask.device)
        batch = scores.shape[0]
        starts = mask[batch:] if mask.shape[0] == 2 * batch else mask.new_zeros(batch)
        mask = (places < mask[:batch, None]) & (places >= starts[:, None])
    shape = (mask.shape[0], *(1,) * (4 - mask.dim()), *mask.shape[1:])
    return torch.where(mask.reshape(shape) > 0, scores.new_zeros(()), scores.new_tensor(filled))


def _up_to_own(scores: Tensor, past: int) -> Tensor:
    """The lowest number for keys behind the query's own place; the last query sees all of them."""
    queries, keys = scores.shape[-2:]
    own = torch.arange(queries, device=scores.device)[:, None]
    hidden = (torch.arange(keys, device=scores.device) > own + past) & (own < queries - 1)
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
