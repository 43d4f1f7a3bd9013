"""Every registered thing with its one-line description; each entry has the same keys in the same order."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from typing import NamedTuple

from onnxq.emit import EMITTERS, file_names
from onnxq.emit.simulations import SIMULATIONS
from onnxq.observers import ALIASES as OBSERVER_ALIASES
from onnxq.observers import OBSERVERS
from onnxq.passes import PASSES
from onnxq.plugins import load_installed
from onnxq.ptq.method import IMPROVEMENTS, shown
from onnxq.ptq.search.schedule import LEVELS, schedule_of
from onnxq.refine import REFINEMENTS
from onnxq.targets import BACKENDS
from onnxq.types import Backend, PerBlock, PerChannel, PerTensor, QuantSpec
from onnxq.types.fake_quantizers import ALIASES as FAKE_QUANTIZER_ALIASES
from onnxq.types.fake_quantizers import KINDS
from onnxq.types.number_format import number_formats

Entry = dict[str, str | int | list[str]]


def backends() -> list[Entry]:
    """Targets: number formats by role, options, what they write and which real tools have read it."""
    return [backend_entry(name, backend) for name, backend in BACKENDS.items()]


def backend_entry(name: str, backend: Backend) -> Entry:
    """One target, perhaps with options."""
    return {
        "name": name,
        "activations": _format(backend.scheme.activation),
        "weights": _format(backend.scheme.weight),
        "biases": _format(backend.scheme.bias),
        "files": file_names(backend, "model"),
        "checked by": list(backend.checked_by),
        "options": [f"{option.name}={'|'.join(option.values)}: {option.summary}" for option in backend.options],
        "passes": [", ".join(backend.passes)],
        "refinements": [f"{name}: {_sentence(REFINEMENTS.get(name).change)}" for name in backend.refinements],
        "simulations": [f"{name}: {_sentence(SIMULATIONS.get(name))}" for name in backend.simulations],
        "one scale on both sides": [", ".join(backend.tied)],
        "writes": [f"{emitter}: {_sentence(EMITTERS.get(emitter).write)}" for emitter in backend.emitters],
        "summary": backend.summary,
    }


class BackendRow(NamedTuple):
    """What targets that differ in the name alone have in common; `files` are those beside model.onnx."""

    activations: str
    weights: str
    biases: str
    files: tuple[str, ...]
    read_by: str


def backend_rows() -> dict[BackendRow, list[str]]:
    """Targets as rows of a table -> their names; what is usual in a format goes without saying."""
    rows: dict[BackendRow, list[str]] = {}
    for name, backend in BACKENDS.items():
        scheme = backend.scheme
        activations, weights, biases = (_short(spec) for spec in (scheme.activation, scheme.weight, scheme.bias))
        beside = tuple(file for file in file_names(backend, "model") if file != "model.onnx")
        readers = ", ".join(backend.checked_by) or "parser from the published rules"
        row = BackendRow(activations, weights, biases, beside, readers)
        rows.setdefault(row, []).append(name)
    return rows


BACKEND_COLUMNS = ("backend", "activations", "weights", "biases", "files beside model.onnx", "read by")


def _short(spec: QuantSpec | None) -> str:
    """A format as a table needs it: symmetric, per tensor and along the first axis go without saying."""
    if spec is None:
        return "float"
    match spec.granularity:
        case PerTensor():
            granularity = ""
        case PerChannel(0):
            granularity = "per channel"
        case PerBlock(0, size):
            granularity = f"per block of {size}"
        case other:
            granularity = str(other)
    words = (
        spec.dtype,
        "" if spec.symmetric else "asymmetric",
        granularity,
        "narrow range" if spec.narrow_range else "",
        f"[{spec.qmin}, {spec.qmax}]" if spec.quant_min is not None or spec.quant_max is not None else "",
        "power of two" if spec.power_of_two else "",
        "" if spec.rounding == "half_even" else spec.rounding,
    )
    return ", ".join(filter(None, words))


def passes() -> list[Entry]:
    """Graph passes, and the backends that run them."""
    return [
        {
            "name": name,
            "backends": [b for b, backend in BACKENDS.items() if name in backend.passes],
            "summary": _sentence(step),
        }
        for name, step in PASSES.items()
    ]


def observers() -> list[Entry]:
    """Ways to find a range, with their parameters and defaults."""
    return [
        {
            "name": name,
            "parameters": [f"{field.name}={field.default}" for field in fields(kind)],
            "collects": kind.statistic,
            "summary": _sentence(kind),
        }
        for name, kind in OBSERVERS.items()
    ]


def fake_quantizers() -> list[Entry]:
    """Ways in which training treats a quantizer, and what they mean without training."""
    load_installed()
    return [
        {
            "name": name,
            "arguments": [f"{argument.name}={argument.default:g}" for argument in kind.arguments],
            "for": list(kind.roles),
            "other names": [alias for alias, own in FAKE_QUANTIZER_ALIASES.items() if own == name],
            "learns": kind.learns,
            "without training": kind.untrained,
            "summary": kind.summary,
        }
        for name, kind in KINDS.items()
    ]


def improvements() -> list[Entry]:
    """What can make a quantized model more accurate, the least effort that tries it, and whose idea it is."""
    return [
        {
            "name": name,
            "arguments": [f"{key}={shown(value)}" for key, value in method.arguments.items()],
            "effort": next((str(level) for level in LEVELS if name in _tried_by(level)), "by name"),
            "needs": "torch" if method.needs_torch else "",
            "other names": list(method.aliases),
            "summary": method.summary,
            "paper": method.paper,
        }
        for name, method in IMPROVEMENTS.items()
    ]


def _tried_by(level: int) -> set[str]:
    return {text.partition(":")[0] for text in schedule_of(level).names()}


def other_names(kind: str) -> dict[str, str]:
    """Other names of observers, fake-quantizers and improvements, most of them other tools' -> the name here."""
    if kind == "observers":
        return {name: alias.observer for name, alias in OBSERVER_ALIASES.items()}
    if kind == "improvements":
        return {alias: name for name, method in IMPROVEMENTS.items() for alias in method.aliases}
    return dict(FAKE_QUANTIZER_ALIASES) if kind == "fake-quantizers" else {}


def formats() -> list[Entry]:
    """Number formats, and the backends that have them by default."""
    entries: list[Entry] = []
    for dtype, form in number_formats().items():
        spec = QuantSpec(dtype)
        entries.append(
            {
                "name": dtype,
                "bits": spec.bits,
                "grid": form.summary,
                "range": f"{spec.qmin} .. {spec.qmax}" if form.evenly_spaced else "",
                "backends": _users(dtype),
            }
        )
    return entries


def _users(dtype: str) -> list[str]:
    found = []
    for name, backend in BACKENDS.items():
        scheme = backend.scheme
        roles = {"activations": scheme.activation, "weights": scheme.weight, "biases": scheme.bias}
        used = [role for role, spec in roles.items() if spec is not None and spec.dtype == dtype]
        if used:
            found.append(f"{name} ({', '.join(used)})")
    return found


def _format(spec: QuantSpec | None) -> str:
    return "float" if spec is None else str(spec)


def _sentence(item: object) -> str:
    """The first line of an item's docstring, or of its module's when it has none of its own."""
    own = getattr(item, "__doc__", None)
    module = sys.modules.get(getattr(item, "__module__", ""))
    text = own or (None if module is None else module.__doc__) or ""
    return inspect.cleandoc(text).partition("\n")[0]
