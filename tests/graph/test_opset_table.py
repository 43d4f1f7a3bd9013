"""Every redefinition of an operator since opset 7 is accounted for, and called compatible only where it is."""

from itertools import pairwise

import onnx
import pytest
from onnx import helper

from onnxq.graph.opset_rewrites import REWRITES
from onnxq.graph.opset_table import EXTENDED, FIRST_OPSET, LAST_OPSET, REFUSED, WIDENED

NEWEST = min(LAST_OPSET, onnx.defs.onnx_opset_version())


def history():
    """(operator, version) -> the definition before that version and the one since."""
    versions = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, {})[schema.since_version] = schema
    steps = {}
    for op, known in versions.items():
        ordered = sorted(known)
        for before, after in pairwise(ordered):
            if FIRST_OPSET < after <= NEWEST:
                steps[op, after] = (known[before], known[after])
    return steps


def steps_of(table):
    return [(op, version) for version, ops in table.items() for op in ops.split() if version <= NEWEST]


STEPS = history()


def test_every_step_is_in_exactly_one_table():
    entries = [*steps_of(WIDENED), *steps_of(EXTENDED), *(key for key in [*REWRITES, *REFUSED] if key[1] <= NEWEST)]
    assert sorted(set(entries)) == sorted(entries)
    assert set(entries) == set(STEPS)


def test_the_tables_reach_the_newest_opset_of_onnx():
    assert onnx.defs.onnx_opset_version() <= LAST_OPSET


def parameters(formal):
    return [(p.option, p.is_homogeneous) for p in formal]


def attributes(schema):
    return {
        name: (a.type, a.required, helper.get_attribute_value(a.default_value) if a.default_value.type else None)
        for name, a in schema.attributes.items()
    }


def lost_types(before, after):
    """Element types that an input accepted before and does not accept any more."""
    lost = set()
    for old, new in zip(before.inputs, after.inputs, strict=False):
        lost |= set(old.types) - set(new.types)
    return lost


@pytest.mark.parametrize("version", WIDENED)
def test_widened_operators_have_the_same_signature(version):
    for step in steps_of({version: WIDENED[version]}):
        before, after = STEPS[step]
        assert parameters(before.inputs) == parameters(after.inputs), step
        assert parameters(before.outputs) == parameters(after.outputs), step
        assert after.min_input <= before.min_input, step
        assert attributes(before) == attributes(after), step
        assert not lost_types(before, after), step
    assert not after.deprecated


OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


@pytest.mark.parametrize(("op", "version"), steps_of(EXTENDED))
def test_extended_operators_got_optional_things_only(op, version):
    before, after = STEPS[op, version]
    for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        assert len(old) <= len(new)
        assert all(o.option == n.option or n.option == OPTIONAL for o, n in zip(old, new, strict=False))
        assert all(n.option == OPTIONAL for n in new[len(old) :])
    old_attributes, new_attributes = attributes(before), attributes(after)
    for name, (kind, required, default) in old_attributes.items():
        assert new_attributes[name][0] == kind
        assert new_attributes[name][2] == default
        assert required or not new_attributes[name][1]
    assert not any(new_attributes[name][1] for name in new_attributes.keys() - old_attributes.keys())
    assert not lost_types(before, after)
    assert not after.deprecated
