"""Whatever is changed in a table is noticed by its read-back: a number, a line less, another name, a line more."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxq.emit import EMITTERS
from tests.formats.written import Written, write_golden

Entries = dict[str, Any]
"""Name -> entry: a number, text, or lists and dictionaries of them."""


@dataclass(frozen=True)
class Form:
    """How the entries of a file are taken out of its text, and put into it again."""

    take: Callable[[str], Entries]
    put: Callable[[str, Entries], str]


def json_form(*keys: str) -> Form:
    """Entries below these keys; a list of entries with names is read as if the names were keys."""

    def place(document: Any) -> Any:
        for key in keys:
            document = document[key]
        return document

    def take(text: str) -> Entries:
        held = place(json.loads(text))
        return held if isinstance(held, dict) else {entry["name"]: entry for entry in held}

    def put(text: str, entries: Entries) -> str:
        document = json.loads(text)
        held = place(document)
        if isinstance(held, dict):
            held.clear()
            held.update(entries)
        else:
            held[:] = [{**entry, "name": name} for name, entry in entries.items()]
        return json.dumps(document)

    return Form(take, put)


def text_form(separator: str, header: int = 0) -> Form:
    """A line for each entry: the name, the separator, numbers with spaces between them."""

    def take(text: str) -> Entries:
        pairs = [line.split(separator, 1) for line in text.splitlines()[header:]]
        return {name: rest.split(" ") for name, rest in pairs}

    def put(text: str, entries: Entries) -> str:
        lines = text.splitlines()[:header] + [f"{name}{separator}{' '.join(e)}" for name, e in entries.items()]
        return "".join(f"{line}\n" for line in lines)

    return Form(take, put)


def take_yaml(text: str) -> Entries:
    entries: Entries = yaml.safe_load(text)["quantize_parameters"]
    return entries


YAML = Form(take_yaml, lambda text, entries: yaml.safe_dump({**yaml.safe_load(text), "quantize_parameters": entries}))

TABLES: dict[str, tuple[str, str, Form]] = {
    "ppl_cuda_ranges": ("pplcuda", "model_clip_ranges.json", text_form(": ")),
    "ppl_nn": ("pplcuda", "model_quant.json", json_form("quant_info")),
    "ppl_ranges": ("pplw8a16", "model_clip_ranges.json", json_form("ppl")),
    "tengine_scales": ("tengine_u8", "model_for_tengine.scale", text_form(" ")),
    "stpu_ranges": ("stpu", "model_stpu_minmax.json", json_form()),
    "rknn_hybrid": ("rknn", "model.quantization.cfg", YAML),
    "gfpq": ("nnie", "model_gfpq_param_dict.json", json_form("nnie", "gfpq_param_dict")),
    "ncnn_table": ("ncnn", "model.table", text_form(" ")),
    "espdl_exponents": ("espdl", "model_espdl.json", json_form("tensors")),
    "clip_ranges": ("tensorrt", "model_clip_ranges.json", json_form("tensorrt", "blob_range")),
    "calibration_cache": ("tensorrt", "model_calibration.cache", text_form(": ", header=1)),
    "vitis_clip_ranges": ("vitis", "model_clip_ranges.json", json_form("vitis")),
    "vitis_quant_info": ("vitis", "model_quant_info.json", json_form("output")),
    "snpe_clip_ranges": ("snpe", "model_clip_ranges.json", json_form("activation_encodings")),
    "encodings_0.6.1": ("qnn:encodings=0.6.1", "model_encodings_0.6.1.json", json_form("param_encodings")),
    "encodings_1.0.0": ("qnn:encodings=1.0.0", "model_encodings_1.0.0.json", json_form("param_encodings")),
    "encodings_2.0.0": ("qnn:encodings=2.0.0", "model_encodings_2.0.0.json", json_form("encodings")),
}
ELSEWHERE = {"fake_quantize", "fix_neuron", "own_types", "tensorrt_blocks"}
"""Models, changed in tests of their own; tables of Sophgo's tools too."""


