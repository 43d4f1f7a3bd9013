"""stories15M as a folder of ONNX Runtime GenAI: model.onnx with GroupQueryAttention, genai_config.json, a tokenizer.

    python -m tools.zoo.stories_folder OUT [--apart]

The graph is what the model builder of that project writes for a Llama: SimplifiedLayerNormalization, attention with
rotary positions and a cache of keys and values, and a mask that becomes lengths. Table and head are one constant, or
with --apart two, which is all that other tools can quantize.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.zoo.packages import Cache, default_cache
from tools.zoo.stories import IR_VERSION, OPSET, Llama, Writer, read_stories

MICROSOFT = "com.microsoft"
BEGIN, END = 1, 2
MARK = "\u2581"
"""What stands for a space in pieces of SentencePiece."""


def write_folder(cache: Cache, folder: Path, *, apart: bool = False) -> None:
    given = read_stories(cache)
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    write_files(given, tokenizer(given.behind, len(given.table)), config, folder, apart=apart)


def write_files(
    given: Llama, words: dict[str, object], words_config: dict[str, object], folder: Path, *, apart: bool
) -> None:
    """The model, and what ONNX Runtime GenAI reads beside it; `words` is the tokenizer."""
    folder.mkdir(parents=True)
    onnx.save(decoder(given, apart=apart), folder / "model.onnx")
    files = {
        "genai_config.json": genai_config(given),
        "config.json": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        "tokenizer.json": words,
        "tokenizer_config.json": words_config,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def decoder(given: Llama, *, apart: bool = False) -> onnx.ModelProto:
    """Ids, a mask, the cache of every layer -> logits and the longer cache; `apart` gives the head its own weight."""
    write, head = Writer(), given.width // given.heads
    write.node("ReduceSum", "mask.sum", ["attention_mask", write.constant("mask.axis", np.array([1]), np.int64)])
    write.node("Sub", "mask.last", ["mask.sum.out", write.constant("mask.one", np.array([1]), np.int64)])
    write.node("Cast", "seqlens", ["mask.last.out"], to=TensorProto.INT32)
    write.node("Shape", "mask.shape", ["attention_mask"])
    write.node("Gather", "mask.length", ["mask.shape.out", write.constant("mask.second", np.array(1), np.int64)])
    write.node("Cast", "total", ["mask.length.out"], to=TensorProto.INT32)
    rotation = [write.constant("cos_cache", given.cosines), write.constant("sin_cache", given.sines)]
    write.constant("model.embed_tokens.weight", given.table)
    x = write.node("Gather", "/model/embed_tokens/Gather", ["model.embed_tokens.weight", "input_ids"])
    cached = []
    for number in range(given.count):
        own = {name: values[number] for name, values in given.layers.items()}
        x = _layer(write, number, x, own, (given.heads, given.key_heads or given.heads), rotation)
        cached += [f"past_key_values.{number}.{what}" for what in ("key", "value")]
    x = _norm(write, "/model/norm", x, given.last_norm)
    if apart:
        turned = write.constant("lm_head.MatMul.weight", given.table.T)
    else:
        turned = write.node("Transpose", "/lm_head/Transpose", ["model.embed_tokens.weight"], perm=[1, 0])
    write.node("MatMul", "/lm_head/MatMul", [x, turned], "logits")

    info = helper.make_tensor_value_info
    kept = given.key_heads or given.heads
    past, present = (["batch_size", kept, length, head] for length in ("past_length", "total_length"))
    graph = helper.make_graph(
        write.nodes,
        given.name,
        [
            info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
            info("attention_mask", TensorProto.INT64, ["batch_size", "total_length"]),
            *(info(name, TensorProto.FLOAT, past) for name in cached),
        ],
        [
            info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", len(given.table)]),
            *(info(name.replace("past_key_values", "present"), TensorProto.FLOAT, present) for name in cached),
        ],
        write.initializers,
    )
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def _norm(write: Writer, name: str, x: str, weight: np.ndarray) -> str:
    gain = write.constant(f"{name}.weight", weight)
    return write.node("SimplifiedLayerNormalization", name, [x, gain], axis=-1, epsilon=1e-5, stash_type=1)


def _layer(
    write: Writer, number: int, x: str, own: dict[str, np.ndarray], heads: tuple[int, int], rotation: list[str]
) -> str:
    """`heads` are those of queries, and those of keys and values."""
    name = f"/model/layers.{number}"

    def linear(what: str, y: str, weight: np.ndarray) -> str:
        constant = write.constant(f"model.layers.{number}.{what.replace('/', '.')}.weight", weight.T)
        return write.node("MatMul", f"{name}/{what}/MatMul", [y, constant])

    y = _norm(write, f"{name}/input_layernorm", x, own["norm1"])
    parts = [linear(f"attn/{part[0]}_proj", y, own[part]) for part in ("query", "key", "value")]
    attended, present = f"{name}/attn.out", [f"present.{number}.{what}" for what in ("key", "value")]
    past = [f"past_key_values.{number}.{what}" for what in ("key", "value")]
    write.nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [*parts, *past, "seqlens.out", "total.out", *rotation],
            [attended, *present],
            name=f"{name}/attn/GroupQueryAttention",
            domain=MICROSOFT,
            num_heads=heads[0],
            kv_num_heads=heads[1],
            do_rotary=1,
            rotary_interleaved=1,
        )
    )
    x = write.node("Add", f"{name}/attn/Add", [x, linear("attn/o_proj", attended, own["out"])])
    y = _norm(write, f"{name}/post_attention_layernorm", x, own["norm2"])
    gate, up = linear("mlp/gate_proj", y, own["gate"]), linear("mlp/up_proj", y, own["up"])
    silu = write.node("Mul", f"{name}/mlp/act/Mul", [gate, write.node("Sigmoid", f"{name}/mlp/act/Sigmoid", [gate])])
    y = linear("mlp/down_proj", write.node("Mul", f"{name}/mlp/Mul", [silu, up]), own["down"])
    return write.node("Add", f"{name}/mlp/Add", [x, y])


def genai_config(given: Llama) -> dict[str, object]:
    head = given.width // given.heads
    return {
        "model": {
            "bos_token_id": BEGIN,
            "context_length": len(given.cosines),
            "decoder": {
                "session_options": {"provider_options": []},
                "filename": "model.onnx",
                "head_size": head,
                "hidden_size": given.width,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": given.heads,
                "num_hidden_layers": given.count,
                "num_key_value_heads": given.key_heads or given.heads,
            },
            "eos_token_id": END,
            "pad_token_id": END,
            "type": "llama",
            "vocab_size": len(given.table),
        },
        "search": {"do_sample": False, "max_length": len(given.cosines), "past_present_share_buffer": False},
    }


def tokenizer(stored: bytes, count: int) -> dict[str, object]:
    """llama2.c's pieces with their scores as a BPE of the tokenizers library: two pieces merge where both are known,
    the pair that makes the best one first."""
    pieces, scores, at = [], [], 4
    for _ in range(count):
        score, length = struct.unpack_from("fi", stored, at)
        pieces.append(stored[at + 8 : at + 8 + length])
        scores.append(score)
        at += 8 + length
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += [piece.decode().replace(" ", MARK) for piece in pieces[len(names) :]]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = []
    for number, name in enumerate(names[259:], 259):
        pairs = [(name[:cut], name[cut:]) for cut in range(1, len(name))]
        merges += [(-scores[number], pair) for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
    merges.sort(key=lambda merge: merge[0])
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": names[number], **special} for number in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": MARK},
                {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BEGIN], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [list(pair) for _, pair in merges],
        },
    }


def run(write: Callable[..., None], description: str) -> None:
    """The command of a language model: `write` is its `write_folder`."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("out", type=Path)
    options.add_argument("--apart", action="store_true")
    given = options.parse_args()
    write(Cache(default_cache()), given.out, apart=given.apart)


if __name__ == "__main__":
    run(write_folder, __doc__.splitlines()[0])
