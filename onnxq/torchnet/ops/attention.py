"""Attention of all kinds: masks, shared heads, caches, soft caps, windows, and scores that a graph rewrites.

    scores = (Q sqrt(scale)) (K sqrt(scale))^T       scaled before the product, so that half precision does not overflow
    scores = softcap tanh(scores / softcap)          if asked for
    Y      = softmax(scores + bias) V                bias: the mask, and -inf for keys that a query may not see

A query without any key that it may see gives zeros. The usual case ends in torch's fused attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import torch_dtype

RAW, CAPPED, BIASED, PROBABILITIES = range(4)
"""What the fourth output of Attention shows: the scores at one of three stages, or what the softmax made of them."""


@dataclass(frozen=True)
class _Settings:
    """The attributes of an Attention node."""

    scale: float | None
    causal: bool
    left: int
    right: int
    softcap: float
    precision: torch.dtype | None
    shown: int | None

    @property
    def fused(self) -> bool:
        """Whether torch's fused attention computes the same, as far as the attributes tell."""
        plain = self.softcap == 0 and self.left < 0 and self.right < 0
        return plain and self.precision is None and self.shown is None


@op("Attention", since=23)
def attention(call: Call) -> Kernel:
    precision = call.attribute("softmax_precision", None)
    query_heads, key_heads = call.attribute("q_num_heads", None), call.attribute("kv_num_heads", None)
    settings = _Settings(
        scale=call.attribute("scale", None),
        causal=bool(call.attribute("is_causal", 0)),
        left=call.attribute("left_window_size", -1),
        right=call.attribute("right_window_size", -1),
        softcap=call.attribute("softcap", 0.0),
        precision=None if precision is None else torch_dtype(precision),
        shown=call.attribute("qk_matmul_output_mode", RAW) if call.has_output(3) else None,
    )
    if settings.shown is not None and settings.shown not in range(4):
        raise call.unsupported(f"qk_matmul_output_mode {settings.shown}; ONNX knows 0, 1, 2 and 3")

    def run(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        packed = query.dim() == 3
        if packed:
            query, key, value = (
                split_heads(item, heads) for item, heads in ((query, query_heads), (key, key_heads), (value, key_heads))
            )
        past = 0 if past_key is None else past_key.shape[2]
        if past_key is not None and past_value is not None:
            key, value = torch.cat((past_key, key), 2), torch.cat((past_value, value), 2)
        if mask is not None and mask.shape[-1] < key.shape[2]:
            closed = False if mask.dtype is torch.bool else -math.inf
            mask = F.pad(mask, (0, key.shape[2] - mask.shape[-1]), value=closed)
        # Half precision is for storing: rounding after each of the steps would cost a bit of the result.
        outer, inner = query.dtype, torch.promote_types(query.dtype, torch.float32)
        q, k, v = query.to(inner), key.to(inner), value.to(inner)
        if mask is not None and mask.dtype is not torch.bool:
            mask = mask.to(inner)
        simple = settings.fused and past == 0 and lengths is None and not (settings.causal and mask is not None)
        shown: Tensor | None = None
        if simple:
            shared, causal = q.shape[1] != k.shape[1], settings.causal
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, scale=settings.scale, enable_gqa=shared
            )
        else:
            y, shown = _attend(settings, q, k, v, mask, past, lengths)
        y = (merge_heads(y) if packed else y).to(outer)
        return y, key, value, None if shown is None else shown.to(outer)

    return run


def _attend(
    settings: _Settings,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    past: int,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    stages = [_scores(query, shared_heads(key, query), settings.scale)]
    stages.append(settings.softcap * torch.tanh(stages[0] / settings.softcap) if settings.softcap else stages[0])
    bias = _bias(settings, stages[0], mask, past, lengths)
    stages.append(stages[1] if bias is None else stages[1] + bias)
    scores = stages[2] if settings.precision is None else stages[2].to(settings.precision)
    if bias is None:
        probabilities = torch.softmax(scores, -1)
    else:
        # Filled before and after: the softmax of nothing but -inf is NaN, and so would its gradients be.
        blind = torch.isneginf(bias.amax(-1, keepdim=True))
        probabilities = torch.softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0)
    probabilities = probabilities.to(query.dtype)
    stages.append(probabilities)
    y = probabilities @ shared_heads(value, query)
    return y, None if settings.shown is None else stages[settings.shown]


def _bias(settings: _Settings, scores: Tensor, mask: Tensor | None, past: int, lengths: Tensor | None) -> Tensor | None:
    """What is added to the scores: the mask, and -inf where a query may not look; None if it may look everywhere."""
    queries, keys = scores.shape[-2:]
    key_places = torch.arange(keys, device=scores.device)
    allowed: list[Tensor] = []
    if settings.causal or settings.left >= 0 or settings.right >= 0:
        first: Tensor | int = past if lengths is None else (lengths.reshape(-1, 1, 1, 1) - queries)
        ahead = key_places - torch.arange(queries, device=scores.device)[:, None] - first
        if settings.causal:
            allowed.append(ahead <= 0)
        if settings.left >= 0:
            allowed.append(ahead >= -settings.left)
        if settings.right >= 0:
            allowed.append(ahead <= settings.right)
    if lengths is not None:
        allowed.append(key_places < lengths.reshape(-1, 1, 1, 1))
    bias: Tensor | None = None
    if mask is not None:
        if mask.dtype is torch.bool:
            allowed.append(mask)
        else:
            bias = mask
    for item in allowed:
        closed = scores.new_zeros(()).masked_fill(~item, -math.inf)
        bias = closed if bias is None else bias + closed
    return bias


@op("FlexAttention", since=1, domain="ai.onnx.preview")
def flex_attention(call: Call) -> Kernel:
    """Attention whose scores and probabilities go through graphs of the model."""
    scale, precision = call.attribute("scale", None), call.attribute("softmax_precision", None)
    score_graph = call.body("score_mod") if call.has_attribute("score_mod") else None
    probability_graph = call.body("prob_mod") if call.has_attribute("prob_mod") else None

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        inner = torch_dtype(precision) if precision else torch.promote_types(query.dtype, torch.float32)
        scores = _scores(query, shared_heads(key, query), scale).to(inner)
        if score_graph is not None:
            scores = score_graph((scores,))[0].to(inner)
        probabilities = torch.softmax(scores, -1)
        if probability_graph is not None:
            probabilities = probability_graph((probabilities,))[0].to(inner)
        return (probabilities @ shared_heads(value, query).to(inner)).to(value.dtype)

    return run


def _scores(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    factor = query.new_tensor(root)
    return (query * factor) @ (key * factor).transpose(-1, -2)


def split_heads(packed: Tensor, heads: int) -> Tensor:
    """(batch, length, heads x size) as (batch, heads, length, size)."""
    return packed.reshape(*packed.shape[:2], heads, packed.shape[2] // heads).transpose(1, 2)


def merge_heads(split: Tensor) -> Tensor:
    """(batch, heads, length, size) as (batch, length, heads x size)."""
    return split.transpose(1, 2).flatten(2)


def shared_heads(item: Tensor, query: Tensor) -> Tensor:
    """Keys or values with as many heads as the query: neighbouring heads of the query share one."""
    shares = query.shape[1] // item.shape[1]
    return item if shares == 1 else item.repeat_interleave(shares, 1)
