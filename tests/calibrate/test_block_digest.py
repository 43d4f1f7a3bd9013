"""The digest of large tensors: of all bytes, however they come, modulo 2^64."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from onnxq.calibrate.block_digest import BLOCK_BYTES, BlockDigest

LENGTHS = [0, 1, 3, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 7 * BLOCK_BYTES + 5, 130 * BLOCK_BYTES]


def data_of(length: int) -> bytes:
    return np.random.default_rng(0).integers(0, 256, length, np.uint8).tobytes()


def digest_of(*pieces: bytes) -> str:
    digest = BlockDigest()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_are_those_of_whole_numbers(length: int) -> None:
    keys = hashlib.shake_256(b"onnxq block digest").digest(2 * BLOCK_BYTES)
    rows = [
        [int.from_bytes(keys[i : i + 4], "little") for i in range(at, at + BLOCK_BYTES, 4)] for at in (0, BLOCK_BYTES)
    ]
    data, expected = data_of(length), hashlib.sha256()
    for start in range(0, length, BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0")
        words = [int.from_bytes(block[i : i + 4], "little") for i in range(0, BLOCK_BYTES, 4)]
        for row in rows:
            total = sum(word * key for word, key in zip(words, row, strict=True))
            expected.update((total % 2**64).to_bytes(8, "little"))
    expected.update(length.to_bytes(8, "little"))
    assert digest_of(data) == expected.hexdigest()


def test_the_digest_stays_the_same_between_releases() -> None:
    assert digest_of(data_of(2 * BLOCK_BYTES + 7)) == "5a2d2e293285b77781629f047288d83ee291e48e6af59772735b6aabe4737bab"


@pytest.mark.parametrize("cut", [1, 3, 4096, 5000, 12_288])
def test_where_the_bytes_are_cut_does_not_matter(cut: int) -> None:
    data = data_of(5 * BLOCK_BYTES + 77)
    assert digest_of(*(data[start : start + cut] for start in range(0, len(data), cut))) == digest_of(data)


def test_other_bytes_another_order_and_another_length_are_other_digests() -> None:
    data = data_of(4 * BLOCK_BYTES)
    block = BLOCK_BYTES
    others = [data[:-1], data + b"\0", data[block:] + data[:block], data[4:8] + data[:4] + data[8:]]
    others += [data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] for place in (0, 5, block, len(data) - 1)]
    assert len({digest_of(one) for one in (data, *others)}) == 1 + len(others)
    assert digest_of(bytes(block)) != digest_of(bytes(2 * block))
