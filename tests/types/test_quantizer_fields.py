"""What can be said about quantizers is stated once: formats, placements and their JSON follow from it."""

from __future__ import annotations

from dataclasses import fields

from onnxq.cli.schemas import PlacementEntry
from onnxq.types import Placement, QuantSpec
from onnxq.types.overrides import FORMAT_FIELDS, QuantizerOverride, Treatment


def test_each_field_is_of_the_format_or_of_the_placement_or_decides_whether_there_is_one() -> None:
    treatment = [item.name for item in fields(Treatment)]
    assert {*FORMAT_FIELDS, *treatment, "skip", "share"} == set(QuantizerOverride.model_fields)
    assert set(treatment) <= {item.name for item in fields(Placement)}
    assert set(treatment) <= set(PlacementEntry.model_fields)


def test_a_placement_writes_what_differs_and_reads_it_back() -> None:
    plain = Placement("x", QuantSpec("int8"), "activation", "")
    assert set(plain.to_json()) == {"spec", "role", "why"}
    changed = Placement("x", QuantSpec("int8"), "activation", "", (), observe_only=True, minimum_scale=0.5)
    assert changed.to_json()["minimum_scale"] == 0.5
    assert Placement.from_json("x", changed.to_json()) == changed
