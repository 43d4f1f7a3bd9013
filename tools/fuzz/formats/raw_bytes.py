"""Damage to bytes, whatever they mean: what a bad disk, a broken download or a wrong file makes of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random


def flip_bits(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: Random) -> bytes:
    return data[: rng.choice((0, 1, rng.randrange(len(data) + 1), max(0, len(data) - 1)))]


def splice(data: bytes, rng: Random) -> bytes:
    """A piece of the file in another place of it."""
    if not data:
        return data
    start, target = rng.randrange(len(data)), rng.randrange(len(data))
    return data[:target] + data[start : start + rng.randint(1, 200)] + data[target:]


def remove_piece(data: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 100) :]


def overwrite_piece(data: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    piece = rng.choice((rng.randbytes(8), b"\xff" * 8, bytes(8), b"\x80" * 10, b"\xed\xa0\x80", b"\xc3\x28"))
    return data[:start] + piece + data[start + len(piece) :]


def append_garbage(data: bytes, rng: Random) -> bytes:
    return data + rng.choice((b"\x00", b"\n", rng.randbytes(100), data[: 1 << 16]))


def something_else(_: bytes, rng: Random) -> bytes:
    return rng.choice(
        (b"", b"\x00", b"{}", b"[]", b"null", b"\xef\xbb\xbf{}", b"PK\x05\x06" + bytes(18), rng.randbytes(500))
    )


BYTE_MUTATIONS: Mapping[str, Callable[[bytes, Random], bytes]] = {
    f"bytes.{change.__name__}": change
    for change in (flip_bits, truncate, splice, remove_piece, overwrite_piece, append_garbage, something_else)
}
