"""Pictures: PNG files as chunks with right checksums, so that a changed size reaches the decoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tools.fuzz.formats.format import Change, Format

SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass
class Chunk:
    kind: bytes
    data: bytes


def read_chunks(data: bytes) -> list[Chunk]:
    chunks, at = [], len(SIGNATURE)
    while at + 8 <= len(data):
        size = struct.unpack(">I", data[at : at + 4])[0]
        chunks.append(Chunk(data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    return chunks


def write_chunks(chunks: list[Chunk]) -> bytes:
    written = [SIGNATURE]
    for chunk in chunks:
        body = chunk.kind + chunk.data
        written.append(struct.pack(">I", len(chunk.data)) + body + struct.pack(">I", zlib.crc32(body)))
    return b"".join(written)


def other_size(chunks: list[Chunk], rng: Random) -> None:
    width, height = (rng.choice((0, 1, 3, 8, 1000, 20_000, 65_500, 2**31 - 1, 2**32 - 1)) for _ in range(2))
    for chunk in chunks:
        if chunk.kind == b"IHDR":
            chunk.data = struct.pack(">II", width, height) + chunk.data[8:]


def other_mode(chunks: list[Chunk], rng: Random) -> None:
    """Bits and colour type, also those that do not exist."""
    for chunk in chunks:
        if chunk.kind == b"IHDR":
            chunk.data = (
                chunk.data[:8] + bytes((rng.choice((1, 2, 4, 8, 16, 3, 0)), rng.randrange(8))) + chunk.data[10:]
            )


def other_chunk(chunks: list[Chunk], rng: Random) -> None:
    if chunks:
        rng.choice(chunks).kind = rng.choice(
            (b"tRNS", b"PLTE", b"tEXt", b"zTXt", b"acTL", b"fcTL", b"eXIf", b"iCCP", b"\0\0\0\0")
        )


def remove_chunk(chunks: list[Chunk], rng: Random) -> None:
    if chunks:
        del chunks[rng.randrange(len(chunks))]


def large_text(chunks: list[Chunk], rng: Random) -> None:
    """A text of 4 MB packed into 4 kB."""
    packed = zlib.compress(bytes(4_000_000 if rng.random() < 0.5 else 1000), 9)
    chunks.insert(min(1, len(chunks)), Chunk(b"zTXt", b"a\x00\x00" + packed))


def damaged_pixels(chunks: list[Chunk], rng: Random) -> None:
    for chunk in chunks:
        if chunk.kind == b"IDAT" and chunk.data:
            pixels = bytearray(chunk.data)
            pixels[rng.randrange(len(pixels))] ^= 0xFF
            chunk.data = bytes(pixels)


PNG_CHANGES: Mapping[str, Change] = {
    f"png.{change.__name__}": change
    for change in (other_size, other_mode, other_chunk, remove_chunk, large_text, damaged_pixels)
}

PNG = Format("png", read_chunks, PNG_CHANGES, write_chunks)
