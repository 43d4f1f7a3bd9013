"""The fuzzer: equal inputs for equal numbers, bad ends told apart, findings put together. Fuzzing itself is slow."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

from tests.zoo import ZOO
from tools.fuzz import driver, hostile
from tools.fuzz.campaign import Settings, run_campaign
from tools.fuzz.cases import Case, kind_of, make_case, numbers, write_case
from tools.fuzz.commands import COMMANDS
from tools.fuzz.corpus import Corpus, Run, Source
from tools.fuzz.driver import run_case
from tools.fuzz.findings import Cause, cause_of, collect
from tools.fuzz.formats.archives import NPZ, ZIP, Member, write_members
from tools.fuzz.formats.documents import JSON, JSON_LINES, TOML, YAML
from tools.fuzz.formats.format import Format, Mutation
from tools.fuzz.formats.npy import NPY
from tools.fuzz.formats.onnx_models import MODEL
from tools.fuzz.formats.pictures import PNG, Chunk, write_chunks
from tools.fuzz.formats.raw_bytes import BYTE_MUTATIONS
from tools.fuzz.formats.statistics import STATISTICS, STATISTICS_CHANGES
from tools.fuzz.isolation import GIBIBYTE, Limits, run_isolated
from tools.fuzz.kinds import Kind
from tools.fuzz.outcomes import Ended, Outcome, classify
from tools.fuzz.shrink import shrink

ROOT = Path(__file__).parents[2]
ROOMY = Limits(memory_bytes=256 * GIBIBYTE)
"""A process that runs tests may have torch in it, which takes address space."""


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


NPY_BYTES = npy(np.ones(2, np.float32))
TREE = {"backend": "tensorrt", "skip": ["a", "b"], "weight": {"bits": 4, "scale": [0.5, 1.5]}}
HEADER = npy(np.array(json.dumps(TREE).encode()))

EXAMPLES: dict[str, tuple[Format, bytes]] = {
    "onnx": (MODEL, ZOO["conv_bn_relu_residual"]().model.SerializeToString(deterministic=True)),
    "bodies": (MODEL, ZOO["if_before_opset_11"]().model.SerializeToString(deterministic=True)),
    "json": (JSON, json.dumps(TREE).encode()),
    "jsonl": (JSON_LINES, b'{"key": "a", "value": 1}\n{"key": "b", "value": 2}\n'),
    "toml": (TOML, b'backend = "tensorrt"\nskip = ["a"]\n[weight]\nbits = 4\n'),
    "yaml": (YAML, b"backend: tensorrt\nskip: [a]\nweight: {bits: 4}\n"),
    "npy": (NPY, NPY_BYTES),
    "npz": (NPZ, write_members([Member("image.npy", NPY_BYTES), Member("more.npy", NPY_BYTES)])),
    "zip": (ZIP, write_members([Member("data.pkl", b"abc"), Member("version", b"3")])),
    "statistics": (STATISTICS, write_members([Member("header.npy", HEADER), Member("0.npy", NPY_BYTES)])),
    "png": (
        PNG,
        write_chunks([Chunk(b"IHDR", bytes(8) + b"\x08\x02\0\0\0"), Chunk(b"IDAT", b"x"), Chunk(b"IEND", b"")]),
    ),
}


# ---- inputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_mutation_of_a_format_can_be_made_and_is_the_same_each_time(name: str) -> None:
    file_format, data = EXAMPLES[name]
    for mutation in (*file_format.changes, *BYTE_MUTATIONS):
        for key in range(4):
            steps = (Mutation(mutation, key), Mutation(mutation, key + 1))
            assert file_format.mutate(data, steps) == file_format.mutate(data, steps)


@pytest.mark.parametrize("name", EXAMPLES)
def test_most_mutations_change_the_file(name: str) -> None:
    file_format, data = EXAMPLES[name]
    untouched = file_format.serialize(file_format.parse(data))
    idle = [
        mutation
        for mutation in file_format.changes
        if all(file_format.mutate(data, (Mutation(mutation, key),)) == untouched for key in range(20))
    ]
    # Bodies and functions are changed where a model has some, integers where it has a constant of them.
    assert len(idle) <= (12 if name == "onnx" else 20 if name == "bodies" else 3), idle


def test_random_mutations_of_a_format_never_fail() -> None:
    rng = Random(0)
    for file_format, data in EXAMPLES.values():
        for _ in range(30):
            assert isinstance(file_format.mutate(data, file_format.draw(rng)), bytes)


def test_a_name_that_is_no_text_reaches_the_file() -> None:
    data = MODEL.mutate(EXAMPLES["onnx"][1], (Mutation("name.tensor_name_without_text", 1),))
    assert b"\xff\xfe" in data


def test_the_seal_of_mutated_statistics_is_right() -> None:
    data = STATISTICS.mutate(EXAMPLES["statistics"][1], (Mutation("npy.odd_values", 1),))
    assert data[-64:] == hashlib.sha256(data[:-66] + bytes(2)).hexdigest().encode()


def test_the_number_of_a_case_does_not_depend_on_what_else_is_fuzzed() -> None:
    chosen = list(numbers(7, [Kind.PLANS], 20))
    assert {kind_of(7, number) for number in chosen} == {Kind.PLANS}
    assert list(numbers(7, [Kind.PLANS, Kind.DATA], 300))[:1] <= chosen[:1]
    assert list(numbers(7, [Kind.PLANS], 5, first=chosen[3])) == chosen[3:8]


def test_every_kind_has_commands_and_shares_come_to_a_hundred() -> None:
    assert set(COMMANDS) == set(Kind)
    assert sum(kind.share for kind in Kind) == pytest.approx(100)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """One small file of each kind."""
    run = Run("digits", "onnxruntime", *(tmp_path / name for name in ("m.onnx", "d.npz", "out", "s.npz")))
    by_kind = {Kind.MODELS: "onnx", Kind.DATA: "npz", Kind.STATISTICS: "statistics", Kind.IMAGES: "png"}
    sources = {}
    for kind in Kind:
        file_format, data = EXAMPLES[by_kind.get(kind, "json")]
        sources[kind] = (Source("one", kind, file_format, f"file.{file_format.name}", data, run),)
    return Corpus(sources, ("onnxruntime", "tensorrt"), ("qnn:weight=uint8",))


def test_a_case_is_a_function_of_seed_and_number(corpus: Corpus, tmp_path: Path) -> None:
    for number in range(20):
        case = make_case(7, number, corpus)
        assert case == make_case(7, number, corpus)
        first, second = (write_case(case, corpus, tmp_path / f"{number}{letter}") for letter in "ab")
        written = [sorted((tmp_path / f"{number}{letter}" / "in").iterdir()) for letter in "ab"]
        assert [path.read_bytes() for path in written[0]] == [path.read_bytes() for path in written[1]]
        assert len(first.arguments) == len(second.arguments)
    assert make_case(7, 0, corpus) != make_case(8, 0, corpus)


def test_every_target_has_its_turn(corpus: Corpus) -> None:
    assert {corpus.target(number) for number in range(4)} == {*corpus.targets, *corpus.variants}


# ---- bad ends ------------------------------------------------------------------------------------------------------


def spin() -> int:
    while True:
        pass


def sleep() -> int:
    while True:
        time.sleep(60)


def run_it(action: Callable[[], int], folder: Path, limits: Limits = ROOMY) -> Ended:
    return run_isolated(action, folder, folder / "said", limits)


def test_a_process_that_raises_is_a_traceback(tmp_path: Path) -> None:
    ended = run_it(lambda: {}["missing"], tmp_path)
    assert (ended.code, classify(ended)) == (1, Outcome.TRACEBACK)
    assert "KeyError: 'missing'" in ended.stderr


def test_a_process_that_crashes_is_a_crash_and_the_driver_lives(tmp_path: Path) -> None:
    ended = run_it(lambda: len(ctypes.string_at(0)), tmp_path)
    assert (ended.signal, classify(ended)) == (11, Outcome.CRASH)
    assert "test_fuzz.py" in ended.stderr  # faulthandler says where


def test_a_process_that_computes_for_ever_is_a_hang(tmp_path: Path) -> None:
    ended = run_it(spin, tmp_path, Limits(cpu_seconds=1, memory_bytes=256 * GIBIBYTE))
    assert classify(ended) is Outcome.HANG
    assert "in spin" in ended.stderr


def test_a_process_that_waits_for_ever_is_a_hang(tmp_path: Path) -> None:
    ended = run_it(sleep, tmp_path, Limits(memory_bytes=256 * GIBIBYTE, standstill_seconds=0.2))
    assert classify(ended) is Outcome.HANG


def test_a_process_cannot_take_more_memory_than_its_limit(tmp_path: Path) -> None:
    ended = run_it(lambda: len(bytearray(300 * GIBIBYTE)), tmp_path)
    assert "MemoryError" in ended.stderr


def test_what_a_process_starts_ends_with_it(tmp_path: Path) -> None:
    def start() -> int:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(process.pid)
        return 0

    ended = run_it(start, tmp_path)
    status = Path(f"/proc/{int(ended.stdout)}/stat")
    gone = not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"
    for _ in range(2000):  # the kernel takes its time to end it, however it was told
        if gone:
            break
        time.sleep(0.01)
        gone = not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"
    assert gone


def refuse() -> None:
    print("error: no", file=sys.stderr)
    raise SystemExit(2)


def leave_temporary() -> None:
    tempfile.mkstemp()


def run_code() -> None:
    exec(Path("in/evil.py").read_text())
    refuse()


def leave_output() -> None:
    os.mkdir("out")
    Path("out/model.onnx").write_text("half")
    refuse()


def write_bad() -> None:
    os.mkdir("out")
    Path("out/model.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())


def write_good() -> None:
    os.mkdir("out")
    model = ZOO["conv_bn_relu_residual"]().model
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, "out/model.onnx")


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (refuse, Outcome.REFUSED),
        (leave_temporary, Outcome.LEFTOVERS),
        (run_code, Outcome.RAN_CODE),
        (leave_output, Outcome.LEFTOVERS),
        (write_bad, Outcome.WROTE_BAD),
        (write_good, Outcome.OK),
    ],
)
def test_files_that_a_command_writes_are_checked(
    command: Callable[[], None], outcome: Outcome, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "run_onnxq", lambda arguments: command() or 0)
    case = Case(7, 0, Kind.QPARAMS, "one", (), "qparams_of_emit", "onnxruntime", 1)
    ended = run_case(case, corpus, tmp_path / "work", limits=ROOMY)
    assert classify(ended) is outcome, ended


def test_a_mistake_of_the_fuzzer_is_not_taken_for_a_fault_of_onnxq(corpus: Corpus, tmp_path: Path) -> None:
    case = Case(7, 0, Kind.QPARAMS, "one", (), "no_such_command", "onnxruntime", 1)
    assert classify(run_case(case, corpus, tmp_path / "work", limits=ROOMY)) is Outcome.WRONG_USE
    assert classify(Ended(2, stderr="Usage: onnxq emit\nError: no such option")) is Outcome.WRONG_USE


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (Ended(0), Outcome.OK),
        (Ended(2, stderr="warning: w\nerror: what\n"), Outcome.REFUSED),
        (Ended(2, stderr="it did not work\n"), Outcome.SILENT),
        (Ended(1, stdout="3 findings\n"), Outcome.CHECK_FAILED),
        (Ended(1), Outcome.SILENT),
        (Ended(3), Outcome.TRACEBACK),
        (Ended(0, stderr="Traceback (most recent call last):\n"), Outcome.TRACEBACK),
        (Ended(None, signal=11), Outcome.CRASH),
        (Ended(None, signal=9, out_of_time=True), Outcome.HANG),
        (Ended(2, stderr="error: x", leftovers=("tmp/x",)), Outcome.LEFTOVERS),
        (Ended(0, does_not_load="no"), Outcome.WROTE_BAD),
        (Ended(2, stderr="error: x", ran_code=True), Outcome.RAN_CODE),
        (Ended(2, stderr="error: node '\x1b[31m'\n"), Outcome.ESCAPES),
        (Ended(2, stderr=f"error: node 'line\n{hostile.FORGED_LINE}'\n"), Outcome.ESCAPES),
    ],
)
def test_ends_are_told_apart(ended: Ended, outcome: Outcome) -> None:
    assert classify(ended) is outcome


# ---- findings ------------------------------------------------------------------------------------------------------

TRACEBACK = """Traceback (most recent call last):
  File "/x/onnxq/cli/__init__.py", line 14, in main
    app(prog_name="onnxq")
  File "/x/onnxq/graph/load.py", line 10, in load
    read()
  File "/x/site-packages/numpy/core.py", line 3, in read
    raise ValueError
