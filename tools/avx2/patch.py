"""`cpuid` instructions of a shared library, replaced by an invalid one of the same length."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CPUID, UD0 = b"\x0f\xa2", b"\x0f\xff"
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+cpuid\s*$", re.MULTILINE)
_SECTION = re.compile(r"^\s*\d+\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s", re.MULTILINE)


def without_cpuid(library: Path) -> tuple[bytes, int]:
    """The bytes of a library whose `cpuid` instructions are UD0, and how many those were.

    The two bytes of the instruction occur inside of others as well, so the disassembler says where it begins.
    """
    content = bytearray(library.read_bytes())
    sections = [tuple(int(text, 16) for text in found) for found in _SECTION.findall(_objdump("-h", library))]
    count = 0
    for found in _INSTRUCTION.findall(_objdump("-d", "--no-show-raw-insn", library)):
        address = int(found, 16)
        at = next(address - start + offset for size, start, offset in sections if start <= address < start + size)
        if content[at : at + 2] != CPUID:
            raise ValueError(f"{library}: no cpuid at {found}, where objdump saw one")
        content[at : at + 2] = UD0
        count += 1
    return bytes(content), count


def _objdump(*arguments: str | Path) -> str:
    return subprocess.run(["objdump", *arguments], check=True, capture_output=True, text=True).stdout
