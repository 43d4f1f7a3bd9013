"""How good the results of a model are, as lines of text: SQNR of outputs and their parts, decisions, single samples."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.glance import decibels
from onnxq.json_file import JsonMapping

FAR_DB = 3.0
"""A median sample that is this far from all samples together says something else than these do."""

LARGE_SHARE = 0.2
"""The part of all noise that makes a single sample worth a line."""

FAIR_SHARE = 2.0
"""Of few samples each has a large part: a sample is worth a line that has this many times as much as its due."""

DECIDED = {
    "arg_max": "the highest class is the float model's in {share} of {count}",
    "above_half": "of {count} scores above half of the highest, {share} are so in both models",
    "binary": "yes or no is the float model's in {share} of {count}",
}


def results_of(output: JsonMapping) -> Iterator[tuple[str, JsonMapping]]:
    """An output of a report and its parts, each with what to call it in a line."""
    if "sqnr_db" in output:
        yield f"output '{output['name']}'", output
    for part in output.get("parts", ()):
        yield f"its part '{part['name']}'", part


def decision_line(result: JsonMapping) -> str | None:
    """Whether decisions survive; None where nothing is decided by a result."""
    found = result.get("decisions")
    if found is None:
        return None
    # Not rounded up to all of them.
    share = min(found["agreement"], 0.9999) if found["agreement"] < 1 else 1.0
    return DECIDED[found["kind"]].format(share=f"{share:.2%}", count=found["compared"])


def sample_line(result: JsonMapping) -> str | None:
    """What single samples say, where that is not what all together say."""
    found = result.get("per_sample")
    if found is None or found["count"] < 2:
        return None
    median, whole = float(found["median_db"]), float(result["sqnr_db"])
    far = median != whole and abs(median - whole) > FAR_DB
    share = found["worst_share"]
    if not far and (share <= LARGE_SHARE or share * found["count"] < FAIR_SHARE):
        return None
    return (
        f"{decibels(median)} in the median of {found['count']} samples; sample {found['worst']} has {share:.0%} of the "
        f"noise ({decibels(found['worst_db'])})"
    )
