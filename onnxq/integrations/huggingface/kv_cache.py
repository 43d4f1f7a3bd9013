"""The cache of keys and values in 8 or 4 bits, as GroupQueryAttention of onnxruntime holds it.

    code = clip(round(x / scale), -8 or -128, 7 or 127)       scale for each channel of each head, keys and values apart

int8 caches are int8 tensors, int4 ones uint8 with two codes to a byte. The scales are constants of the node (k_scale,
v_scale), found on prompts: with 8 bits they cover what was seen, with 4 bits the range with the least squared error.
Nothing else of the model changes, but the types of its past inputs and present outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxq.errors import CheckFailed, ConfigError
from onnxq.files import json_number
from onnxq.graph import Graph
from onnxq.graph.load import parse_model
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.genai_config import GenaiConfig
from onnxq.json_file import JsonObject
from onnxq.runtime.session import float_session, run_session

ATTENTION, DOMAIN = "GroupQueryAttention", "com.microsoft"
PAST_KEY, K_SCALE = 3, 12
"""Inputs of the operator; values stand behind keys."""
BITS = {f"int{bits}": bits for bits in (8, 4)}
ROWS = 4096
"""Tokens of each layer that scales are found on, at most."""
FACTORS = (1.0, 0.93, 0.86, 0.8, 0.74, 0.68, 0.62, 0.56, 0.5)
"""Parts of the largest value that a range of 4 bits may cover."""
LEAST_DB = 5.0
CHECKED = 16
"""Prompts that the new file is run on."""


@dataclass(frozen=True)
class CacheReport:
    """dB of the logits behind a past, the float cache's being right; how often the highest one is the same."""

    kind: str
    layers: int
    sqnr_db: float
    agreement: float
    bytes_per_token: tuple[int, int]

    def to_json(self) -> JsonObject:
        return {
            "format": self.kind,
            "layers": self.layers,
            "sqnr_db": json_number(self.sqnr_db),
            "agreement": self.agreement,
            "bytes_per_token": list(self.bytes_per_token),
        }


def quantize_cache(
    model: Path, prompts: Sequence[np.ndarray], kind: str, config: GenaiConfig | None = None
) -> CacheReport:
    """Let the attention of a file keep its cache in 8 or 4 bits; the file is replaced when it has passed its check.

    prompts  numbers of tokens [1, tokens], on which scales are found and the new file is held against the old one
    kind     int8 or int4
    """
    if kind not in BITS:
        raise ConfigError(f"a cache is {' or '.join(BITS)}, not '{kind}'")
    graph = Graph.load(model)
    decoder = Decoder.of(graph, config)
    proto = parse_model(model)
    nodes = [] if decoder is None else _attention(proto, decoder)
    if decoder is None or not nodes:
        raise ConfigError(
            f"'{model}' has no {ATTENTION} with a past of its own: onnxruntime quantizes the cache of no other operator"
        )
    prompts = [prompt for prompt in prompts if prompt.shape[1] > 1]
    if not prompts:
        raise ConfigError("a quantized cache is calibrated: give prompts of two tokens or more")
    seen = _seen(graph, decoder, nodes, prompts)
    before = sum(values.shape[0] * values.shape[2] * values.itemsize for values in seen.values())
    _change(proto, decoder, nodes, seen, BITS[kind])
    part = model.with_name(f".{model.name}.cache")
    try:
        onnx.save(proto, part)
        after = sum(values.shape[0] * values.shape[2] for values in seen.values()) * BITS[kind] // 8
        changed = Graph.load(part)
        db, agreement = _compared((graph, decoder), (changed, Decoder.of(changed, config)), prompts[:CHECKED])
        if not db >= LEAST_DB:
            raise CheckFailed(f"with a cache of {kind} the logits have {db:.1f} dB, below {LEAST_DB:g} dB")
        part.replace(model)
    finally:
        part.unlink(missing_ok=True)
    return CacheReport(kind, len(nodes), db, agreement, (before, after))


def _attention(proto: onnx.ModelProto, decoder: Decoder) -> list[onnx.NodeProto]:
    """The nodes whose past is an input of the model and whose cache is not quantized yet."""
    found = []
    for node in proto.graph.node:
        if node.op_type == ATTENTION and node.domain == DOMAIN and len(node.input) > PAST_KEY + 1:
            past = list(node.input[PAST_KEY : PAST_KEY + 2])
            quantized = any(entry.name == "kv_cache_bit_width" and entry.i for entry in node.attribute)
            if not quantized and all(name in decoder.past for name in past):
                found.append(node)
    return found


