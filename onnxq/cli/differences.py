"""The tables of `onnxq diff`: one for each thing that differs, what is equal counted in front."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from onnxq.cli.console import print_pairs, print_table, say
from onnxq.diff import RunDiff
from onnxq.diff.changes import Change, Compared
from onnxq.diff.outcomes import Figures, FileDiff, ResultDiff
from onnxq.diff.parameters import ParameterChange, ParameterDiff
from onnxq.diff.plans import NodeState, PlanDiff
from onnxq.diff.runs import Models
from onnxq.glance import decibels
from onnxq.text_tables import human_bytes

Grouped = TypeVar("Grouped")


class DiffTable(NamedTuple):
    """Columns named with a leading > are numbers."""

    title: str
    columns: tuple[str, ...]
    cells: Sequence[tuple[str, ...]]


NAMED = 2
"""Names of a group that a row shows; --all shows each in a row of its own."""

SMALL = 0.001
"""The part of a file below which a difference is told in bytes: as a percentage it would look like none."""

MODELS = {
    Models.SAME: "the same float model",
    Models.OTHER_CONSTANTS: "the same nodes with other constants: changed by methods, by training, or of another file",
    Models.OTHER: "different models",
    Models.UNKNOWN: "the same nodes; whether the constants are the same is not known",
}


def title_of(found: RunDiff) -> str:
    return f"{found.folders[0]} -> {found.folders[1]}"


def print_diff(found: RunDiff, rows: int | None) -> None:
    """All that differs; at most `rows` rows of each table, None for all."""
    print_pairs(title_of(found), summary(found))
    for title, columns, cells in diff_tables(found, grouped=rows is not None):
        shown = cells[:rows]
        print_table(title, columns, shown)
        if len(shown) < len(cells):
            say(f"{len(cells) - len(shown)} more rows; --all shows every one")


def diff_tables(found: RunDiff, *, grouped: bool) -> list[DiffTable]:
    """Those that have rows; with `grouped`, nodes and tensors that changed in the same way are one."""
    tables = [
        _compared("settings", found.settings, "not set"),
        _node_groups(found.plan) if grouped else _nodes(found.plan),
        _tensor_groups(found.plan) if grouped else _tensors(found.plan),
        _parameters(found.parameters),
        _accuracy(found),
        _compared("methods kept by one run alone", found.methods, "not tried"),
        _files(found.files),
        _compared("speed in onnxruntime on the machine of the run", found.speed, "not measured"),
        _compared("versions", found.versions, "not known"),
    ]
    return [table for table in tables if table.cells]


def summary(found: RunDiff) -> list[tuple[str, str]]:
    plan, parameters = found.plan, found.parameters
    same = sum(file.same for file in found.files)
    results = sum(not one.equal for one in found.accuracy)
    return [
        ("models", MODELS[found.models]),
        ("target", " -> ".join(dict.fromkeys(found.backends))),
        ("settings", _counted(len(found.settings.changes), found.settings.equal)),
        ("nodes", _counted(len(plan.nodes), plan.equal_nodes)),
        ("tensors", _counted(len(plan.tensors), plan.equal_tensors)),
        ("parameters", _parameter_counts(parameters)),
        ("accuracy", _counted(results, len(found.accuracy) - results) + _worst(found.accuracy)),
        ("methods", _counted(len(found.methods.changes), found.methods.equal)),
        ("files", _counted(len(found.files) - same, same) + _size(found.files)),
        ("speed", _counted(len(found.speed.changes), found.speed.equal) + _pace(found.speed)),
        ("versions", _counted(len(found.versions.changes), found.versions.equal)),
    ]


def _worst(results: Sequence[ResultDiff]) -> str:
    """The least SQNR of both runs, in the file or on the chip."""
    figures = [
        [float(str(side[key])) for side in sides for key in _DECIBELS if key in side]
        for sides in ([one.before for one in results], [one.after for one in results])
    ]
    if not all(figures):
        return ""
    before, after = (decibels(min(values)) for values in figures)
    return f"; worst {_arrow(before, after)}"


def _size(files: Sequence[FileDiff]) -> str:
    """The sizes of the model that runs, which is the first file."""
    sizes = [] if not files else [size for size in files[0].bytes if size is not None]
    return f"; {_arrow(*map(human_bytes, sizes))}" if len(sizes) == 2 else ""


def _pace(speed: Compared) -> str:
    pace = next((one for one in speed.changes if one.name == "times_as_fast"), None)
    if pace is None or pace.before is None or pace.after is None:
        return ""
    before, after = (f"{float(str(one)):.2f}" for one in (pace.before, pace.after))
    return f"; {before} -> {after} times as fast as float"


def _counted(changed: int, equal: int) -> str:
    return f"{changed} changed, {equal} equal" if changed or equal else "none in either"


def _parameter_counts(parameters: ParameterDiff) -> str:
    text = _counted(len(parameters.changes), parameters.equal)
    if parameters.incomparable:
        text += f", {len(parameters.incomparable)} in another format"
    return f"{text}; integers of {len(parameters.integers)} weights" if parameters.integers else text


def _compared(title: str, found: Compared, missing: str) -> DiffTable:
    cells = [(one.name, _value(one.before, missing), _value(one.after, missing)) for one in found.changes]
    return DiffTable(title, ("", "before", "after"), cells)


def _nodes(plan: PlanDiff) -> DiffTable:
    cells = [(one.node, _state(one.before), _state(one.after)) for one in plan.nodes]
    return DiffTable("nodes", ("node", "before", "after"), cells)


def _node_groups(plan: PlanDiff) -> DiffTable:
    groups = _grouped(((one.before.state, one.before.kind, one.after.state, one.after.kind), one) for one in plan.nodes)
    cells = [
        (
            str(len(ones)),
            _state(ones[0].before, kind=True),
            _state(ones[0].after, kind=True),
            _some([n.node for n in ones]),
        )
        for ones in groups
    ]
    return DiffTable("nodes", (">count", "before", "after", "nodes"), cells)


def _state(state: NodeState, *, kind: bool = False) -> str:
    why = (state.kind if kind and state.kind else state.why) if state.state == "float" else ""
    return f"{state.state}: {why}" if why else state.state


def _tensors(plan: PlanDiff) -> DiffTable:
    each = [(one.tensor, change) for one in plan.tensors for change in one.fields]
    cells = [(tensor, one.name, _field(one, one.before), _field(one, one.after)) for tensor, one in each]
    return DiffTable("quantizers of tensors", ("tensor", "", "before", "after"), cells)


def _tensor_groups(plan: PlanDiff) -> DiffTable:
    each = [(one.tensor, change) for one in plan.tensors for change in one.fields]
    groups = _grouped(
        ((one.name, _field(one, one.before), _field(one, one.after)), (tensor, one)) for tensor, one in each
    )
    cells = [
        (
            str(len(ones)),
            ones[0][1].name,
            _field(ones[0][1], ones[0][1].before),
            _field(ones[0][1], ones[0][1].after),
            _some([tensor for tensor, _ in ones]),
        )
        for ones in groups
    ]
    return DiffTable("quantizers of tensors", (">count", "", "before", "after", "tensors"), cells)


def _field(change: Change, value: object) -> str:
    """What a field of a quantizer says; None means something else for each."""
    words = {"quantizer": "float", "tie": "own scale", "derived from": "own scale", "read by": "every reader"}
    if value is None:
        return words.get(change.name, "none")
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)


def _parameters(parameters: ParameterDiff) -> DiffTable:
    cells = [
        (
            _channel(one),
            f"{one.ratio:.4g}",
            *(f"{scale:.6g}" for scale in one.scales),
            _arrow(*one.zero_points),
            f"{one.differing} of {one.count}",
            _arrow(*(origin or "not known" for origin in one.origins)),
        )
        for one in parameters.changes
    ]
    columns = ("tensor", ">ratio", ">scale before", ">after", "zero point", ">scales that differ", "found by")
    return DiffTable("parameters, largest ratios of scales first", columns, cells)


def _channel(change: ParameterChange) -> str:
    return change.tensor if change.channel is None else f"{change.tensor} [{change.channel}]"


def _arrow(before: object, after: object) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def _accuracy(found: RunDiff) -> DiffTable:
    """Equal results are shown too where another one differs: whoever asks what changed wants to see what held."""
    nothing = all(one.equal for one in found.accuracy)
    cells = [
        (
            one.output if one.part is None else f"  {one.part}",
            _result(one.before),
            _result(one.after),
            _gain(one),
        )
        for one in found.accuracy
    ]
    samples = "" if found.samples[0] == found.samples[1] else f", on {found.samples[0]} and {found.samples[1]} samples"
    title = f"accuracy of outputs and their parts{samples}"
    return DiffTable(title, ("output", "before", "after", ">gain"), [] if nothing else cells)


def _result(figures: Figures) -> str:
    words = [decibels(str(figures[key])) + also for key, also in _DECIBELS.items() if key in figures]
    words += [f"{_share(figures[key])} {also}" for key, also in _SHARES.items() if key in figures]
    return ", ".join(words) or "not measured"


_DECIBELS = {"sqnr_db": "", "chip_db": " on the chip"}
_SHARES = {"decisions": "of decisions", "agreement": "equal"}


def _share(value: object) -> str:
    return f"{float(str(value)):.2%}"


def _gain(one: ResultDiff) -> str:
    for key in _DECIBELS:
        if key in one.before and key in one.after:
            gain = float(str(one.after[key])) - float(str(one.before[key]))
            if gain == gain:  # both may be infinite
                return f"{gain:+.1f} dB"
    return ""


def _files(files: Sequence[FileDiff]) -> DiffTable:
    cells = [
        (
            " -> ".join(dict.fromkeys(name for name in file.names if name is not None)),
            *("none" if size is None else human_bytes(size) for size in file.bytes),
            _growth(file),
        )
        for file in files
        if not file.same
    ]
    return DiffTable("files", ("file", ">before", ">after", ">"), cells)


def _growth(file: FileDiff) -> str:
    before, after = file.bytes
    if not before or after is None:
        return ""
    if abs(after - before) < SMALL * before:
        return "other bytes" if before == after else f"{after - before:+,} B"
    return f"{after / before - 1:+.1%}"


def _value(value: object, missing: str) -> str:
    if value is None:
        return missing
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _grouped(pairs: Iterable[tuple[Hashable, Grouped]]) -> list[list[Grouped]]:
    """What has the same key together, the largest groups first."""
    groups: dict[Hashable, list[Grouped]] = {}
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
