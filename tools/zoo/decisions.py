"""Decisions that outputs lead to, and how many of them survive: what a user of a model sees of quantization.

A rule takes the outputs of the float model and of the quantized one for the same samples and gives a share in [0, 1],
or None where the float model decides nothing on these samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tools.zoo.boxes import Boxes, Decode, Outputs, matched

Agreement = Callable[[Sequence[Outputs], Sequence[Outputs]], float | None]


def largest(name: str, axis: int = -1) -> Agreement:
    """The class with the largest score, at each position."""
    return equal_choices(lambda outputs: outputs[name].argmax(axis))


def transcribed(name: str, blank: int = 0) -> Agreement:
    """The symbol at each step of a recognizer, where either of both sees one."""
    return equal_choices(lambda outputs: outputs[name].argmax(-1), blank)


def numbers(name: str) -> Agreement:
    """An output that already is a choice."""
    return equal_choices(lambda outputs: outputs[name])


def equal_choices(choose: Callable[[Outputs], np.ndarray], blank: int | None = None) -> Agreement:
    """The share of equal choices; what one of both has more of, as a loop that ended later gives, is not equal."""

    def compare(before: Sequence[Outputs], after: Sequence[Outputs]) -> float | None:
        equal: list[np.ndarray] = []
        for one, other in zip(before, after, strict=True):
            mine, theirs = np.ravel(choose(one)), np.ravel(choose(other))
            shared = min(mine.size, theirs.size)
            equal.append(np.zeros(max(mine.size, theirs.size) - shared, dtype=bool))
            mine, theirs = mine[:shared], theirs[:shared]
            same = mine == theirs
            equal.append(same if blank is None else same[(mine != blank) | (theirs != blank)])
        return _share(equal)

    return compare


def above(name: str, threshold: float) -> Agreement:
    """On which side of a threshold each value is."""

    def compare(before: Sequence[Outputs], after: Sequence[Outputs]) -> float | None:
        return _share(
            [(one[name] > threshold) == (other[name] > threshold) for one, other in zip(before, after, strict=True)]
        )

    return compare


def region(name: str, threshold: float, channel: int | None = None) -> Agreement:
    """Intersection over union of what is above a threshold in a map, of all samples together."""

    def compare(before: Sequence[Outputs], after: Sequence[Outputs]) -> float | None:
        both = either = 0
        for one, other in zip(before, after, strict=True):
            mine, theirs = one[name] > threshold, other[name] > threshold
            if channel is not None:
                mine, theirs = mine[..., channel], theirs[..., channel]
            both, either = both + int((mine & theirs).sum()), either + int((mine | theirs).sum())
        return both / either if either else None

    return compare


def boxes(decode: Decode, threshold: float, overlap: float = 0.45) -> Agreement:
    """Twice the matched boxes by the boxes of both: 1 where each has its partner and none is new (the F1 score)."""

    def found(outputs: Outputs) -> Boxes:
        finite = {name: np.nan_to_num(values) for name, values in outputs.items()}
        return decode(finite).above(threshold).suppressed(overlap)

    def compare(before: Sequence[Outputs], after: Sequence[Outputs]) -> float | None:
        partners = total = expected = 0
        for one, other in zip(before, after, strict=True):
            mine, theirs = found(one), found(other)
            partners, total = partners + matched(mine, theirs), total + len(mine) + len(theirs)
            expected += len(mine)
        return 2 * partners / total if expected else None

    return compare


def nearest(name: str) -> Agreement:
    """Which of the other sentences is the nearest one: cosine of the means over tokens, or of the vectors themselves.

    The query is the quantized embedding, what it is compared with are the float ones, as in a store of vectors.
    """

    def compare(before: Sequence[Outputs], after: Sequence[Outputs]) -> float | None:
        stored, asked = (np.stack([_embedding(one[name]) for one in outputs]) for outputs in (before, after))
        if len(stored) < 3:
            return None
        return _share([_nearest(stored, stored) == _nearest(asked, stored)])

    return compare


def _embedding(values: np.ndarray) -> np.ndarray:
    vector = values.astype(np.float64).reshape(-1, values.shape[-1]).mean(axis=0)
    return vector / max(float(np.linalg.norm(vector)), 1e-30)


def _nearest(asked: np.ndarray, stored: np.ndarray) -> np.ndarray:
    likeness = asked @ stored.T
    np.fill_diagonal(likeness, -np.inf)
    return likeness.argmax(axis=1)


def _share(equal: Sequence[np.ndarray]) -> float | None:
    count = sum(part.size for part in equal)
    return float(sum(int(part.sum()) for part in equal) / count) if count else None