def _seen(
    graph: Graph, decoder: Decoder, nodes: Sequence[onnx.NodeProto], prompts: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Past input -> what is cached [heads, tokens, head size], of all prompts together."""
    names = [decoder.past[name] for node in nodes for name in node.input[PAST_KEY : PAST_KEY + 2]]
    session, parts, tokens = float_session(graph), dict[str, list[np.ndarray]](), 0
    for number, prompt in enumerate(prompts):
        if tokens >= ROWS:
            break
        tokens += prompt.shape[1]
        for name, values in zip(
            names, run_session(session, names, decoder.feed(prompt), f"prompt {number}"), strict=True
        ):
            parts.setdefault(name, []).append(values[0])
    given = {present: past for past, present in decoder.past.items()}
    return {given[name]: np.concatenate(each, axis=1) for name, each in parts.items()}


def scales_of(values: np.ndarray, bits: int) -> np.ndarray:
    """A scale for each channel of each head, [heads * head size], of values [heads, tokens, head size]."""
    x = values.astype(np.float32)
    most = 2 ** (bits - 1) - 1
    whole = np.maximum(np.abs(x).max(axis=1), np.finfo(np.float32).tiny * most) / most
    best, least = whole, np.full(whole.shape, np.inf)
    for factor in FACTORS if bits < 8 else (1.0,):
        scale = (whole * factor).astype(np.float32)
        codes = np.clip(np.round(x / scale[:, None]), -most - 1, most)
        error = np.square(codes * scale[:, None] - x).sum(axis=1, dtype=np.float64)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return np.asarray(best, np.float32).reshape(-1)


def _change(
    proto: onnx.ModelProto,
    decoder: Decoder,
    nodes: Sequence[onnx.NodeProto],
    seen: Mapping[str, np.ndarray],
    bits: int,
) -> None:
    ends = {value.name: value for value in (*proto.graph.input, *proto.graph.output)}
    for node in nodes:
        past = list(node.input[PAST_KEY : PAST_KEY + 2])
        node.input.extend([""] * (K_SCALE + 2 - len(node.input)))
        for port, name in enumerate(past):
            scale = f"{name}_scale"
            proto.graph.initializer.append(numpy_helper.from_array(scales_of(seen[name], bits), scale))
            node.input[K_SCALE + port] = scale
            for end in (ends[name], ends[decoder.past[name]]):
                tensor = end.type.tensor_type
                tensor.elem_type = TensorProto.INT8 if bits == 8 else TensorProto.UINT8
                size = seen[name].shape[2]
                tensor.shape.dim[3].dim_value = size if bits == 8 else (size + 1) // 2
        node.attribute.extend(
            [
                onnx.helper.make_attribute("kv_cache_bit_width", bits),
                onnx.helper.make_attribute("k_quant_type", "PER_CHANNEL"),
                onnx.helper.make_attribute("v_quant_type", "PER_CHANNEL"),
            ]
        )


def _compared(
    old: tuple[Graph, Decoder], new: tuple[Graph, Decoder | None], prompts: Sequence[np.ndarray]
) -> tuple[float, float]:
    """dB of the logits of second halves of prompts, behind a cache of the first; how often the highest is the same."""
    signal = noise = same = count = 0.0
    assert new[1] is not None
    for wanted, got in zip(_second_halves(*old, prompts), _second_halves(new[0], new[1], prompts), strict=True):
        signal += float(np.square(wanted, dtype=np.float64).sum())
        noise += float(np.square(got.astype(np.float64) - wanted).sum())
        same += float((wanted.argmax(-1) == got.argmax(-1)).sum())
        count += wanted[..., 0].size
    db = float(10 * np.log10(signal / noise)) if noise > 0 else np.inf
    return db, same / count


def _second_halves(graph: Graph, decoder: Decoder, prompts: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    session, names = float_session(graph), [decoder.logits, *decoder.past.values()]
    for number, prompt in enumerate(prompts):
        cut, where = prompt.shape[1] // 2, f"prompt {number}"
        first = dict(zip(names, run_session(session, names, decoder.feed(prompt[:, :cut]), where), strict=True))
        past = decoder.continued(first)
        logits: np.ndarray = run_session(session, names[:1], decoder.feed(prompt[:, cut:], past), where)[0]
        yield logits
