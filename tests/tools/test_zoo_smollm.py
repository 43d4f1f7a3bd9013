"""Tensors of GGUF, as SmolLM2 comes in: blocks of 4 and 8 bits become the numbers that llama.cpp defines."""

import struct

import numpy as np
import pytest

from tools.zoo.packages import Unavailable
from tools.zoo.smollm import Gguf

Q4_1, Q8_0, Q6_K = 3, 8, 14


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    """A file with two facts; shapes as numpy has them."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2)
    head += text("llama.block_count") + struct.pack("<II", 4, 30)
    head += text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    data = b""
    for name, (kind, shape, stored) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, len(data))
        data += stored + b"\0" * (-len(stored) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def test_blocks_become_numbers(tmp_path):
    codes = np.arange(64, dtype=np.uint8).reshape(2, 32) % 16
    low, high = codes[:, :16], codes[:, 16:]
    four = b"".join(struct.pack("<ee", 0.5, -2.0) + (a | b << 4).tobytes() for a, b in zip(low, high, strict=True))
    signed = np.arange(-16, 16, dtype=np.int8)
    plain = np.linspace(0, 1, 5, dtype=np.float32)
    file = tmp_path / "model.gguf"
    tensors = {
        "four": (Q4_1, (1, 64), four),
        "eight": (Q8_0, (1, 32), struct.pack("<e", 0.25) + signed.tobytes()),
        "plain": (0, (5,), plain.tobytes()),
        "other": (Q6_K, (1, 256), b""),
    }
    file.write_bytes(gguf(tensors))
    found = Gguf(file)
    assert found.facts == {"llama.block_count": 30, "words": ["a", "b"]}
    np.testing.assert_array_equal(found.tensor("four"), codes.reshape(1, 64) * np.float32(0.5) - 2)
    np.testing.assert_array_equal(found.tensor("eight"), signed[None] * np.float32(0.25))
    np.testing.assert_array_equal(found.tensor("plain"), plain)
    with pytest.raises(Unavailable, match="type 14"):
        found.tensor("other")


def test_another_file_is_refused(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"no such file" + bytes(40))
    with pytest.raises(Unavailable, match="no GGUF file"):
        Gguf(file)
