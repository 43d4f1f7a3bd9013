"""Labels beside the inputs of a model: under which name they are found."""

from __future__ import annotations

from collections.abc import Sequence

from onnxq.errors import DataError, did_you_mean

LABEL_NAMES = ("labels", "label", "y", "targets", "target")
"""What labels are called where nobody says it."""


def key_of_labels(keys: Sequence[str], inputs: Sequence[str], name: str | None, where: str) -> str | None:
    """Which of `keys` are the labels: `name` if it is given, else one of LABEL_NAMES that is no input; None if none."""
    if name is None:
        return next((known for known in LABEL_NAMES if known in keys and known not in inputs), None)
    if name not in keys:
        listed = ", ".join(f"'{key}'" for key in keys)
        raise DataError(f"{where} has no labels under '{name}'.{did_you_mean(name, keys)} It has {listed}")
    return name
