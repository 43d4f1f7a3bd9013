"""quillc, the compiler of the chip: python quillc.py TABLE PROGRAM. It knows nothing of onnxq."""

import struct
import sys
from pathlib import Path

UNKNOWN = 64  # codes have 6 bits


def compiled(text):
    head, *lines = text.splitlines()
    if head != "quill 1":
        raise SystemExit(f"quillc: '{head}' is no table of version 1")
    parts = [struct.pack("<4sI", b"QUIL", len(lines))]
    for line in lines:
        role, name, registers, *codes = line.split(" ")
        scales = [int(number) for number in registers.split(",")]
        if not all(1 <= scale <= 65535 for scale in scales):
            raise SystemExit(f"quillc: {name}: a scale does not fit into its register")
        values = bytes.fromhex(codes[0]) if codes else b""
        if any(code >= UNKNOWN for code in values):
            raise SystemExit(f"quillc: {name}: a code has more than 6 bits")
        parts.append(struct.pack(f"<BH{len(scales)}H", role == "weight", len(scales), *scales) + values)
    return b"".join(parts), len(lines)


table, program = map(Path, sys.argv[1:])
found, tensors = compiled(table.read_text(encoding="utf-8"))
program.write_bytes(found)
print(f"{tensors} tensors, {len(found)} bytes")
