"""A decoder with a cache of keys and values: which input is what, and the feeds for a prompt and for what follows it.

Names come from genai_config.json, else from the model itself, as Optimum and transformers.js call them:
past_key_values.N.key -> present.N.key, use_cache_branch of merged decoders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.graph.caches import caches
from onnxq.integrations.huggingface.genai_config import GenaiConfig
from onnxq.runtime import input_infos
from onnxq.runtime.feeds import Feed, InputInfo

_PLAIN = ("input_ids", "attention_mask", "position_ids")
_BRANCH = "use_cache_branch"
_TOTAL = ("total_sequence_length", "total_seq_len")
_BEFORE = ("past_sequence_length", "past_seq_len")


@dataclass(frozen=True)
class Decoder:
    """The inputs of a model by what they are; `past` is input -> the output that continues it, and its empty shape."""

    inputs: tuple[InputInfo, ...]
    roles: Mapping[str, str]
    past: Mapping[str, str]
    empty: Mapping[str, tuple[int, ...]]
    logits: str
    context: int | None

    @classmethod
    def of(cls, graph: Graph, config: GenaiConfig | None = None) -> Decoder | None:
        """The decoder that a graph is; None for a model without past keys and values."""
        inputs, outputs = tuple(input_infos(graph)), set(graph.output_names)
        past = _past_of(graph, outputs, config)
        if not past:
            return None
        names = {name: key for key, name in config.inputs.items()} if config else {name: name for name in _PLAIN}
        roles = {info.name: names[info.name] for info in inputs if info.name in names}
        for info in inputs:
            if info.name in (_BRANCH, *_TOTAL, *_BEFORE):
                roles[info.name] = info.name
        unknown = [f"'{info.name}' {info}" for info in inputs if info.name not in roles and info.name not in past]
        if unknown or "input_ids" not in roles.values():
            listed = ", ".join(unknown) if unknown else "there is no input for tokens"
            raise DataError(
                f"prompts become {', '.join(_PLAIN)} and past keys and values, and this decoder is another one: "
                f"{listed}. Give its feeds as .npz files (docs/data.md)"
            )
        empty = {info.name: _empty(info, config) for info in inputs if info.name in past}
        logits = config.logits if config else "logits"
        context = config.context if config else None
        return cls(inputs, roles, past, empty, logits if logits in outputs else next(iter(outputs)), context)

    def feed(self, ids: np.ndarray, past: Mapping[str, np.ndarray] | None = None) -> Feed:
        """The inputs for tokens [batch, new], behind those that `past` (input -> keys or values) was made of."""
        batch, new = ids.shape
        before = 0 if not past else next(iter(past.values())).shape[-2]
        made: dict[str, np.ndarray] = {
            "input_ids": ids,
            "attention_mask": np.ones((batch, before + new), np.int64),
            "position_ids": np.broadcast_to(np.arange(before, before + new), (batch, new)),
            _BRANCH: np.array([before > 0]),
            **dict.fromkeys(_TOTAL, np.array(before + new)),
            **dict.fromkeys(_BEFORE, np.array(before)),
        }
        feed: Feed = {}
        for info in self.inputs:
            if info.name in self.past:
                feed[info.name] = past[info.name] if past else self.nothing(info, batch)
                continue
            values = made[self.roles[info.name]]
            if not values.ndim:
                values = values.reshape([1] * len(info.shape))
            feed[info.name] = np.ascontiguousarray(values, info.dtype)
        return feed

    def nothing(self, info: InputInfo, batch: int) -> np.ndarray:
        """The cache before the first token."""
        return np.zeros((batch, *self.empty[info.name][1:]), info.dtype)

    def continued(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The past of the next step, out of what a step has returned."""
        return {given: outputs[made] for given, made in self.past.items()}


def _past_of(graph: Graph, outputs: set[str], config: GenaiConfig | None) -> dict[str, str]:
    if config is not None:
        given = set(graph.input_names)
        found = {past: present for past, present in config.cached.items() if past in given}
        lost = [name for name in found.values() if name not in outputs]
        if lost:
            raise DataError(f"{config.path} names output '{lost[0]}', which {config.filename} does not have")
        return found
    return caches(graph)


def _empty(info: InputInfo, config: GenaiConfig | None) -> tuple[int, ...]:
    """Batch, heads, 0, head size."""
    if len(info.shape) != 4:
        raise DataError(f"input '{info.name}' is {info}: past keys and values have batch, heads, tokens and head size")
    sizes = []
    for axis, known in ((1, config.heads if config else None), (3, config.head_size if config else None)):
        size = info.shape[axis]
        chosen = size if isinstance(size, int) else known
        if chosen is None:
            raise DataError(f"the heads of input '{info.name}' ({info}) have no size: give feeds as .npz files instead")
        sizes.append(chosen)
    return 1, sizes[0], 0, sizes[1]
