"""A folder of ONNX Runtime GenAI with a decoder of random weights, as `tools.zoo.stories_folder` writes stories15M."""

import json

import numpy as np
import onnx

from tools.zoo.stories import Llama
from tools.zoo.stories_folder import decoder, genai_config

WIDTH, HIDDEN, HEADS, LAYERS, WORDS, CONTEXT = 64, 96, 2, 2, 80, 64


def weights(layers=LAYERS):
    random = np.random.default_rng(0)

    def matrix(*shape):
        return random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    parts = {name: matrix(layers, WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
    parts |= {name: matrix(layers, HIDDEN, WIDTH) for name in ("gate", "up")}
    parts |= {"down": matrix(layers, WIDTH, HIDDEN)}
    parts |= {name: random.uniform(0.5, 1.5, (layers, WIDTH)).astype(np.float32) for name in ("norm1", "norm2")}
    angles = np.outer(np.arange(CONTEXT), 1 / 100 ** (np.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS)))
    table = random.normal(0, 1, (WORDS, WIDTH)).astype(np.float32)
    last = random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    return Llama(HEADS, table, parts, last, np.cos(angles), np.sin(angles))


def write_folder(folder, *, external=False):
    """model.onnx (and model.onnx.data), genai_config.json and files that nobody here reads."""
    folder.mkdir(parents=True)
    given = weights()
    more = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 0} if external else {}
    onnx.save(decoder(given), folder / "model.onnx", **more)
    (folder / "genai_config.json").write_text(json.dumps(genai_config(given)))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def prompts(file, count=6):
    """Prompts of two lengths."""
    random = np.random.default_rng(1)
    short, long = (random.integers(3, WORDS, (count // 2, length)) for length in (9, 20))
    np.savez(file, short=short, long=long)
    return file
