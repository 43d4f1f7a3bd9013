"""Remedies: what targets can be asked for without knowing their names, and settings put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxq.config import read_config
from onnxq.demo import load_data, model_path
from onnxq.diagnose import Budget, diagnose
from onnxq.diagnose.finer import finer_options, wide_type
from onnxq.diagnose.look import look_at
from onnxq.diagnose.remedy import DataChange, Remedy, Setting, applied_document, apply_to, target_with, together
from onnxq.diagnose.text import remedy_lines
from onnxq.diagnose.trials import TrialRunner
from onnxq.mixed_precision import Subject
from onnxq.mixed_precision.study import Study
from onnxq.runtime import input_infos, open_dataset
from onnxq.targets import BACKENDS, get_backend, registered_backend
from onnxq.types import Limits, QuantSpec
from tools.illnesses import Patient


@pytest.mark.parametrize("name", BACKENDS.names())
def test_options_that_are_offered_make_a_format_finer(name: str) -> None:
    backend = get_backend(name)

    for key, value in finer_options(backend, name):
        other = registered_backend(target_with(name, [(key, value)]))
        assert other.name != backend.name
        assert other.limits.power_of_two == backend.limits.power_of_two  # a chip with other limits is another chip
        old, new = (b.scheme for b in (backend, other))
        assert (new.activation, new.weight) != (old.activation, old.weight)
        assert all(
            getattr(new, role).bits >= getattr(old, role).bits
            for role in ("activation", "weight")
            if getattr(old, role) is not None
        )


def test_sixteen_bits_of_activations_are_offered_where_an_option_has_them() -> None:
    assert ("activation", "uint16") in finer_options(get_backend("qnn"), "qnn")
    assert ("activation", "uint16") not in finer_options(get_backend("qnn:activation=uint16"), "qnn:activation=uint16")


def test_an_option_is_added_to_those_that_are_set() -> None:
    assert target_with("qnn:per_channel=yes", [("activation", "uint16")]) == "qnn:activation=uint16,per_channel=yes"


@pytest.mark.parametrize(
    ("dtypes", "symmetric_only", "expected"),
    [
        (("uint8", "uint16", "int16"), False, "uint16"),
        (("uint8", "int16"), False, "int16"),
        (("uint8", "uint16"), True, None),
        (("uint8",), False, None),
    ],
)
def test_a_wide_type_is_one_that_the_limits_have(
    dtypes: tuple[str, ...], symmetric_only: bool, expected: str | None
) -> None:
    limits = Limits(dtypes, zero_point_zero=symmetric_only)

    assert wide_type(QuantSpec("uint8", symmetric=False), limits) == expected


def test_remedies_together_keep_every_pattern_and_the_first_of_two_settings() -> None:
    first = Remedy(settings=(Setting(("tensor", "x", "dtype"), "uint16"),), skip=("a",))
    second = Remedy(settings=(Setting(("tensor", "x", "dtype"), "int16"), Setting(("observer",), "mse")), skip=("b",))

    both = together([first, second])

    assert both.skip == ("a", "b")
    assert both.settings == (*first.settings, Setting(("observer",), "mse"))


def test_a_remedy_takes_settings_out_and_adds_to_lists() -> None:
    config = read_config(
        {"skip": ["a"], "force": ["m", "n"], "tensor": {"x": {"share": "s", "observer": "mse"}, "y": {"share": "s"}}}
    )
    remedy = Remedy(
        settings=(Setting(("tensor", "x", "share"), None), Setting(("tensor", "y", "share"), None)),
        skip=("b",),
        unforce=("m",),
        options=(("activation", "uint16"),),
    )

    changed = apply_to(config, remedy)

    assert changed.skip == ("a", "b")
    assert changed.force == ("n",)
    assert changed.tensor["x"].share is None
    assert changed.tensor["x"].observer == "mse"
    assert "y" not in changed.tensor
    assert applied_document(config, "qnn", remedy)["backend"] == "qnn:activation=uint16"


def test_options_of_the_command_are_written_as_such_and_all_else_as_settings() -> None:
    assert remedy_lines(Remedy(skip=("a b",), options=(("activation", "uint16"),)), "qnn") == [
        "-b qnn:activation=uint16 --skip 'a b'"
    ]
    assert remedy_lines(Remedy(settings=(Setting(("observer",), "mse"),)), "qnn") == ["--observer mse"]
    assert remedy_lines(Remedy(settings=(Setting(("tensor", "/a/b", "dtype"), "uint16"),), skip=("n",)), "qnn") == [
        'skip = ["n"]',
        'tensor."/a/b".dtype = "uint16"',
    ]
    assert remedy_lines(Remedy(data=DataChange("leave_out", (5,))), "qnn") == ["leave sample 5 out of the data"]


def test_what_leaves_hardly_any_quantizer_is_refused(tied: Patient) -> None:
    dataset = open_dataset(tied.data[:4], input_infos(tied.model))
    session = Subject(tied.model, backend="qnn", data=dataset).open()
    runner = TrialRunner(session, "qnn", tuple(dataset), 0.0, quantizers=60)

    trial = runner.tried(Remedy(skip=("op:Conv",), settings=(Setting(("activation", "skip"), True),)), "few_bits")

    assert trial.after_db is None
    assert not trial.pays
    assert "quantizers would be left" in str(trial.refused)


class Counting:
    """Samples that know how often they were read."""

    def __init__(self, samples: np.ndarray) -> None:
        self.samples, self.passes, self.read = samples, 0, 0

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[np.ndarray]:
        self.passes += 1
        for sample in self.samples:
            self.read += 1
            yield sample


def test_a_trial_does_not_read_the_data_again(tied: Patient, tmp_path: Path) -> None:
    data = Counting(tied.data[:8])
    dataset = open_dataset(data, input_infos(tied.model))
    held = open_dataset(tied.data[:2], dataset.inputs)
    subject = Subject(tied.model, backend="qnn", data=dataset, config=tied.config, cache=tmp_path)
    first = Study(replace(subject, evaluate_on=held))
    session = first.session
    state = first.calibrated(first.plan())
    remedy = Remedy(settings=(Setting(("tensor", "scores", "skip"), True),))
    alone = TrialRunner(session, "qnn", tuple(held), 0.0, len(state.plan), tmp_path).tried(remedy, "few_bits")
    before = data.passes

    trial = TrialRunner(session, "qnn", tuple(held), 0.0, len(state.plan), tmp_path, first).tried(remedy, "few_bits")

    assert data.passes == before
    assert trial == alone
    assert trial.after_db is not None


def test_a_sample_that_is_left_out_is_not_seen_and_the_others_are_not_held(tied: Patient) -> None:
    data = Counting(tied.data[:8])
    dataset = open_dataset(data, input_infos(tied.model))
    held = tuple(open_dataset(tied.data[:2], dataset.inputs))
    runner = TrialRunner(Subject(tied.model, backend="qnn", data=dataset).open(), "qnn", held, 0.0, 1)

    others = runner.without((2, 5))

    passes = data.passes
    (name,) = (info.name for info in dataset.inputs)
    for _ in range(2):
        found = [feed[name][0] for feed in others]
        np.testing.assert_array_equal(found, tied.data[[0, 1, 3, 4, 6, 7]])
    assert data.passes == passes + 2


def test_only_the_first_samples_are_read_to_look_at_tensors(tied: Patient) -> None:
    data = Counting(tied.data[:8])
    dataset = open_dataset(data, input_infos(tied.model))
    few = open_dataset(tied.data[:3], dataset.inputs)

    seen = look_at(tied.model, ["boxes"], dataset, None, most=3)["boxes"]

    assert data.read < len(data)
    alone = look_at(tied.model, ["boxes"], few, None)["boxes"]
    assert (seen.low, seen.high, seen.peaks) == (alone.low, alone.high, alone.peaks)


def test_weights_of_few_bits_get_eight_before_their_layers_stay_float() -> None:
    subject = Subject(
        model_path(), backend="onnxruntime", data=load_data().calibration[:8], config={"weight": {"bits": 4}}
    )

    found = diagnose(subject, budget=Budget(samples=4, rankings=8, looked=4, trials=4))

    lines = [line for trial in found.paying for line in remedy_lines(trial.remedy, found.target)]
    assert any(".weight.bits = 8" in line for line in lines)


def test_a_target_that_is_an_object_is_not_taken_for_the_one_that_the_configuration_names(tied: Patient) -> None:
    subject = Subject(
        tied.model,
        backend=registered_backend("qnn"),
        data=tied.data[:8],
        config={**tied.config, "backend": "onnxruntime"},
    )

    found = diagnose(subject, budget=Budget(samples=2, rankings=4, looked=2, trials=2))

    assert found.backend == "qnn"
    assert found.target is None
    assert "backend" not in (found.remedied() or {})
    assert found.remedied() is not None