ValueError: bad {}
"""


def test_findings_with_the_same_innermost_line_of_onnxq_are_one() -> None:
    cases = [Case(7, number, Kind.MODELS, "one", (), "inspect", "onnxruntime", 0) for number in range(3)]
    bad = [(case, Ended(1, stderr=TRACEBACK.format(case.number)), Outcome.TRACEBACK) for case in cases]
    (finding,) = collect(bad)
    assert finding.cause == Cause(Outcome.TRACEBACK, "onnxq/graph/load.py:10 load", "ValueError")
    assert [case.number for case in finding.cases] == [0, 1, 2]


def test_a_crash_is_named_by_the_line_that_faulthandler_prints_first() -> None:
    text = 'Fatal Python error: ...\n  File "/x/onnx/c.py", line 1 in f\n  File "/x/onnxq/a.py", line 2 in g\n'
    case = Case(7, 0, Kind.MODELS, "one", (), "inspect", "onnxruntime", 0)
    cause, _ = cause_of(case, Ended(None, signal=11, stderr=text), Outcome.CRASH)
    assert cause == Cause(Outcome.CRASH, "onnxq/a.py:2 g", "signal 11")


def test_mutations_that_a_finding_does_not_need_are_left_out() -> None:
    mutations = tuple(Mutation(name, 0) for name in "abcdef")
    case = Case(7, 0, Kind.MODELS, "one", mutations, "inspect", "onnxruntime", 0)
    smaller = shrink(case, lambda fewer: {"b", "e"} <= {mutation.name for mutation in fewer.mutations})
    assert [mutation.name for mutation in smaller.mutations] == ["b", "e"]


# ---- the fuzzing itself --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_hundred_inputs_find_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.fuzz", "--inputs", "300", "--seed", "7", "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_jobs_find_what_one_finds(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up fault: cases of three mutations and more end in a traceback."""

    def fake(case: Case, corpus: Corpus, folder: Path, *, limits: Limits | None = None) -> Ended:
        return Ended(code=3 if len(case.mutations) > 2 else 0, stderr=f"{case.number}")

    monkeypatch.setattr("tools.fuzz.campaign.run_case", fake)
    alone, together = (
        run_campaign(Settings(7, 40, jobs=jobs), corpus, tmp_path / str(jobs), lambda *_: None) for jobs in (1, 2)
    )
    assert alone.inputs == together.inputs == 40
    assert alone.outcomes == together.outcomes
    assert alone.bad
    by_number = [sorted(tally.bad, key=lambda said: said[0].number) for tally in (alone, together)]
    assert by_number[0] == by_number[1]


def test_a_header_that_is_nested_deeply_is_not_changed_again() -> None:
    """It can be read, and not be written again by a function that calls itself."""
    depth = sys.getrecursionlimit() - 60
    stream = io.BytesIO()
    np.save(stream, np.array(f"{'[' * depth}0{']' * depth}".encode()))
    member = Member("header.npy", stream.getvalue())
    for name, change in STATISTICS_CHANGES.items():
        if name.startswith("header."):
            change([member], Random(name))
