"""Attention without a softmax, which carries a state from step to step, and rotary positions.

S_t = exp(decay_t) S_{t-1} + k_t v_t^T           "linear" without the decay, "gated" with it
S_t = ... + k_t (beta_t (v_t - S^T k_t))^T       "delta", "gated_delta": only what the state does not know
o_t = scale q_t^T S_t
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.attention import merge_heads, shared_heads, split_heads
from onnxq.torchnet.registry import Kernel, op

RULES = ("linear", "gated", "delta", "gated_delta")


@op("LinearAttention", since=27)
def linear_attention(call: Call) -> Kernel:
    rule = call.attribute("update_rule", "gated_delta")
    if rule not in RULES:
        raise call.unsupported(f"update_rule '{rule}'; ONNX knows {', '.join(RULES)}")
    query_heads, key_heads = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    scale = call.attribute("scale", 0.0)
    gated, corrected = rule.startswith("gated"), rule.endswith("delta")

    def run(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        past: Tensor | None = None,
        decay: Tensor | None = None,
        beta: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        inner = torch.promote_types(query.dtype, torch.float32)
        q = split_heads(query, query_heads).to(inner)
        k, v = split_heads(key, key_heads).to(inner), split_heads(value, key_heads).to(inner)
        state = q.new_zeros(q.shape[0], key_heads, k.shape[-1], v.shape[-1]) if past is None else past.to(inner)
        kept = split_heads(decay, key_heads).to(inner).exp() if gated and decay is not None else None
        trust = split_heads(beta, beta.shape[-1]).to(inner) if corrected and beta is not None else None
        factor = scale or 1 / math.sqrt(k.shape[-1])
        steps = []
        for step in range(q.shape[2]):
            if kept is not None:
                state = state * kept[:, :, step, :, None]
            written = v[:, :, step, None]
            if trust is not None:
                known = k[:, :, step, None] @ state
                written = trust[:, :, step, None] * (written - known)
            state = state + k[:, :, step, :, None] * written
            steps.append(factor * (q[:, :, step, None] @ shared_heads(state, q)))
        y = torch.cat(steps, 2) if steps else q.new_zeros(*q.shape[:3], v.shape[-1])
        return merge_heads(y).to(query.dtype), state.to(query.dtype if past is None else past.dtype)

    return run


@op("RotaryEmbedding", since=23)
def rotary_embedding(call: Call) -> Kernel:
    """Pairs of features turned by angles that grow with the position."""
    heads = call.attribute("num_heads", 0)
    features = call.attribute("rotary_embedding_dim", 0)
    interleaved = bool(call.attribute("interleaved", 0))
    call.keep_fixed(1, 2)

    def run(x: Tensor, cosine: Tensor, sine: Tensor, positions: Tensor | None = None) -> Tensor:
        packed = x.dim() == 3
        split = split_heads(x, heads) if packed else x
        if positions is not None:
            cosine, sine = cosine[positions.long()], sine[positions.long()]
        y = turned(split, cosine[:, None], sine[:, None], features or split.shape[-1], interleaved)
        return merge_heads(y) if packed else y

    return run


def turned(split: Tensor, cosine: Tensor, sine: Tensor, size: int, interleaved: bool) -> Tensor:
    """The first `size` features of (batch, heads, length, features), turned in pairs; the others as they are."""
    moving, staying = split[..., :size], split[..., size:]
    if interleaved:
        first, second = moving[..., 0::2], moving[..., 1::2]
    else:
        first, second = moving.chunk(2, -1)
    real, imaginary = first * cosine - second * sine, first * sine + second * cosine
    moved = torch.stack((real, imaginary), -1).flatten(-2) if interleaved else torch.cat((real, imaginary), -1)
    return moved if size == split.shape[-1] else torch.cat((moved, staying), -1)
