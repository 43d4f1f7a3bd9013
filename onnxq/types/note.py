"""Note: a line for the user with its kind, so that many of a kind can be shown as one.

Notes and warnings are lists of text everywhere. A Note is such a text that knows its kind; a plain text has none, and
stands for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from onnxq.types.coded_text import CodedText

Kind = Literal[
    "opset",
    "absorbed",
    "pairs",
    "rewritten",
    "simulated",
    "runs_in_float",
    "eight_bits",
    "unpacked",
    "position",
    "range",
    "bias",
    "dead_channel",
    "lone_sample",
    "nonfinite",
    "constant",
    "same_input",
    "unseen",
    "optimizer_refuses",
    "dead_node",
    "slower_than_float",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

MEANING: Mapping[Kind, str] = {
    "opset": "nodes rewritten for a newer opset",
    "absorbed": "activations dropped, because the quantizer behind them saturates at the same values",
    "pairs": "nodes that keep their Q/DQ pairs",
    "rewritten": "nodes written in the form that the target's tool reads",
    "simulated": "nodes that the chip computes in its own way",
    "runs_in_float": "quantized nodes that run in float on the chip, because their results are read as float",
    "eight_bits": "weights with 8 bits instead of 4, because the chip has no such layer there",
    "unpacked": "weights stored for a blocked DequantizeLinear",
    "position": "positions moved by the rules of the chip",
    "range": "ranges widened to the least that the target takes",
    "bias": "weights with a larger scale, so that their biases fit into int32",
    "dead_channel": "weights with channels that are nearly dead",
    "lone_sample": "samples that set ranges alone",
    "nonfinite": "tensors with NaN or infinity",
    "constant": "tensors that never change in the calibration data",
    "same_input": "inputs that are the same in every sample",
    "unseen": "tensors that stay float, because no sample gives them a range",
    "optimizer_refuses": "files that load in onnxruntime with fewer optimizations alone",
    "dead_node": "nodes that no output depends on, removed",
    "slower_than_float": "files that are slower than the float model on this machine",
}
"""What lines of a kind are about, for several of them."""


class Note(CodedText[Kind]):
    """A text of a kind."""

    @property
    def kind(self) -> Kind:
        return self.code


@dataclass(frozen=True)
class Folded:
    """Lines that are shown as one: all of a kind, or a text as often as it was said."""

    lines: tuple[str, ...]
    kind: Kind | None = None

    def __str__(self) -> str:
        count = len(self.lines)
        if count == 1:
            return self.lines[0]
        if self.kind is None or len(set(self.lines)) == 1:
            return f"{count} x {self.lines[0]}"
        return f"{count} {MEANING[self.kind]}, such as: {self.lines[0]}"


def folded(lines: Iterable[str]) -> list[Folded]:
    """Lines put together by their kinds, in the order of the first of each."""
    groups: dict[tuple[Kind | None, str], list[str]] = {}
    for line in lines:
        kind = line.kind if isinstance(line, Note) else None
        groups.setdefault((kind, "" if kind else line), []).append(line)
    return [Folded(tuple(group), kind) for (kind, _), group in groups.items()]


def by_kind(lines: Iterable[str]) -> dict[str, list[str]]:
    """Kind -> its lines; texts without a kind are left out."""
    return {fold.kind: list(map(str, fold.lines)) for fold in folded(lines) if fold.kind is not None}
