"""The gate itself: verdicts, results that are kept, cells that are run, and the page with the tables."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from onnxq.demo import model_path
from tools.zoo import page, results
from tools.zoo.__main__ import main
from tools.zoo.catalogue import MODELS
from tools.zoo.cells import Bench, Budget, Ended, budget_of, processor_seconds, quantize_command, reported, run_quantize
from tools.zoo.gate import Gate
from tools.zoo.image_feeds import Maker
from tools.zoo.model import Made, ZooModel, by_name
from tools.zoo.packages import Cache, Unavailable, pypi
from tools.zoo.refusals import has_next_step, rate_refusal, reason_of
from tools.zoo.results import Slot
from tools.zoo.verdicts import Cell, Key, Verdict, rate_accuracy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "zoo.md"
DIGITS = by_name(MODELS, ["digits"])[0]


def cell(
    verdict: Verdict = Verdict.GOOD, db: float | None = 20.0, target: str = "qnn", code: str = "new", **more: object
) -> Cell:
    made = Cell("digits", Key("hash", target, 0, code), verdict, 0, "logits", db, agreement=1.0)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


class TestVerdicts:
    @pytest.mark.parametrize(
        ("db", "agreement", "verdict"),
        [
            (20.0, 1.0, Verdict.GOOD),
            (20.0, None, Verdict.GOOD),
            (None, 0.9, Verdict.GOOD),
            (math.inf, None, Verdict.GOOD),
            (20.0, 0.5, Verdict.LOW),
            (9.0, 1.0, Verdict.LOW),
            (2.9, 1.0, Verdict.DEAD_PART),
            (-math.inf, None, Verdict.DEAD_PART),
        ],
    )
    def test_of_a_file(self, db: float | None, agreement: float | None, verdict: Verdict) -> None:
        assert rate_accuracy(db, agreement) is verdict

    def test_of_a_refusal(self) -> None:
        step = "error: the model is quantized already. Use 'onnxq strip' first"
        assert rate_refusal(2, step) is rate_refusal(1, step) is Verdict.REFUSED
        assert rate_refusal(2, "error: onnxruntime could not run the model: Status 1") is Verdict.UNEXPLAINED
        assert rate_refusal(2, "") is Verdict.UNEXPLAINED
        low = "error: output 'y': SQNR 2 dB is below the required 5 dB\n  for the files: --min-sqnr"
        assert rate_refusal(1, low) is Verdict.UNEXPLAINED
        assert rate_refusal(1, f"{low}\n  cause: one scale for channels that differ") is Verdict.REFUSED
        for code in (3, 70, -11, 137):
            assert rate_refusal(code, step) is Verdict.INTERNAL_FAULT
        assert rate_refusal(2, "Traceback (most recent call last):\n use --skip") is Verdict.INTERNAL_FAULT

    @pytest.mark.parametrize(
        ("said", "step"),
        [
            ("error: too few samples: give some dozens", True),
            ("error: no data. Set inputs.x.shape", True),
            ("error: no range for 'a': --observer minmax has one", True),
            ("error: output 'y' has 2.0 dB", False),
            ("error: Used node failed", False),
        ],
    )
    def test_next_steps_are_seen(self, said: str, step: bool) -> None:
        assert has_next_step(said) is step

    def test_notes_around_the_reason_are_left_out(self) -> None:
        assert reason_of("error: 2 dB\n  warning: use more samples\n  see -d\n") == "error: 2 dB\n  see -d"
        assert reason_of("warning: few samples\n\nerror: no data\n  see -d\n") == "error: no data\n  see -d"
        assert reason_of("warning: few samples\nkilled\n") == "killed"

    def test_a_cell_survives_a_file(self) -> None:
        made = cell(reason="two\nlines", reported_db=3.5)
        assert Cell.from_json(made.to_json()) == made
        assert Cell.from_json(cell(db=math.inf).to_json()).worst_db == math.inf
        lost = Cell.from_json(cell(Verdict.DEAD_PART, math.nan).to_json()).worst_db
        assert lost is not None
        assert math.isnan(lost)


class TestResults:
    def test_a_line_that_was_cut_off_is_done_again(self, tmp_path: Path) -> None:
        path = tmp_path / "results.jsonl"
        results.append(path, cell())
        with path.open("a") as file:
            file.write('{"model": "dig')
        assert results.read(path) == [cell()]

    def test_what_is_missing_depends_on_file_target_effort_and_code(self) -> None:
        done = results.latest([cell()])
        assert results.missing(done, "hash", [("qnn", 0)], "new") == []
        failed = results.latest([cell(Verdict.GATE_FAULT, None)])
        assert results.missing(failed, "hash", [("qnn", 0)], "new") == [("qnn", 0)]
        for sha, wanted, code in (
            ("other", ("qnn", 0), "new"),
            ("hash", ("rknn", 0), "new"),
            ("hash", ("qnn", 1), "new"),
            ("hash", ("qnn", 0), "old"),
        ):
            assert results.missing(done, sha, [wanted], code) == [wanted]

    @pytest.mark.parametrize(
        ("before", "now", "worse"),
        [
            (cell(), cell(db=18.0), True),
            (cell(), cell(db=19.5), False),
            (cell(), cell(db=30.0, agreement=0.9), True),
            (cell(Verdict.LOW, 5.0), cell(Verdict.REFUSED, None), True),
            (cell(Verdict.REFUSED, None), cell(Verdict.LOW, 5.0), False),
            (cell(Verdict.REFUSED, None), cell(Verdict.UNEXPLAINED, None), True),
            (cell(Verdict.DEAD_PART, 1.0), cell(Verdict.REFUSED, None), False),
        ],
    )
    def test_losses(self, before: Cell, now: Cell, worse: bool) -> None:
        slot = Slot("digits", "qnn", 0)
        assert bool(results.worse_than({slot: before}, {slot: now})) is worse

    def test_the_code_is_known_by_its_files(self, tmp_path: Path) -> None:
        (tmp_path / "onnxq").mkdir()
        (tmp_path / "onnxq" / "a.py").write_text("x = 1\n")
        first = results.code_hash(tmp_path)
        assert results.code_hash(tmp_path) == first
        (tmp_path / "onnxq" / "a.py").write_text("x = 2\n")
        assert results.code_hash(tmp_path) != first


class TestCells:
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        bench = Bench(DIGITS, Cache(tmp_path), tmp_path, "code")
        bench.prepare(budget_of(0))
        return bench

    def rated(self, bench: Bench, code: int | None, out: Path, said: str = "") -> Cell:
        key = Key(bench.sha256, "qnn", 0, "code")
        return bench._rated(key, Ended(code, "{}", said, 1.0), out, budget_of(0))

    def test_what_is_written_is_measured_and_not_believed(self, bench: Bench, tmp_path: Path) -> None:
        assert self.rated(bench, 0, tmp_path / "nothing").verdict is Verdict.UNUSABLE_FILE
        (tmp_path / "out").mkdir()
        shutil.copy(model_path(), tmp_path / "out" / "model.onnx")
        equal = self.rated(bench, 0, tmp_path / "out")
        assert (equal.verdict, equal.worst_db, equal.agreement) == (Verdict.GOOD, math.inf, 1.0)

    def test_other_ends_are_told_apart(self, bench: Bench, tmp_path: Path) -> None:
        assert self.rated(bench, None, tmp_path).verdict is Verdict.TIME_OUT
        refused = self.rated(bench, 2, tmp_path, "warning: few\nerror: no data: give some with -d\n")
        assert (refused.verdict, refused.reason) == (Verdict.REFUSED, "error: no data: give some with -d")
        assert self.rated(bench, 70, tmp_path, "error: a bug").verdict is Verdict.INTERNAL_FAULT

    def test_a_command_that_takes_too_long_is_ended(self, tmp_path: Path) -> None:
        assert run_quantize(model_path(), "qnn", tmp_path, tmp_path / "out", 0, 0.01).exit_code is None

    def test_samples_that_cannot_be_had_are_a_reason(self, tmp_path: Path) -> None:
        def missing(cache: Cache, path: Path) -> Maker:
            raise Unavailable("no recordings")

        made = Bench(dataclasses.replace(DIGITS, feeds=missing), Cache(tmp_path), tmp_path, "code").run("qnn", 0)
        assert (made.verdict, made.reason) == (Verdict.UNAVAILABLE, "samples: no recordings")

    def test_the_command_is_one_that_a_user_gives(self) -> None:
        words = quantize_command(Path("m.onnx"), "qnn", Path("data"), Path("out"), 1)
        assert words[1:] == [
            "-m",
            "onnxq",
            "quantize",
            "m.onnx",
            "-b",
            "qnn",
            "-d",
            "data",
            "-o",
            "out",
            "--effort",
            "1",
            "--json",
        ]

    def test_the_lowest_figure_of_a_report(self) -> None:
        outputs = [{"sqnr_db": 20.0, "parts_db": {"y[:, 4:]": 1.5}}, {"sqnr_db": None}]
        assert reported(json.dumps({"checks": {"outputs": outputs}})) == 1.5
        assert reported("") is None


class TestGate:
    def gate(self, tmp_path: Path, told: list[Cell], **more: object) -> Gate:
        return Gate(Cache(tmp_path), tmp_path / "results.jsonl", "code", told.append, **more)  # type: ignore[arg-type]

    def test_a_model_that_cannot_be_had_is_a_result_with_its_reason(self, tmp_path: Path) -> None:
        def missing(cache: Cache, path: Path) -> None:
            raise Unavailable("no such package")

        told: list[Cell] = []
        model = dataclasses.replace(DIGITS, source=Made(missing, pypi("made-up==1")))
        self.gate(tmp_path, told).run([model], [("qnn", 0), ("rknn", 0)], 1)
        assert [(one.verdict, one.reason) for one in told] == [(Verdict.UNAVAILABLE, "no such package")] * 2

    def test_a_crash_costs_one_cell_and_the_rest_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[Cell] = []
        gate = self.gate(tmp_path, told)
        asked: list[list[tuple[str, int]]] = []

        def process(model: ZooModel, left: list[tuple[str, int]]) -> tuple[int, str, int]:
            asked.append(list(left))
            return (-11, "Segmentation fault", 1) if len(asked) == 1 else (0, "", len(left))

        monkeypatch.setattr(gate, "_process", process)
        gate.run([DIGITS], [("a", 0), ("b", 0), ("c", 0)], 1)
        assert asked == [[("a", 0), ("b", 0), ("c", 0)], [("c", 0)]]
        assert [(one.key.target, one.verdict) for one in told] == [("b", Verdict.GATE_FAULT)]
        assert "-11: Segmentation fault" in told[0].reason

    @pytest.mark.slow
    def test_runs_what_is_missing_and_nothing_else(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        options = ["--cache", str(tmp_path), "--models", "digits", "--code", "one"]
        assert main([*options, "--targets", "onnxruntime"]) == 0
        assert "digits onnxruntime effort 0: good: " in capsys.readouterr().out
        assert main([*options, "--targets", "onnxruntime", "tensorrt"]) == 0
        said = capsys.readouterr().out
        assert "digits onnxruntime effort 0" not in said
        assert "digits tensorrt effort 0: good: " in said
        first, second = results.read(tmp_path / "results.jsonl")
        assert first.worst_db is not None
        assert first.worst_db > 20
        assert second.reported_db == pytest.approx(second.worst_db, abs=6)


class TestPage:
    NOW: ClassVar = {
        Slot("digits", "qnn", 0): cell(),
        Slot("digits", "rknn", 0): cell(Verdict.DEAD_PART, 0.4, "rknn"),
        Slot("nudenet", "qnn", 0): cell(Verdict.LOW, 5.0, agreement=0.5),
        Slot("nudenet", "rknn", 0): cell(
            Verdict.REFUSED, None, "rknn", agreement=None, reason="error: no | way.\nUse --skip"
        ),
    }

    def test_shows_figures_reasons_and_losses(self) -> None:
        shown = page.tables(self.NOW, {Slot("digits", "qnn", 0): cell(db=30.0)}, [0, 1])
        assert "4 cells in 0 minutes of commands, code new: 1 good, 1 low, 1 refused, 1 FAILED" in shown
        assert "| digits | classifier | 20.0 / 100% | **FAILED** 0.4 / 100% |" in shown
        assert "| nudenet | detector | *5.0 / 50%* | r1 |" in shown
        assert "1. `error: no | way. Use --skip`" in shown
        assert "| digits | qnn | 0 | good 30.0 / 100% | good 20.0 / 100% |" in shown
        assert "Effort 1" not in shown

    def test_reasons_that_differ_in_figures_alone_are_one(self) -> None:
        said = ["error: 1.2 dB: use -d", "error: -3.4 dB: use -d", "error: other: use -d"]
        reasons = page.Reasons(cell(Verdict.REFUSED, None, reason=text) for text in said)
        assert reasons.texts == [said[0], said[2]]
        assert [reasons.number(cell(Verdict.REFUSED, None, reason=text)) for text in said] == [1, 1, 2]

    def test_results_that_are_low_by_the_same_cause_are_one(self) -> None:
        low = "error: output '{0}': SQNR {1} dB is below the required 5 dB\n  cause: {2}\n  remedy: -b {0}"
        said = [
            low.format("a", 1.5, "channel 4 of 'a' goes up to 90 (and 4 more alike)"),
            low.format("b", 2, "channel 7 of 'b.c' goes up to 12.5"),
            low.format("b", 2, "'b' needs more than 8 bits"),
        ]
        reasons = page.Reasons(cell(Verdict.REFUSED, None, reason=text) for text in said)
        assert [reasons.number(cell(Verdict.REFUSED, None, reason=text)) for text in said] == [1, 1, 2]

    def test_writes_between_the_marks_of_a_page(self, tmp_path: Path) -> None:
        path = tmp_path / "page.md"
        path.write_text("before\n<!-- zoo: begin -->\nold\n<!-- zoo: end -->\nafter\n")
        page.write(path, page.TABLES, "new\n")
        assert path.read_text() == "before\n<!-- zoo: begin -->\n\nnew\n\n<!-- zoo: end -->\nafter\n"
        assert page.read(path, page.TABLES) == "new\n"
        with pytest.raises(page.PageError, match="has no '<!-- zoo models: begin -->'"):
            page.write(path, page.MODEL_LIST, "new\n")

    def test_the_documentation_names_the_models_of_the_catalogue(self) -> None:
        assert page.read(PAGE, page.MODEL_LIST) == page.model_list()

    def test_the_tables_of_the_documentation_have_the_form_that_is_generated(self) -> None:
        names, kinds = {model.name for model in MODELS}, {model.kind.value for model in MODELS}
        rows = [line for line in page.read(PAGE, page.TABLES).splitlines() if line.startswith("|")]
        for row in rows:
            cells = row.strip("|").split("|")
            if cells[0].strip() in names and cells[1].strip() in kinds:
                assert all(page.is_cell_text(text.strip()) for text in cells[2:]), row

    def test_verdicts_are_explained(self) -> None:
        text = PAGE.read_text(encoding="utf-8")
        for verdict in (Verdict.GOOD, Verdict.LOW, Verdict.REFUSED, Verdict.UNAVAILABLE):
            assert f"| {verdict.value} |" in text


def test_the_list_of_models_needs_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--models", "nudenet", "--cache", str(tmp_path)]) == 0
    listed = "nudenet detector pip download --no-deps nudenet==3.4.2: nudenet/320n.onnx"
    assert capsys.readouterr().out.split() == listed.split()


def test_budgets_grow_with_the_effort() -> None:
    assert budget_of(0) == Budget(16, 16, budget_of(0).seconds)
    assert [budget_of(effort).seconds for effort in range(4)] == sorted(
        budget_of(effort).seconds for effort in range(4)
    )


def test_the_budget_is_in_processor_time_not_in_that_of_a_clock() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], start_new_session=True) as asleep:
        try:
            assert processor_seconds(asleep.pid) < 5
        finally:
            asleep.kill()
    busy = "import time\nwhile time.process_time() < 0.5: pass\nprint(1, flush=True)\ntime.sleep(30)"
    command = [sys.executable, "-c", busy]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert processor_seconds(process.pid) >= 0.4
        finally:
            process.kill()
