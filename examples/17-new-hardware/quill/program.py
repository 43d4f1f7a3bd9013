"""The call of the chip's compiler, a program of its own, and a look at what it has made of the table."""

import os
import struct
import subprocess
import sys
from pathlib import Path

from onnxq.emit import EMITTERS, Emitted, Emitter
from onnxq.errors import CheckFailed, ConfigError

from .table import END as TABLE
from .table import lines

END = ".bin"
HERE = Path(__file__).resolve().parent


def compiler():
    """quillc.py beside this folder, or what QUILLC names."""
    path = Path(os.environ.get("QUILLC", HERE.parent / "quillc.py"))
    if not path.is_file():
        raise ConfigError(f"the compiler of Quill is not at {path}: set the environment variable QUILLC to its path")
    return path


def compile_table(request):
    """Runs behind the emitter of the table, which its backend names first."""
    table, program = request.path(TABLE), request.path(END)
    command = [sys.executable, str(compiler()), str(table), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckFailed(f"quillc refuses {table.name}: {done.stderr.strip()}")
    return Emitted((program,), notes=(f"quillc: {done.stdout.strip()}",))


def check_program(request):
    """The program has as many tensors as the table."""
    magic, tensors = struct.unpack("<4sI", request.path(END).read_bytes()[:8])
    wanted = len(list(lines(request))) - 1
    if (magic, tensors) != (b"QUIL", wanted):
        yield f"{request.name}{END} has {tensors} tensors instead of {wanted}"


EMITTERS.add("quill_program", Emitter(compile_table, files=(END,), read_back=check_program))