def test_every_table_is_changed_here() -> None:
    assert {
        n for n, emitter in EMITTERS.items() if emitter.read_back and not n.startswith("sophgo")
    } == TABLES.keys() | ELSEWHERE


@pytest.fixture(scope="module", params=TABLES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Written, Path, Form]:
    backend, file, form = TABLES[request.param]
    written = write_golden("residual", backend, tmp_path_factory.mktemp("written"))
    assert request.param in written.backend.emitters
    assert written.problems() == []
    path = written.folder / file
    path.write_text(form.put(path.read_text(encoding="utf-8"), form.take(path.read_text(encoding="utf-8"))))
    assert written.problems() == [], "taking entries out and putting them back changes the file"
    return written, path, form


def findings(case: tuple[Written, Path, Form], change: Callable[[Entries], None]) -> list[str]:
    """What the read-back says about the file with other entries."""
    written, path, form = case
    before = path.read_text(encoding="utf-8")
    entries = form.take(before)
    change(entries)
    path.write_text(form.put(before, entries), encoding="utf-8")
    try:
        return written.problems()
    finally:
        path.write_text(before, encoding="utf-8")


def numbers_in(entry: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every number of an entry: keys and indices."""
    if isinstance(entry, dict | list):
        for key, part in entry.items() if isinstance(entry, dict) else enumerate(entry):
            yield from numbers_in(part, (*where, key))
    elif not isinstance(entry, str) or _changed(entry) is not None:
        yield where


def _changed(number: Any) -> Any:
    """Another number of the same kind; None for words."""
    if isinstance(number, bool):
        return not number
    if isinstance(number, int):
        return number + 1
    if isinstance(number, float):
        return number * 1.01 or 0.5
    if len(number) == 8 and set(number) <= set("0123456789abcdef"):
        return number[:-1] + ("1" if number[-1] == "0" else "0")  # the last bit of a float32
    try:
        return repr(_changed(float(number)))
    except ValueError:
        return None


def with_another_number(entries: Entries, name: str, where: tuple[Any, ...]) -> None:
    holder: Any = entries
    *outer, last = (name, *where)
    for key in outer:
        holder = holder[key]
    holder[last] = _changed(holder[last])


def test_every_number_matters(case: tuple[Written, Path, Form]) -> None:
    _, path, form = case
    entries = form.take(path.read_text(encoding="utf-8"))
    chosen = [*list(entries)[:3], *list(entries)[-3:]]
    tried = 0
    for name in chosen:
        places = list(numbers_in(entries[name]))
        for where in [*places[:12], *places[-2:]]:
            lines = findings(case, lambda changed, at=(name, where): with_another_number(changed, *at))
            assert any(f"'{name}'" in line for line in lines), f"nobody notices {where} of '{name}'"
            tried += 1
    assert tried >= len(chosen)


@pytest.mark.parametrize("number", [0, -1])
def test_an_entry_less_is_noticed(case: tuple[Written, Path, Form], number: int) -> None:
    gone: list[str] = []

    def change(entries: Entries) -> None:
        gone.append(list(entries)[number])
        del entries[gone[0]]

    lines = findings(case, change)
    assert any("is missing" in line and f"'{gone[0]}'" in line for line in lines)


def test_another_name_is_noticed(case: tuple[Written, Path, Form]) -> None:
    renamed: list[str] = []

    def change(entries: Entries) -> None:
        renamed.append(list(entries)[1])
        entries["somebody"] = entries.pop(renamed[0])

    lines = findings(case, change)
    assert any("is missing" in line and f"'{renamed[0]}'" in line for line in lines)
    assert any("is not quantized" in line and "'somebody'" in line for line in lines)


def test_an_entry_more_is_noticed(case: tuple[Written, Path, Form]) -> None:
    def change(entries: Entries) -> None:
        entries["somebody"] = copy.deepcopy(next(iter(entries.values())))

    (line,) = findings(case, change)
    assert "'somebody' is not quantized" in line
