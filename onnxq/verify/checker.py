"""The ONNX checker, without what it says against definitions that ONNX has retracted.

onnx 1.17 and later call the GroupNormalization of opset 18 deprecated, since its scale and bias were defined per group
by mistake. It has no other definition in opsets 18 to 20, onnxruntime runs it, and models have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import defs

from onnxq.machine import machine_error, unreadable

RETRACTED = frozenset({"GroupNormalization"})
"""Operators of which a definition was retracted while opsets without another one are in use."""

_ELSEWHERE = "onnxq.retracted"
"""A domain that the checker has no definitions of, and therefore nothing against."""


def refusals(path: Path) -> Iterator[str]:
    """What the checker has against a file; nothing for a file that is not there, which loading says.

    A file that the machine does not let it read is a MachineError.
    """
    if not path.is_file():
        return
    try:
        onnx.checker.check_model(str(path))  # by path, so that external data is found
        return
    except onnx.checker.ValidationError as error:
        fault = unreadable([path])
        if fault is not None:
            raise machine_error(fault, f"{path} could not be checked") from error
        refusal = str(error)
    model = onnx.load(str(path), load_external_data=False)
    if not _move_retracted(model):
        yield refusal
        return
    twin = path.with_name(f".{path.name}.checked")  # beside the file, for the same reason
    try:
        twin.write_bytes(model.SerializeToString())
        onnx.checker.check_model(str(twin))
    except onnx.checker.ValidationError as error:
        yield str(error)
    finally:
        twin.unlink(missing_ok=True)


def _move_retracted(model: onnx.ModelProto) -> bool:
    """Put nodes of retracted definitions into a domain of their own; whether there are any."""
    version = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
    moved = False
    pending = [model.graph]
    while pending:
        for node in pending.pop().node:
            if node.op_type in RETRACTED and node.domain in ("", "ai.onnx") and _is_deprecated(node.op_type, version):
                node.domain = _ELSEWHERE
                moved = True
            for attribute in node.attribute:
                pending.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)
    if moved:
        model.opset_import.add(domain=_ELSEWHERE, version=1)
    return moved


def _is_deprecated(op: str, version: int) -> bool:
    try:
        return bool(defs.get_schema(op, version, "").deprecated)
    except defs.SchemaError:
        return False
