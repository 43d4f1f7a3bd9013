"""GroupQueryAttention of com.microsoft: shared heads, rotary positions, a cache in float, 8 or 4 bits, sinks.

The cache holds codes, clip(round(x / scale)), two of 4 bits to a byte; new keys and values are rounded to them, too.
Gradients pass through the rounding as if it were not there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.attention import merge_heads, shared_heads, split_heads
from onnxq.torchnet.ops.contrib import MICROSOFT
from onnxq.torchnet.ops.linear_attention import turned
from onnxq.torchnet.registry import Kernel, op

BEFORE_SOFTMAX, AFTER_SOFTMAX = 1, 2
"""The attribute `qk_output`: which scores the fourth output shows."""
STORED = {torch.int8: 8, torch.uint8: 4}
"""The type of a cache of codes -> their bits."""


@dataclass(frozen=True)
class _Codes:
    """How keys or values (batch, heads, length, size) are stored."""

    kind: str
    scale: Tensor | None
    cache: Tensor | None

    @property
    def quantized(self) -> bool:
        return self.kind != "NONE" and self.scale is not None and self.cache is not None

    def appended(self, new: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """What is attended to, and what the cache holds then."""
        if self.cache is None:
            return new, new
        if not self.quantized or self.scale is None:
            joined = _behind(self.cache, new, past)
            return joined, joined
        bits = STORED[self.cache.dtype]
        shape = (1, 1, 1, 1) if self.kind == "PER_TENSOR" else (1, new.shape[1], 1, new.shape[3])
        scale = self.scale.reshape(shape)
        exact = new / scale
        inside = exact.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        codes = inside + (inside.round() - inside).detach()
        joined = _behind(_unpacked(self.cache, bits, new.shape[3]).to(new.dtype), codes, past)
        return joined * scale, _packed(joined.detach(), bits)


def _unpacked(cache: Tensor, bits: int, size: int) -> Tensor:
    if bits == 8:
        return cache
    return torch.stack((cache & 15, cache >> 4), -1).flatten(-2)[..., :size].to(torch.int8) - 8


def _packed(codes: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return codes.to(torch.int8)
    raised = (codes + 8).to(torch.uint8)
    return raised[..., 0::2] | (raised[..., 1::2] << 4)


@op("GroupQueryAttention", since=1, domain=MICROSOFT)
def group_query_attention(call: Call) -> Kernel:
    """Heads of the query that share keys and values, rotary positions, and a cache with a length for each sequence."""
    heads, shared = int(call.attribute("num_heads")), int(call.attribute("kv_num_heads"))
    scale, softcap = call.attribute("scale", None), float(call.attribute("softcap", 0.0))
    rotary, interleaved = bool(call.attribute("do_rotary", 0)), bool(call.attribute("rotary_interleaved", 0))
    causal, window = bool(call.attribute("causal", 1)), int(call.attribute("local_window_size", -1))
    smooth = int(call.attribute("smooth_softmax", 0)) == 1
    kinds = call.attribute("k_quant_type", "NONE"), call.attribute("v_quant_type", "NONE")
    epsilon = float(call.attribute("qk_norm_epsilon", 1e-6))
    shown = int(call.attribute("qk_output", 0)) if call.has_output(3) else 0
    if call.attribute("sliding_window_cache", 0):
        raise call.unsupported("a cache that holds a window and forgets what is older")
    stored = call.element_type(3)
    if kinds != ("NONE", "NONE") and stored is not None and stored not in (np.int8, np.uint8):
        raise call.unsupported(f"a quantized cache of {stored.name}")
    call.keep_fixed(7, 8, 12, 13)

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
        key_scale: Tensor | None = None,
        value_scale: Tensor | None = None,
        query_norm: Tensor | None = None,
        key_norm: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        if key is None or value is None:
            size = query.shape[-1] // (heads + 2 * shared)
            query, key, value = torch.split(query, [heads * size, shared * size, shared * size], -1)
        q, k, v = split_heads(query, heads), split_heads(key, shared), split_heads(value, shared)
        if query_norm is not None and key_norm is not None:
            q, k = (functional.rms_norm(x, x.shape[-1:], norm, epsilon) for x, norm in ((q, query_norm), (k, key_norm)))
        length = q.shape[2]
        lengths = last.long().reshape(-1) + 1
        past = (lengths - length).clamp(min=0)
        steps = torch.arange(length, device=q.device)
        if rotary and cosine is not None and sine is not None:
            if positions is None:
                places = past[:, None] + steps
            else:  # of a first prompt the operator reads the first position alone, and counts on from there
                places = positions.long() if int(total) != length else positions.reshape(-1)[0].long() + steps[None]
            places = places.clamp(max=cosine.shape[0] - 1)
            angles = cosine[places][:, None], sine[places][:, None]
            q, k = (turned(item, *angles, 2 * cosine.shape[-1], interleaved) for item in (q, k))
        k, present_key = _Codes(kinds[0], key_scale, past_key).appended(k, past)
        v, present_value = _Codes(kinds[1], value_scale, past_value).appended(v, past)
        scores = (q * (scale or 1 / math.sqrt(q.shape[-1]))) @ shared_heads(k, q).transpose(-1, -2)
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        scores = scores if added is None else scores + added
        places = torch.arange(k.shape[2], device=q.device)
        own = steps[:, None] + past.reshape(-1, 1, 1, 1)
        hidden = places > own if causal else places >= lengths.reshape(-1, 1, 1, 1)
        if window > 0:
            hidden = hidden | (places <= own - window)
        probabilities = _softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), sink, smooth)
        y = probabilities @ shared_heads(v, q)
        stages = {BEFORE_SOFTMAX: scores.masked_fill(hidden, 0), AFTER_SOFTMAX: probabilities}
        return merge_heads(y), present_key, present_value, stages.get(shown)

    return run


def _softmax(scores: Tensor, sink: Tensor | None, smooth: bool) -> Tensor:
    """With a sink, which is 0 where it is only smooth: the score of a key whose value is 0."""
    if sink is None and not smooth:
        return torch.softmax(scores, -1)
    heads = scores.shape[1]
    extra = scores.new_zeros(heads) if sink is None else sink.to(scores.dtype)
    column = extra.reshape(1, heads, 1, 1).expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat((scores, column), -1), -1)[..., :-1]


def _behind(past: Tensor, new: Tensor, lengths: Tensor) -> Tensor:
    """The cache with the new tokens right behind those of each sequence."""
    joined = torch.cat((past, new), 2)
    places = torch.arange(joined.shape[2], device=past.device)[None]
    behind = places + (past.shape[2] - lengths[:, None])
    chosen = torch.where(places < lengths[:, None], places, behind.clamp(max=joined.shape[2] - 1))
    return joined.gather(2, chosen[:, None, :, None].expand_as(joined))
